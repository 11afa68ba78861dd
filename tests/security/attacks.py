"""What strangers and holders of weak keys do to a broker, each for as long as it is let, and what it costs good clients.

    python -m tests.security.attacks [--seconds 6] [--only NAME]
    python -m tests.security.attacks --name-server [--seconds 6] [--only NAME]
    python -m tests.security.attacks [--name-server] --idle 10000

measures, with a live daemon for each attack, the 99th percentile of a good client's sends (of its questions for a route) while
nothing and while the attack goes on, how long the first one took then, over a new connection, and the most memory that the daemon
holds. The attack goes on twice: as it is, and with the attacker's process at nice 19. Attackers have another address than the good
client, and another key. A real attacker has a machine of their own; here each takes the processor that broker and good client need,
and the second figure shows how much of the first is only that. It fails where memory passes 256 MiB, or the percentile ten times
its quiet value with the attacker at nice 19.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import selectors
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import PullMessageRequestHeader, ViewMessageRequestHeader
from tests.daemons import NameServerDaemon
from tests.mutated_frames import corpus, mutated
from tests.processes import resident_bytes
from tests.remoting import TIMEOUT_S, connect, exchange
from tests.security.accounts import ACCOUNTS, OTHER_PROGRAM, PROGRAM
from tests.security.certificates import Authority
from tests.security.live_broker import MEBIBYTE, RESIDENT_MAX_BYTES, LiveBroker, answers, send_request

_GOOD_PAUSE_S = 0.004
_TIMES_QUIET_MAX = 10
_NICEST = 19
# What the issue allows a broker with 10,000 idle connections.
_IDLE_BYTES_MAX = 600 * MEBIBYTE
_RECEIVE_S = 0.2


class Stop(Protocol):
    """When an attack is over."""

    def is_set(self) -> bool: ...


Attack = Callable[[str, Stop], None]
ATTACKS: dict[str, Attack] = {}


def _connect(address: str) -> socket.socket:
    """A connection from another address than good clients have."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=("127.0.0.2", 0))


def _attack(function: Attack) -> Attack:
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def _signed(code: int, body: bytes = b"", fields: dict[str, str] | None = None) -> bytes:
    request = RemotingCommand.request(code, ext_fields=fields, body=body)
    sign_request(request, PROGRAM)
    return request.encode()


def _pour(address: str, stop: Stop, frames: Iterator[bytes], read: bool = True) -> None:
    """Write frames for as long as the broker takes them, over connections that are opened again when it ends them."""
    while not stop.is_set():
        with contextlib.suppress(OSError), _connect(address) as stream:
            stream.settimeout(_RECEIVE_S)
            reader = threading.Thread(target=_read_away, args=(stream,), daemon=True)
            if read:
                reader.start()
            while not stop.is_set():
                view = memoryview(next(frames))
                while view and not stop.is_set():
                    try:
                        view = view[stream.send(view) :]
                    except TimeoutError:
                        continue


