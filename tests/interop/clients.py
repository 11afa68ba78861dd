"""Stock client programs in other languages, driven from a test.

``JavaClient`` and ``GoClient`` are processes that hold the real rocketmq-client and rocketmq-client-go and take orders
by a line of JSON each (maven/src/.../Driver.java, go/main.go). One process serves many tests and many clusters; every
order names the cluster that it is for.

    client.produce(cluster, "orders", plans, mode="sync")
    with client.consumer(cluster, "orders", group="billing") as consumer:
        messages = consumer.receive(10_000)
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.content import Plan
from tests.interop.go_toolchain import driver_program
from tests.interop.java_toolchain import driver_classes, java_command
from tests.processes import ChildProcess, child_environment

RECEIVE_TIMEOUT_MS = 60_000
NOT_FOUND_CODES = (17, 22, 208)  # TOPIC_NOT_EXIST of a route that is not there yet, QUERY_NOT_FOUND, NO_MESSAGE
# A consumer that got all it waits for lingers this long, to see whether something comes twice.
LINGER_MS = 500


@dataclass(frozen=True)
class Cluster:
    """What a client must know: name servers, and credentials where access control is on."""

    namesrv: str
    access_key: str | None = None
    secret_key: str | None = None

    def with_credentials(self, access_key: str | None, secret_key: str | None) -> Cluster:
        return replace(self, access_key=access_key, secret_key=secret_key)


class ClientError(Exception):
    """An order failed inside the client. ``response_code`` is the broker's or name server's, where there was one."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer.get('exception')}: {answer.get('error')}")
        self.response_code: int | None = answer.get("response_code")
        self.exception: str | None = answer.get("exception")


class DriverProcess:
    """A client program with the line protocol; see the module's docstring."""

    name = "driver"

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        environment = child_environment(ROCKETMQ_GO_LOG_LEVEL="warn", HOME=str(folder))
        self.process = ChildProcess(command, log_path=folder / f"{self.name}.log", env=environment, piped=True)
        self._next_id = 0

    def order(self, operation: str, cluster: Cluster | None = None, **arguments: Any) -> Any:
        """Runs one operation in the client and returns its result; raises ClientError when it failed there."""
        self._next_id += 1
        order: dict[str, Any] = {"id": self._next_id, "op": operation}
        if cluster is not None:
            order["namesrv"] = cluster.namesrv
            if cluster.access_key is not None:
                order |= {"access_key": cluster.access_key, "secret_key": cluster.secret_key}
        order |= {name: value for name, value in arguments.items() if value is not None}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the {self.name} client ended during {operation}:\n{self.process.log_tail()}")
        answer = json.loads(line)
        assert answer["id"] == self._next_id, answer
        if not answer["ok"]:
            raise ClientError(answer)
        return answer.get("result")

    def produce(
        self,
        cluster: Cluster,
        topic: str,
        messages: Sequence[Plan],
        *,
        mode: str = "sync",
        group: str = "interop-producer",
        batch_size: int | None = None,
        **client: Any,
    ) -> list[dict[str, Any]]:
        """Sends ``messages``; mode is sync, async, oneway, batch or ordered.

        Returns one outcome per message (none for oneway): seed, status, queue_id, queue_offset, msg_id, offset_msg_id;
        or for a failed send: seed, status None, exception, error, response_code.
        ``client`` are settings of the producer: retries, timeout_ms, compress_over, poll_ms (Java only).
        """
        outcomes: list[dict[str, Any]] = self.order(
            "produce",
            cluster,
            topic=topic,
            messages=list(messages),
            mode=mode,
            group=group,
            batch_size=batch_size,
            client=client or None,
        )
        return outcomes

    @contextmanager
    def consumer(
        self, cluster: Cluster, topic: str, *, group: str | None = None, **options: Any
    ) -> Iterator[ConsumerHandle]:
        """A push consumer for the length of the block.

        Options: expression, ordered, broadcasting, from (as ``from_where``), instance, threads, max_reconsume_times,
        fail_until_reconsume_times, suspend_ms.
        """
        if "from_where" in options:
            options["from"] = options.pop("from_where")
        name = self.order("consumer_start", cluster, topic=topic, group=group or f"g-{uuid.uuid4().hex}", **options)
        handle = ConsumerHandle(self, name)
        try:
            yield handle
        finally:
            if self.process.running:
                handle.stop()

    def query(self, operation: str, cluster: Cluster, topic: str, **what: str) -> list[dict[str, Any]]:
        """What ``query_key`` (key) or ``view_message`` (msg_id) finds; none where the client says that there is none (Java only).

        The index follows the log by moments: wait for what must come.
        """
        try:
            found = self.order(operation, cluster, topic=topic, **what)
        except ClientError as error:
            if error.response_code in NOT_FOUND_CODES:
                return []
            raise
        return found if isinstance(found, list) else [found]

    def stop(self) -> None:
        if self.process.running:
            self.process.kill()  # nothing to save: consumers that matter were stopped by their with-blocks
        self.process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@dataclass
class ConsumerHandle:
    """A running push consumer inside a client program."""

    client: DriverProcess
    name: str
    stopped: bool = False

    def poll(self, count: int, timeout_ms: int = RECEIVE_TIMEOUT_MS) -> list[dict[str, Any]]:
        """What came since the last poll, once that is at least ``count`` messages or the time is over."""
        found: list[dict[str, Any]] = self.client.order(
            "consumer_poll", consumer=self.name, count=count, timeout_ms=timeout_ms
        )
        return found

    def receive(self, count: int, timeout_ms: int = RECEIVE_TIMEOUT_MS) -> list[dict[str, Any]]:
        """``count`` messages and whatever follows them shortly; fewer when the time is over."""
        return self.poll(count, timeout_ms) + self.poll(1, LINGER_MS)

    def stop(self) -> None:
        """Leaves the group, with the offsets persisted."""
        if not self.stopped:
            self.stopped = True
            self.client.order("consumer_stop", consumer=self.name)


class JavaClient(DriverProcess):
    """rocketmq-client 5.5.0 in a JVM of its own."""

    name = "java"

    def __init__(self, folder: Path) -> None:
        command = java_command(
            "highwater.interop.Driver",
            home=folder / "home",
            classes=driver_classes(),
            flags=(
                f"-Drocketmq.client.logRoot={folder}",
                "-Drocketmq.client.logLevel=WARN",
                # A group's retry topic is found by the next poll of the name server, and queues change hands at the
                # next balancing: 30 s and 20 s by default, which every test of retries would wait for.
                "-Drocketmq.client.rebalance.waitInterval=1000",
            ),
        )
        super().__init__(command, folder)


class GoClient(DriverProcess):
    """rocketmq-client-go v2."""

    name = "go"

    def __init__(self, folder: Path) -> None:
        super().__init__([str(driver_program())], folder)
