"""What TLS, quotas and access control cost a broker: processor time of a send of 1 KiB, each beside a plain broker's, in pairs.

    PYTHONPATH=.:platform python -m tests.bench.limits [--pairs 10] [--sends 4000]

A busy machine is busy for both of a pair; the medians of the pairs' ratios are what counts.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mqwire.acl import SessionCredentials
from tests.bench.commits import processor_s
from tests.bench.load import ResponseCounter, send_frames
from tests.daemons import BrokerDaemon
from tests.remoting import RECEIVE_BYTES, connect, create_topic
from tests.security.accounts import ACCOUNTS, PROGRAM, TENANT_ADMIN
from tests.security.certificates import Authority

TOPIC = "limits"
RING = 512
QUOTAS = {
    "quotaCredentialMessagesPerSecond": "10000000",
    "quotaCredentialBytesPerSecond": "100000000000",
    "quotaTopicMessagesPerSecond": "10000000",
    "quotaTopicBytesPerSecond": "100000000000",
    "quotaStoredBytes": "1000000000000",
    "quotaTopicStoredBytes": "1000000000000",
    "quotaCredentialConnections": "1000",
    "quotaCredentialHeldPulls": "1000",
}


@dataclass
class Side:
    """One broker with one connection to it."""

    name: str
    pid: int
    stream: socket.socket
    frames: list[bytes]

    def cost_us(self, sends: int, in_flight: int) -> float:
        """Processor time of the broker for one send, in microseconds."""
        before_s = processor_s(self.pid)
        counter = ResponseCounter()
        for first in range(0, sends, in_flight):
            at = first % RING
            self.stream.sendall(b"".join(self.frames[at : at + in_flight]))
            answered = 0
            while answered < in_flight:
                data = self.stream.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionError(f"{self.name}: the broker closed the connection")
                answered += counter.feed(data)
        assert set(counter.codes) == {0}, counter.codes
        return (processor_s(self.pid) - before_s) * 1e6 / sends


def start(
    folder: Path,
    name: str,
    stack: ExitStack,
    *,
    conf: dict[str, str] | None = None,
    with_accounts: bool = False,
    authority: Authority | None = None,
) -> Side:
    (folder / name).mkdir()
    keys = {"mappedFileSizeCommitLog": str(256 << 20), **(conf or {})}
    if with_accounts:
        accounts = folder / name / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        keys |= {"aclEnable": "true", "aclConfigFile": str(accounts)}
    if authority is not None:
        identity = authority.issue(name)
        keys |= {"tls.server.certPath": str(identity.cert_path), "tls.server.keyPath": str(identity.key_path)}
    broker = BrokerDaemon(folder / name, "", keys).start()
    stack.callback(broker.kill)
    create_topic(broker.address, TOPIC, queues=4, credentials=TENANT_ADMIN if with_accounts else None)
    stream: socket.socket = stack.enter_context(connect(broker.address))
    if authority is not None:
        stream = authority.client_context().wrap_socket(stream, server_hostname="127.0.0.1")
    credentials: SessionCredentials | None = PROGRAM if with_accounts else None
    frames = send_frames(TOPIC, size_bytes=1024, queues=4, count=RING, credentials=credentials)
    side = Side(name, broker.pid, stream, frames)
    side.cost_us(1, 1)  # a connection that shows no account is closed soon
    return side


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.limits", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--sends", type=int, default=4_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        folder = Path(root)
        authority = Authority(folder / "ca")
        plain = start(folder, "plain", stack)
        accounts = start(folder, "access control", stack, with_accounts=True)
        pairs = [
            (plain, start(folder, "TLS", stack, authority=authority)),
            (plain, accounts),
            (accounts, start(folder, "access control and quotas", stack, with_accounts=True, conf=QUOTAS)),
        ]
        for in_flight in (16, 1):
            for without, with_it in pairs:
                rows = []
                for number in range(options.pairs + 1):
                    order = (without, with_it) if number % 2 else (with_it, without)
                    cost = {side.name: side.cost_us(options.sends, in_flight) for side in order}
                    if number:  # the first warms up
                        rows.append((cost[without.name], cost[with_it.name]))
                print(
                    f"{in_flight:2} in flight: {without.name} {statistics.median(row[0] for row in rows):.1f} us,"
                    f" {with_it.name} {statistics.median(row[1] for row in rows):.1f} us a send,"
                    f" median ratio {statistics.median(row[1] / row[0] for row in rows):.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