def _pour_from_many(address: str, stop: Stop, connections: int, first: bytes, frame: bytes) -> None:
    """Write `first` and then one frame again and again over so many connections, and read no answer."""
    data = frame * (MEBIBYTE // len(frame))
    held: dict[socket.socket, int] = {}
    watched = selectors.DefaultSelector()

    def leave(stream: socket.socket) -> None:
        watched.unregister(stream)
        del held[stream]
        stream.close()

    while not stop.is_set():
        with contextlib.suppress(OSError):
            while len(held) < connections:
                stream = _connect(address)
                stream.sendall(first)
                stream.setblocking(False)
                held[stream] = 0
                watched.register(stream, selectors.EVENT_WRITE)
        for key, _ in watched.select(0.05):
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            try:
                held[peer] = (held[peer] + peer.send(memoryview(data)[held[peer] :])) % len(data)
            except BlockingIOError:
                continue
            except OSError:
                leave(peer)
    for stream in list(held):
        leave(stream)


def _read_away(stream: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while True:
            try:
                if not stream.recv(MEBIBYTE):
                    return
            except TimeoutError:
                continue


# --- connections ---


@_attack
def idle_connections(address: str, stop: Stop) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1_100):
            if stop.is_set():
                return
            stack.enter_context(_connect(address))
        while not stop.is_set():
            time.sleep(0.05)


@_attack
def connections_without_end(address: str, stop: Stop) -> None:
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            held.append(_connect(address))
        if len(held) > 900:
            held.pop(0).close()
    for stream in held:
        stream.close()


# --- strangers' frames ---


@_attack
def field_sets_of_a_stranger(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        for number in itertools.count():
            fields = {f"{number}-{at}-".ljust(100, "x"): "" for at in range(100)}
            fields |= {"AccessKey": "unknown-key", "Signature": "x"}
            yield RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields=fields).encode()

    _pour(address, stop, frames())


@_attack
def unfinished_frames(address: str, stop: Stop) -> None:
    header = b'{"code":310,"extFields":{}}'
    unfinished = struct.pack(">II", 4 * MEBIBYTE, len(header)) + header + bytes(3 * MEBIBYTE)
    _hold_unfinished(address, stop, unfinished, connections=300)


@_attack
def small_unfinished_frames_of_many(address: str, stop: Stop) -> None:
    _raise_descriptor_limit()
    header = b'{"code":105,"extFields":{}}'
    unfinished = struct.pack(">II", 60 * 1024, len(header)) + header + bytes(59 * 1024)
    _hold_unfinished(address, stop, unfinished, connections=8_000)


def _hold_unfinished(address: str, stop: Stop, unfinished: bytes, *, connections: int) -> None:
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            stream = _connect(address)
            held.append(stream)
            stream.sendall(unfinished)
        if len(held) > connections:
            held.pop(0).close()
    for stream in held:
        stream.close()


@_attack
def tiny_frames_of_many(address: str, stop: Stop) -> None:
    _pour_from_many(address, stop, 600, b"", struct.pack(">II", 15, 11) + b'{"code":34}')


@_attack
def tls_handshakes_without_end(address: str, stop: Stop) -> None:
    _raise_descriptor_limit()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()
    held: list[socket.socket] = []
    while not stop.is_set():
        with contextlib.suppress(OSError):
            held.append(_connect(address))
            held[-1].sendall(hello)
        if len(held) > 900:
            held.pop(0).close()
    for stream in held:
        stream.close()


@_attack
def routes_of_topics_without_end(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        for number in itertools.count():
            fields = {"topic": f"{number}-".ljust(120, "x")}
            yield RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields).encode() * 16

    _pour(address, stop, frames())


@_attack
def large_sends_with_a_wrong_secret(address: str, stop: Stop) -> None:
    frame = send_request(bytes(4 * MEBIBYTE - 1024), SessionCredentials(PROGRAM.access_key, "guessed")).encode()
    _pour(address, stop, itertools.repeat(frame))


@_attack
def damaged_frames(address: str, stop: Stop) -> None:
    source, good = random.Random(7), corpus()
    while not stop.is_set():
        with contextlib.suppress(OSError), _connect(address) as stream:
            stream.sendall(b"".join(mutated(source.choice(good), source) for _ in range(4)))
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(MEBIBYTE):
                continue


# --- holders of a weak key ---


@_attack
def pipelined_views_of_a_large_message(address: str, stop: Stop) -> None:
    with _connect(address) as stream:
        stream.sendall(send_request(bytes(4 * MEBIBYTE - 1024)).encode())
        large = answers(stream, 1)[0]
    request = RemotingCommand.request(
        RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=int(large.ext_fields["msgId"][-16:], 16))
    )
    sign_request(request, PROGRAM)
    frame = request.encode() * 400
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stream = stack.enter_context(_connect(address))
            with contextlib.suppress(OSError):
                stream.sendall(frame)  # none of the answers is read
        _pour(address, stop, itertools.repeat(frame))


def _heartbeats(make: Callable[[int], HeartbeatData]) -> Iterator[bytes]:
    for number in itertools.count():
        yield _signed(RequestCode.HEART_BEAT, make(number).to_json())


def _consumer(group: str, topic: str = "orders", sub_string: str = "*") -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        subscription_data_set=[SubscriptionData(topic=topic, sub_string=sub_string)],
    )


