"""The name server as a process of its own, spoken to over real sockets."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from mqwire.acl import SessionCredentials
from mqwire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from mqwire.codes import RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.headers_namesrv import (
    BrokerHeartbeatRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from mqwire.properties import parse_properties
from mqwire.version import program_version
from tests import daemons
from tests.daemons import REPOSITORY, NameServerDaemon, daemon_command, daemon_environment
from tests.mutated_frames import corpus, mutated
from tests.processes import child_environment, resident_bytes, wait_until
from tests.remoting import TIMEOUT_S, connect, exchange, signed, topic_route

MEBIBYTE = 1024 * 1024
PATIENCE_S = 30.0
Start = Callable[..., NameServerDaemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts name servers with given keys in their namesrv.conf; all are stopped at the end."""
    started: list[NameServerDaemon] = []

    def start_one(conf: Mapping[str, str] | None = None) -> NameServerDaemon:
        folder = tmp_path / f"namesrv-{len(started)}"
        daemon = NameServerDaemon(folder, {"kvConfigPath": str(folder / "kv" / "kvConfig.json"), **(conf or {})})
        started.append(daemon)
        return daemon.start()

    yield start_one
    for daemon in started:
        daemon.stop()


def registration(
    *,
    name: str = "a",
    broker_id: int = 0,
    topics: int = 2,
    kind: SerializeType = SerializeType.JSON,
    compressed: bool = False,
) -> RemotingCommand:
    names = ["orders", *(f"topic-{number}" for number in range(1, topics))]
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table={topic: TopicConfig(topic_name=topic) for topic in names},
            data_version=DataVersion(counter=1),
        )
    )
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=f"127.0.0.1:{20_000 + broker_id}",
        cluster_name="c",
        ha_server_addr="",
        broker_id=broker_id,
        compressed=compressed,
    )
    return RemotingCommand.request(
        RequestCode.REGISTER_BROKER, header, body=body.encode(compress=compressed), serialize_type=kind
    )


def heartbeat() -> RemotingCommand:
    header = BrokerHeartbeatRequestHeader(cluster_name="c", broker_addr="127.0.0.1:20000", broker_name="a", broker_id=0)
    return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)


def route_request(topic: str = "orders", kind: SerializeType = SerializeType.JSON) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic), serialize_type=kind
    )


def closed_by_peer(stream: socket.socket) -> bool:
    """Waits for the peer to end the connection; False when it sends something instead."""
    stream.settimeout(PATIENCE_S)
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


# --- life and death ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_0_on_a_signal_with_brokers_and_clients_connected(start: Start, number: signal.Signals) -> None:
    daemon = start()
    assert daemon.process is not None
    with connect(daemon.address) as broker, connect(daemon.address) as half_a_frame:
        exchange(broker, registration())
        half_a_frame.sendall(struct.pack(">i", 1000) + b"half")
        daemon.process.popen.send_signal(number)
        assert daemon.process.popen.wait(10) == 0


