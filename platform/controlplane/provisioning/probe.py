"""Questions to a cluster's daemons while it is not running yet: who is registered, who answers, who is let in."""

import socket
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from controlplane.clusters.certificates import issued_at
from controlplane.clusters.remarks import error_words
from controlplane.common.sentences import say
from highwater import Admin, Credentials, WaitBudget
from highwater.errors import HighwaterError, PermissionDeniedError

_TIMEOUT_MS = 2000


@dataclass(frozen=True, slots=True)
class Registration:
    """What one name server knows. `error` says why it didn't answer; then `addresses` is empty."""

    name_server: str
    addresses: frozenset[str] = frozenset()
    error: str = ""


def port_answers(host: str, port: int) -> bool:
    """Return whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_MS / 1000):
            return True
    except OSError:
        return False


def handshake_problem(
    host: str, port: int, contexts: Collection[ssl.SSLContext], issued_from: datetime | None = None
) -> str:
    """Shake hands once with each context; return an empty text when the daemon takes all, and shows no certificate of before
    `issued_from`; else why not.
    """
    for context in contexts:
        try:
            with (
                socket.create_connection((host, port), timeout=_TIMEOUT_MS / 1000) as plain,
                context.wrap_socket(plain) as secured,
            ):
                shown = secured.getpeercert(binary_form=True)
                if issued_from is not None and shown is not None and issued_at(shown) < issued_from:
                    return say("it has not read its new files yet.")
        except ssl.SSLCertVerificationError as error:
            return say("its certificate is of another CA (%(error)s).", error=error.verify_message)
        except ssl.SSLError as error:
            return say("it does not take a certificate of the CA (%(error)s).", error=error.reason or str(error))
        except OSError as error:
            return say("it does not answer (%(error)s).", error=error.strerror or str(error))
    return ""


def registrations(
    name_servers: list[str],
    credentials: Credentials,
    own_addresses: Collection[str],
    leader_addresses: Collection[str] = (),
    *,
    tls: ssl.SSLContext | None,
    budget: WaitBudget | None = None,
) -> list[Registration]:
    """Ask each name server by itself for the brokers that it knows: they don't know each other.

    `own_addresses` are those of the replicas. A leader may be registered with its group's leader port, one of
    `leader_addresses`: then the broker that answers there is asked for its own address. No one connects anywhere else,
    whatever a name server says. All of it waits no longer than `budget` has left.
    """
    answers = []
    for name_server in name_servers:
        try:
            with _admin([name_server], leader_addresses, credentials, tls, budget) as admin:
                table = admin.cluster_info().broker_addr_table
                found = {broker for data in table.values() for broker in data.broker_addrs.values()}
                for address in found.intersection(leader_addresses).difference(own_addresses):
                    found |= _own_address(admin, address)
        except HighwaterError as error:
            answers.append(Registration(name_server, error=error_words(error)))
        else:
            answers.append(Registration(name_server, frozenset(found)))
    return answers


def _admin(
    name_servers: list[str],
    brokers: Collection[str],
    credentials: Credentials | None,
    tls: ssl.SSLContext | None,
    budget: WaitBudget | None = None,
) -> Admin:
    """Return an Admin that connects to these addresses alone."""
    return Admin(
        name_servers,
        credentials=credentials,
        timeout_ms=_TIMEOUT_MS,
        use_tls=tls or False,
        only_addresses=brokers,
        wait_budget=budget,
    )


def _own_address(admin: Admin, address: str) -> set[str]:
    try:
        return {admin.replica_status(address).address}
    except HighwaterError:  # it is as the name server says: no one's own
        return set()


def broker_answers(name_servers: list[str], broker: str, credentials: Credentials, tls: ssl.SSLContext | None) -> str:
    """Send one signed request to a broker; return an empty text when it answers, else why not."""
    try:
        with _admin(name_servers, [broker], credentials, tls) as admin:
            admin.broker_runtime_info(broker)
    except HighwaterError as error:
        return error_words(error)
    return ""


def broker_refuses_strangers(name_servers: list[str], broker: str, tls: ssl.SSLContext | None) -> bool:
    """Send one unsigned request; return whether it is refused for lack of permission."""
    try:
        with _admin(name_servers, [broker], None, tls) as admin:
            admin.broker_config(broker)
    except PermissionDeniedError:
        return True
    except HighwaterError:
        return False
    return False