@_attack
def heartbeats_with_new_groups(address: str, stop: Stop) -> None:
    def heartbeat(number: int) -> HeartbeatData:
        return HeartbeatData(
            client_id=f"c{number}", consumer_data_set=[_consumer(f"g{number}-{at}") for at in range(300)]
        )

    _pour(address, stop, _heartbeats(heartbeat))


@_attack
def heartbeats_with_long_names_of_producers(address: str, stop: Stop) -> None:
    def heartbeat(number: int) -> HeartbeatData:
        names = [f"{number}-{at}-".ljust(100_000, "x") for at in range(10)]
        return HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=name) for name in names])

    _pour(address, stop, _heartbeats(heartbeat))


@_attack
def heartbeats_with_many_producers(address: str, stop: Stop) -> None:
    def heartbeat(number: int) -> HeartbeatData:
        groups = [ProducerData(group_name=f"p{number}-{at}") for at in range(1_000)]
        return HeartbeatData(client_id=f"c{number}", producer_data_set=groups)

    _pour(address, stop, _heartbeats(heartbeat))


@_attack
def heartbeats_with_large_subscriptions(address: str, stop: Stop) -> None:
    large = "x" * MEBIBYTE

    def heartbeat(number: int) -> HeartbeatData:
        return HeartbeatData(client_id="c", consumer_data_set=[_consumer(f"g{number % 900}", sub_string=large)])

    _pour(address, stop, _heartbeats(heartbeat))


@_attack
def heartbeats_of_long_client_ids(address: str, stop: Stop) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(400):
            if stop.is_set():
                return
            client = HeartbeatData(client_id=f"{number}".ljust(MEBIBYTE, "x"), consumer_data_set=[_consumer("g")])
            with contextlib.suppress(OSError):
                stream = stack.enter_context(_connect(address))
                stream.sendall(_signed(RequestCode.HEART_BEAT, client.to_json()))
                answers(stream, 1)
        while not stop.is_set():
            time.sleep(0.05)


@_attack
def locks_of_queues_that_no_one_has(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        for number in itertools.count():
            queues = [{"topic": "orders", "brokerName": f"{number}-{at}", "queueId": at} for at in range(5_000)]
            body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
            yield _signed(RequestCode.LOCK_BATCH_MQ, body)

    _pour(address, stop, frames())


@_attack
def held_pulls(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        yield _signed(
            RequestCode.HEART_BEAT, HeartbeatData(client_id="c", consumer_data_set=[_consumer("g")]).to_json()
        )
        while True:
            header = PullMessageRequestHeader(
                consumer_group="g",
                topic="orders",
                queue_id=0,
                queue_offset=1 << 40,
                max_msg_nums=32,
                sys_flag=2 | 4,
                commit_offset=0,
                suspend_timeout_millis=15_000,
                subscription="a" * 10_000,
                sub_version=0,
            )
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            sign_request(request, PROGRAM)
            yield request.encode()

    _pour(address, stop, frames())


@_attack
def pulls_in_groups_without_end(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        for number in itertools.count():
            fields = {
                "consumerGroup": f"pulled-{number}",
                "topic": "orders",
                "queueId": "0",
                "queueOffset": "0",
                "maxMsgNums": "1",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subVersion": "0",
            }
            yield _signed(RequestCode.PULL_MESSAGE, fields=fields)

    _pour(address, stop, frames())


@_attack
def questions_about_groups_without_end(address: str, stop: Stop) -> None:
    def frames() -> Iterator[bytes]:
        for number in itertools.count():
            group = f"{number}-".ljust(200, "x")
            fields = {"consumerGroup": group, "topic": "orders", "queueId": "0", "commitOffset": "1"}
            yield _signed(RequestCode.QUERY_CONSUMER_OFFSET, fields=fields)
            yield _signed(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)
            yield _signed(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=fields)

    _pour(address, stop, frames())


@_attack
def looks_over_many_connections(address: str, stop: Stop) -> None:
    frame = _signed(RequestCode.GET_TOPIC_STATS_INFO, fields={"topic": "wide"})
    pourers = [
        threading.Thread(target=_pour, args=(address, stop, itertools.repeat(frame)), daemon=True) for _ in range(50)
    ]
    for pourer in pourers:
        pourer.start()
    for pourer in pourers:
        pourer.join()


@_attack
def tiny_frames_of_many_with_a_key(address: str, stop: Stop) -> None:
    question = _signed(RequestCode.GET_MAX_OFFSET, fields={"topic": "orders", "queueId": "0"})
    _pour_from_many(address, stop, 600, question, struct.pack(">II", 15, 11) + b'{"code":34}')


@_attack
def answers_that_no_one_reads(address: str, stop: Stop) -> None:
    with _connect(address) as stream:
        stream.sendall(send_request(bytes(400 * 1024)).encode())
        large = answers(stream, 1)[0]
    request = RemotingCommand.request(
        RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=int(large.ext_fields["msgId"][-16:], 16))
    )
    sign_request(request, PROGRAM)
    _pour_from_many(address, stop, 900, b"", request.encode())


@_attack
def sends_of_another_program(address: str, stop: Stop) -> None:
    _pour(address, stop, itertools.repeat(send_request(bytes(1024)).encode() * 16))


# What needs no key goes for name servers as well.
OF_STRANGERS = tuple(list(ATTACKS)[: list(ATTACKS).index("pipelined views of a large message")])


# --- measuring ---


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _certificate(folder: Path) -> dict[str, str]:
    """The keys of a daemon that takes TLS beside plain text."""
    identity = Authority(folder / "ca").issue("daemon")
    return {"tls.server.certPath": str(identity.cert_path), "tls.server.keyPath": str(identity.key_path)}


class LiveNameServer:
    """A name server with access control, as a real process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        accounts = folder / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        keys = {"aclEnable": "true", "aclConfigFile": str(accounts), **_certificate(folder)}
        self.daemon = NameServerDaemon(folder, keys).start()

    @property
    def address(self) -> str:
        return self.daemon.address

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self.daemon.pid)

    def connection(self) -> socket.socket:
        return connect(self.address)

    def ask(self, stream: socket.socket) -> RemotingCommand:
        """A good client's question; stock clients sign those, too."""
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "orders"})
        sign_request(request, OTHER_PROGRAM)
        return exchange(stream, request)