def test_a_port_that_is_taken_is_reported_and_ends_it_with_1(start: Start, tmp_path: Path) -> None:
    daemon = start()
    done = subprocess.run(
        daemon_command("namesrvd", "--listen-port", str(daemon.port), "--listen-address", "127.0.0.1"),
        env=daemon_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [("listenPort=x\n", "line 1: listenPort=x"), ("aclEnable=true\n", "plain_acl.yml cannot be read")],
)
def test_a_bad_configuration_is_reported_and_ends_it_with_2(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(text)
    done = subprocess.run(
        daemon_command("namesrvd", "-c", str(path)),
        env=daemon_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_older_release_reports_its_version_until_the_daemon_is_restarted_with_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = tmp_path / "release"
    for package in (REPOSITORY / "namesrvd", REPOSITORY / "platform" / "mqwire"):
        shutil.copytree(package, release / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    with (release / "namesrvd" / "processor.py").open("a") as module:
        module.write("# as it was before\n")
    daemon = NameServerDaemon(tmp_path / "namesrv")
    with monkeypatch.context() as older:
        older.setattr(daemons, "daemon_environment", lambda: child_environment(PYTHONPATH=str(release)))
        daemon.start()
    try:
        before = version_of(daemon)
        daemon.stop()
        daemon.start()
        assert version_of(daemon) == program_version("namesrvd")
        assert before.split("+")[0] == program_version("namesrvd").split("+")[0]
        assert before != program_version("namesrvd")
    finally:
        daemon.stop()


def version_of(daemon: NameServerDaemon) -> str:
    with connect(daemon.address) as stream:
        answer = exchange(stream, RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG))
    values = {entry.key: entry.value for entry in parse_properties(bytes(answer.body))}
    return values["highwaterVersion"]


def test_a_damaged_kv_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("{")
    (tmp_path / "namesrv.conf").write_text(f"kvConfigPath={tmp_path / 'kv.json'}\nlistenPort=0\n")
    done = subprocess.run(
        daemon_command("namesrvd", "-c", str(tmp_path / "namesrv.conf")),
        env=daemon_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "kv.json is damaged" in done.stderr


# --- brokers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("compressed", [False, True])
def test_a_registered_topic_is_routed_over_the_wire(start: Start, kind: SerializeType, compressed: bool) -> None:
    daemon = start()
    with connect(daemon.address) as broker, connect(daemon.address) as client:
        assert exchange(client, route_request(kind=kind)).code == ResponseCode.TOPIC_NOT_EXIST
        assert exchange(broker, registration(kind=kind, compressed=compressed)).code == ResponseCode.SUCCESS
        reply = exchange(client, route_request(kind=kind))
        assert reply.serialize_type == kind
        assert TopicRouteData.from_json(reply.body).broker_datas[0].broker_addrs == {0: "127.0.0.1:20000"}


def test_a_brokers_closed_connection_ends_its_routes_at_once(start: Start) -> None:
    daemon = start()
    with connect(daemon.address) as client:
        with connect(daemon.address) as broker:
            exchange(broker, registration())
            assert exchange(client, route_request()).code == ResponseCode.SUCCESS
        wait_until(
            lambda: exchange(client, route_request()).code == ResponseCode.TOPIC_NOT_EXIST,
            timeout_s=PATIENCE_S,
            what="the route ends with the connection",
        )


def test_unregistering_ends_the_routes(start: Start) -> None:
    daemon = start()
    header = UnRegisterBrokerRequestHeader(
        broker_name="a", broker_addr="127.0.0.1:20000", cluster_name="c", broker_id=0
    )
    with connect(daemon.address) as broker:
        exchange(broker, registration())
        assert exchange(broker, RemotingCommand.request(104, header)).code == ResponseCode.SUCCESS
        assert exchange(broker, route_request()).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_silent_broker_is_dropped_and_its_connection_closed(start: Start) -> None:
    daemon = start({"brokerChannelExpiredTimeout": "300", "scanNotActiveBrokerInterval": "50"})
    with connect(daemon.address) as silent, connect(daemon.address) as client:
        exchange(silent, registration())
        assert closed_by_peer(silent)
        assert exchange(client, route_request()).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_that_gives_signs_of_life_stays(start: Start) -> None:
    daemon = start({"brokerChannelExpiredTimeout": "2000", "scanNotActiveBrokerInterval": "50"})
    with connect(daemon.address) as alive, connect(daemon.address) as silent:
        exchange(silent, registration(name="silent", broker_id=1))
        exchange(alive, registration())
        # By the time that the silent one is dropped, this one has been silent for as long but for its heartbeats.
        silent.settimeout(0.1)
        for _ in range(300):
            assert exchange(alive, heartbeat()).code == ResponseCode.SUCCESS
            try:
                assert silent.recv(1) == b""
                break
            except TimeoutError:
                continue
        assert exchange(alive, route_request()).code == ResponseCode.SUCCESS


def test_the_loss_of_one_of_two_name_servers_harms_no_one_who_knows_both(start: Start) -> None:
    first, second = start(), start()
    with connect(first.address) as at_first, connect(second.address) as at_second:
        for stream in (at_first, at_second):
            assert exchange(stream, registration()).code == ResponseCode.SUCCESS
        first.kill()
        assert topic_route(second.address, "orders") is not None
        assert exchange(at_second, heartbeat()).code == ResponseCode.SUCCESS
        first.start()
        assert topic_route(first.address, "orders") is None
        with connect(first.address) as again:
            exchange(again, registration())
            assert topic_route(first.address, "orders") == topic_route(second.address, "orders")


def test_many_requests_in_one_piece_are_answered_in_order(start: Start) -> None:
    daemon = start()
    requests = [route_request(f"topic-{number}") for number in range(500)]
    with connect(daemon.address) as stream:
        stream.sendall(b"".join(request.encode() for request in requests[:-1]))
        last = exchange(stream, requests[-1])
    assert last.opaque == requests[-1].opaque


# --- settings and administrators -------------------------------------------------------------------------------------


def test_what_was_answered_is_there_after_a_crash(start: Start) -> None:
    daemon = start()
    with connect(daemon.address) as stream:
        put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
        assert exchange(stream, RemotingCommand.request(100, put)).code == ResponseCode.SUCCESS
    daemon.kill()
    daemon.start()
    with connect(daemon.address) as stream:
        get = GetKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="orders")
        assert exchange(stream, RemotingCommand.request(101, get)).header(GetKVConfigResponseHeader).value == "a:4"


def test_a_setting_that_cannot_be_written_is_reported(start: Start) -> None:
    daemon = start()
    (daemon.folder / "kv").write_text("a file where the folder should be")
    with connect(daemon.address) as stream:
        put = PutKVConfigRequestHeader(namespace="n", key="k", value="v")
        reply = exchange(stream, RemotingCommand.request(100, put))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "cannot be written" in (reply.remark or "")
        assert exchange(stream, route_request()).code == ResponseCode.TOPIC_NOT_EXIST


def test_with_access_control_only_administrators_register_brokers(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "plain_acl.yml"
    rules.write_text("accounts: [{accessKey: root, secretKey: rootsecret, admin: true}]\n")
    daemon = start({"aclEnable": "true", "aclConfigFile": str(rules), "scanNotActiveBrokerInterval": "50"})
    with connect(daemon.address) as broker:
        assert exchange(broker, registration()).code == ResponseCode.NO_PERMISSION
        wrong = SessionCredentials("root", "wrong")
        assert exchange(broker, signed(registration(), wrong)).code == ResponseCode.NO_PERMISSION
        right = SessionCredentials("root", "rootsecret")
        assert exchange(broker, signed(registration(), right)).code == ResponseCode.SUCCESS
        assert exchange(broker, route_request()).code == ResponseCode.SUCCESS
        rules.write_text("accounts: [{accessKey: root, secretKey: changed-secret, admin: true}]\n")
        wait_until(
            lambda: exchange(broker, signed(heartbeat(), right)).code == ResponseCode.NO_PERMISSION,
            timeout_s=PATIENCE_S,
            what="the changed accounts are read",
        )


# --- hostile peers ----------------------------------------------------------------------------------------------------


def test_garbage_ends_its_own_connection_only(start: Start) -> None:
    daemon = start()
    with connect(daemon.address) as good, connect(daemon.address) as bad:
        bad.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert closed_by_peer(bad)
        assert exchange(good, route_request()).code == ResponseCode.TOPIC_NOT_EXIST


def test_good_requests_in_front_of_garbage_are_answered(start: Start) -> None:
    daemon = start()
    with connect(daemon.address) as stream:
        request = route_request()
        stream.sendall(route_request().encode() + request.encode() + b"\xff" * 8)
        stream.settimeout(PATIENCE_S)
        answers = b""
        while data := stream.recv(65536):
            answers += data
    assert answers.count(b"No topic route info") == 2


def test_a_frame_that_drips_is_cut_off_and_a_silent_client_is_not(start: Start) -> None:
    daemon = start({"frameReadTimeout": "300"})
    with connect(daemon.address) as silent, connect(daemon.address) as dripping:
        frame = route_request().encode()
        dripping.sendall(frame[:10])
        assert closed_by_peer(dripping)
        assert exchange(silent, route_request()).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_silent_client_is_closed_after_its_idle_time(start: Start) -> None:
    daemon = start({"serverChannelMaxIdleTimeSeconds": "1"})
    with connect(daemon.address) as silent:
        assert closed_by_peer(silent)


def test_the_connection_of_a_stranger_that_was_there_longest_makes_room_for_another(start: Start) -> None:
    daemon = start({"maxConnections": "2"})
    with connect(daemon.address) as broker, connect(daemon.address) as first:
        assert exchange(broker, registration()).code == ResponseCode.SUCCESS
        exchange(first, route_request())
        with connect(daemon.address) as second:
            assert closed_by_peer(first)
            for stream in (broker, second):
                assert exchange(stream, route_request()).code == ResponseCode.SUCCESS


def test_the_address_with_most_connections_makes_room(start: Start) -> None:
    daemon = start({"maxConnections": "4"})
    host, _, port = daemon.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        there = []
        for source in ("127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"):
            stream = socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=(source, 0))
            there.append(stack.enter_context(stream))
            exchange(stream, route_request())  # those that come at once are in no order
        elsewhere, first, second, third = there
        with connect(daemon.address) as fourth:
            assert closed_by_peer(first)
            for stream in (elsewhere, second, third, fourth):
                exchange(stream, route_request())


def test_no_more_connections_than_allowed_when_all_are_brokers(start: Start) -> None:
    daemon = start({"maxConnections": "2"})
    with connect(daemon.address) as first, connect(daemon.address) as second:
        for number, stream in enumerate((first, second)):
            assert exchange(stream, registration(name=f"broker-{number}")).code == ResponseCode.SUCCESS
        with connect(daemon.address) as third:
            assert closed_by_peer(third)
        for stream in (first, second):
            exchange(stream, route_request())


def test_a_large_brokers_first_registration_is_taken(start: Start) -> None:
    daemon = start()
    with connect(daemon.address) as broker:
        request = registration(topics=5_000)
        assert len(request.body) > 10 * 64 * 1024
        assert exchange(broker, request).code == ResponseCode.SUCCESS
        assert exchange(broker, route_request("topic-4999")).code == ResponseCode.SUCCESS


def test_strangers_large_frames_share_one_allowance(start: Start) -> None:
    daemon = start()
    streams = [connect(daemon.address) for _ in range(6)]
    try:
        announced = struct.pack(">iI", 16 * MEBIBYTE, 100)
        cut_off = 0
        for stream in streams:
            try:
                stream.sendall(announced + b"x" * (14 * MEBIBYTE))
            except (BrokenPipeError, ConnectionResetError):
                cut_off += 1
        assert cut_off >= 1
        with connect(daemon.address) as client:
            assert exchange(client, route_request()).code == ResponseCode.TOPIC_NOT_EXIST
        assert resident_bytes(daemon.pid) < 400 * MEBIBYTE
    finally:
        for stream in streams:
            stream.close()


def test_a_client_that_does_not_read_is_cut_off(start: Start) -> None:
    daemon = start({"frameReadTimeout": "100"})
    with connect(daemon.address) as broker, connect(daemon.address) as deaf:
        exchange(broker, registration(topics=3_000))
        deaf.settimeout(PATIENCE_S)
        request = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).encode()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 - whichever write notices it
            while True:
                deaf.sendall(request * 1000)
        assert exchange(broker, route_request()).code == ResponseCode.SUCCESS


FRAMES = 1_000  # many more: tests/security
SEED = 904


@pytest.mark.timeout(280)
def test_a_thousand_mutated_frames_do_not_disturb_another_connection(start: Start) -> None:
    daemon = start()
    assert daemon.process is not None
    random_source = random.Random(SEED)
    frames = corpus()
    with connect(daemon.address) as broker, connect(daemon.address) as client:
        exchange(broker, registration(name="steady", broker_id=7))
        before_bytes = resident_bytes(daemon.pid)
        for number in range(FRAMES):
            with connect(daemon.address) as hostile:
                try:
                    hostile.sendall(mutated(random_source.choice(frames), random_source))
                    hostile.shutdown(socket.SHUT_WR)
                    while hostile.recv(65536):
                        continue
                except (BrokenPipeError, ConnectionResetError):
                    pass
                except OSError as error:
                    assert error.errno == 107, f"seed={SEED} frame={number}"  # noqa: PT017 - closed before the shutdown
            if number % 50 == 0:
                assert exchange(client, route_request()).code == ResponseCode.SUCCESS, f"seed={SEED} frame={number}"
        assert resident_bytes(daemon.pid) - before_bytes < 64 * MEBIBYTE
    assert "Traceback" not in daemon.process.log_path.read_text()
