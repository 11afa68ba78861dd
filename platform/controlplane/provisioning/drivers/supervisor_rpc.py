"""supervisord's XML-RPC over its unix socket, typed. Faults become DriverError or, where harmless, nothing."""

import http.client
import socket
import xmlrpc.client  # nosec B411  # its parser is told to refuse document types, with which XML is made to explode
from collections.abc import Callable
from typing import Any, cast

from controlplane.provisioning.errors import DriverError

# Longer than stopwaitsecs of the daemons: stopProcess(wait=True) returns when the process has ended.
_TIMEOUT_S = 30.0

# supervisor.xmlrpc.Faults
ALREADY_ADDED = 90
ALREADY_STARTED = 60
BAD_NAME = 10
NOT_RUNNING = 70
STILL_RUNNING = 91
SPAWN_ERROR = 50
ABNORMAL_TERMINATION = 40


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        return _UnixConnection(self._path)

    def getparser(self) -> Any:
        parser, target = super().getparser()
        _refuse_document_types(parser)
        return parser, target


def _refuse_document_types(parser: Any) -> None:
    """Make the parser of an answer raise ResponseError at a document type: entities, with which a small text becomes a huge one,
    are declared nowhere else, and supervisord sends none.
    """

    def refuse(name: str, *_: object) -> None:
        raise xmlrpc.client.ResponseError(f"the answer declares a document type, {name}")

    parser._parser.StartDoctypeDeclHandler = refuse  # xmlrpc.client has no public way to its expat parser


class SupervisorRpc:
    """One supervisord. Opens a connection for each call: it may have been restarted since the last."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path

    def all_process_info(self) -> list[dict[str, Any]]:
        """Return supervisor.getAllProcessInfo()."""
        return cast(list[dict[str, Any]], self._call("getAllProcessInfo"))

    def reload_config(self) -> None:
        """Read the program files again. Changes nothing that runs."""
        self._call("reloadConfig")

    def add_group(self, name: str) -> None:
        """Add a program that reload_config has read; starts it when it is autostart. Twice is harmless."""
        self._call("addProcessGroup", name, harmless=(ALREADY_ADDED,))

    def remove_group(self, name: str) -> bool:
        """Forget a stopped program; False when it has not ended yet. Unknown is harmless.

        A program that was asked to end before is "not running" to `stop`, which then doesn't wait for its end.
        """
        return self._call("removeProcessGroup", name, harmless=(BAD_NAME, STILL_RUNNING)) != STILL_RUNNING

    def start(self, name: str) -> None:
        """Start without waiting for success; a running one, or one that ends at once, is not an error here."""
        self._call("startProcess", name, False, harmless=(ALREADY_STARTED, SPAWN_ERROR, ABNORMAL_TERMINATION))

    def stop(self, name: str) -> None:
        """Stop and wait until it has ended. Unknown or stopped is harmless."""
        self._call("stopProcess", name, True, harmless=(BAD_NAME, NOT_RUNNING))

    def stop_soon(self, name: str) -> None:
        """Ask it to end, and don't wait. Unknown or stopped is harmless."""
        self._call("stopProcess", name, False, harmless=(BAD_NAME, NOT_RUNNING))

    def kill(self, name: str) -> None:
        """Send SIGKILL. Unknown or ended is harmless."""
        self._call("signalProcess", name, "KILL", harmless=(BAD_NAME, NOT_RUNNING))

    def pause(self, name: str) -> None:
        """Send SIGSTOP. Unknown or ended is harmless."""
        self._call("signalProcess", name, "STOP", harmless=(BAD_NAME, NOT_RUNNING))

    def _call(self, method: str, *arguments: object, harmless: tuple[int, ...] = ()) -> object:
        proxy = xmlrpc.client.ServerProxy("http://localhost", transport=_UnixTransport(self._socket_path))
        try:
            remote = cast(Callable[..., object], getattr(proxy.supervisor, method))
            return remote(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode in harmless:
                return fault.faultCode
            raise DriverError(f"supervisord refused {method}{arguments}: {fault.faultString}") from fault
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError, xmlrpc.client.ResponseError) as error:
            raise DriverError(f"supervisord does not answer on {self._socket_path}: {error}") from error
        finally:
            proxy("close")()