def latencies_ms(ask: Callable[[], object], seconds: float, watch: Callable[[], None] = lambda: None) -> list[float]:
    """How long each of a good client's requests took, in order of length; `watch` is called between them."""
    taken = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        started_s = time.perf_counter()
        ask()
        taken.append((time.perf_counter() - started_s) * 1000)
        watch()
        time.sleep(_GOOD_PAUSE_S)
    return sorted(taken)


def _attack_nicely(attack: str, address: str, stop: Stop, nice: int) -> None:
    os.nice(nice)
    ATTACKS[attack](address, stop)


@contextlib.contextmanager
def under(attack: str, address: str, *, nice: int = 0) -> Iterator[None]:
    """An attack by a process of its own, which ends with the block."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    process = context.Process(target=_attack_nicely, args=(attack, address, stop, nice), daemon=True)
    process.start()
    try:
        yield
    finally:
        stop.set()
        process.join(5)
        process.kill()


@dataclass(frozen=True)
class Measured:
    """The 99th percentile of a good client's requests, quiet, under the attack, and with the attacker at nice 19, in milliseconds;
    how long its first one took that time, over a new connection; and the most bytes that the daemon held.
    """

    quiet_ms: float
    busy_ms: float
    nice_ms: float
    first_ms: float
    held_bytes: int


def measure(attack: str, folder: Path, seconds: float) -> Measured:
    """Of a broker, and a good client's sends."""
    quotas = {"quotaCredentialConnections": "1000", "quotaCredentialHeldPulls": "20000"}
    broker = LiveBroker(folder, **quotas, **_certificate(folder))

    @contextlib.contextmanager
    def good_client() -> Iterator[Callable[[], object]]:
        with broker.connection() as stream:
            yield lambda: broker.send(stream, bytes(1024), OTHER_PROGRAM)

    return _measured(attack, broker, good_client, seconds)


def measure_name_server(attack: str, folder: Path, seconds: float) -> Measured:
    """The same of a name server, and of a client that asks it for a route over a connection that it opens again if it must."""
    names = LiveNameServer(folder)
    streams: list[socket.socket] = []

    def ask() -> None:
        for _ in range(3):
            try:
                if not streams:
                    streams.append(names.connection())
                names.ask(streams[0])
                return
            except ConnectionError:
                streams.pop().close()
        raise ConnectionError("the name server ends each connection of a good client")

    @contextlib.contextmanager
    def good_client() -> Iterator[Callable[[], object]]:
        yield ask
        streams.pop().close()

    return _measured(attack, names, good_client, seconds)


def _measured(
    attack: str,
    daemon: LiveBroker | LiveNameServer,
    good_client: Callable[[], contextlib.AbstractContextManager[Callable[[], object]]],
    seconds: float,
) -> Measured:
    highest = 0
    first_ms = 0.0

    def watch() -> None:
        nonlocal highest
        highest = max(highest, daemon.resident_bytes)

    try:
        with good_client() as ask:
            quiet = latencies_ms(ask, seconds)
        busy = []
        for nice in (0, _NICEST):
            with under(attack, daemon.address, nice=nice):
                time.sleep(0.5)
                with good_client() as ask:
                    started_s = time.perf_counter()
                    ask()
                    first_ms = (time.perf_counter() - started_s) * 1000
                    busy.append(latencies_ms(ask, seconds, watch))
            time.sleep(0.5)  # what it left is served and forgotten
        quiet_ms, busy_ms, nice_ms = (taken[len(taken) * 99 // 100] for taken in (quiet, *busy))
        return Measured(quiet_ms, busy_ms, nice_ms, first_ms, highest)
    finally:
        daemon.daemon.kill()


def measure_idle(connections: int, folder: Path, *, of_name_server: bool = False) -> tuple[int, int]:
    """Bytes that a daemon holds with no client, and with so many that have shown a key and are silent then."""
    daemon = LiveNameServer(folder) if of_name_server else LiveBroker(folder)
    if of_name_server:
        question = _signed(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "orders"})
    else:
        question = _signed(RequestCode.GET_MAX_OFFSET, fields={"topic": "orders", "queueId": "0"})
    try:
        alone = daemon.resident_bytes
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                stream = stack.enter_context(connect(daemon.address))
                stream.sendall(question)
                answers(stream, 1)
            return alone, daemon.resident_bytes
    finally:
        daemon.daemon.kill()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument(
        "--idle", type=int, metavar="CONNECTIONS", help="measure what so many silent clients cost, and end"
    )
    parser.add_argument(
        "--name-server", action="store_true", help="what needs no key, against a name server; or its silent clients"
    )
    options = parser.parse_args(arguments)
    if options.idle:
        _raise_descriptor_limit()
        with tempfile.TemporaryDirectory() as folder:
            alone, held = measure_idle(options.idle, Path(folder), of_name_server=options.name_server)
        of = "name server" if options.name_server else "broker"
        print(
            f"{of}, {options.idle} silent clients: {held / MEBIBYTE:.0f} MiB, {alone / MEBIBYTE:.0f} MiB without them"
        )
        return int(held > _IDLE_BYTES_MAX)
    failed = False
    print(
        f"{'attack':42} {'quiet p99':>10} {'under it':>10} {'times':>6} {'nice':>10} {'times':>6} {'first':>10} {'memory':>9}",
        flush=True,
    )
    take, every = (measure_name_server, list(OF_STRANGERS)) if options.name_server else (measure, list(ATTACKS))
    for attack in [options.only] if options.only else every:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = take(attack, Path(folder), options.seconds)
            except (OSError, AssertionError) as error:
                print(f"{attack:42} the good client failed: {error}", flush=True)
                failed = True
                continue
        times, nice_times = found.busy_ms / found.quiet_ms, found.nice_ms / found.quiet_ms
        failed |= nice_times > _TIMES_QUIET_MAX or found.held_bytes > RESIDENT_MAX_BYTES
        print(
            f"{attack:42} {found.quiet_ms:7.1f} ms {found.busy_ms:7.1f} ms {times:6.1f} {found.nice_ms:7.1f} ms {nice_times:6.1f}"
            f" {found.first_ms:7.0f} ms {found.held_bytes / MEBIBYTE:5.0f} MiB",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
