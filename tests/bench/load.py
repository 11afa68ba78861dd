"""A light load generator: sends as fast as a broker answers, over one or a few connections, from one thread.

    python -m tests.bench.load 127.0.0.1:10911 --in-flight 64 --seconds 5
    python -m tests.bench.load 127.0.0.1:10911 --pull --topic load

RocketMQ's own Java producer costs more than a quick broker does, so it can't show where the broker's time goes. This
one encodes its requests once and then only replays them from memory, and looks at nothing but the length and the code
of each response: what remains is the broker.
"""

from __future__ import annotations

import argparse
import json
import select
import struct
import time
from collections import Counter
from dataclasses import dataclass, field

from mqwire.acl import SessionCredentials
from mqwire.codes import RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_offset import GetMaxOffsetRequestHeader
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_send import SendMessageRequestHeader
from mqwire.message import properties_to_string
from tests.remoting import RECEIVE_BYTES, call, connect, create_topic, signed

# How many frames are prepared and then replayed in turn; more than are ever in flight, so each opaque in flight is
# unique.
RING_FRAMES = 4096
_LENGTH = struct.Struct(">I")


@dataclass
class LoadResult:
    """What one run saw. Rates are per second of wall-clock time."""

    seconds: float = 0.0
    responses: int = 0
    messages: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    def summary(self) -> dict[str, object]:
        ordered = sorted(self.latencies_ms)
        return {
            "messages_per_s": round(self.messages_per_s),
            "messages": self.messages,
            "seconds": round(self.seconds, 2),
            "codes": {str(code): count for code, count in sorted(self.codes.items())},
            "latency_p50_ms": round(ordered[len(ordered) // 2], 2) if ordered else None,
            "latency_p99_ms": round(ordered[len(ordered) * 99 // 100], 2) if ordered else None,
        }


def send_frames(
    topic: str,
    *,
    size_bytes: int,
    queues: int,
    count: int,
    serialize_type: SerializeType = SerializeType.ROCKETMQ,
    code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    credentials: SessionCredentials | None = None,
) -> list[bytes]:
    """``count`` encoded sends that go round the queues, each with an opaque and a UNIQ_KEY of its own."""
    body = bytes(index & 0x7F for index in range(size_bytes))
    frames = []
    for index in range(count):
        unique_key = f"7F000001{index:024X}"
        header = SendMessageRequestHeader(
            producer_group="load",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=queues,
            queue_id=index % queues,
            sys_flag=0,
            born_timestamp=1_700_000_000_000 + index,
            flag=0,
            properties=properties_to_string({"UNIQ_KEY": unique_key, "WAIT": "true", "TAGS": "load"}),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        wire_header = header.to_v2() if code == RequestCode.SEND_MESSAGE_V2 else header
        command = RemotingCommand.request(code, wire_header, body=body, serialize_type=serialize_type)
        frames.append(signed(command, credentials).encode())
    return frames


class ResponseCounter:
    """Counts the responses in a stream of bytes by their code, reading length and code only."""

    def __init__(self) -> None:
        self._rest = b""
        self.codes: Counter[int] = Counter()

    def feed(self, data: bytes) -> int:
        """Takes what the socket gave; returns how many responses became complete."""
        data = self._rest + data if self._rest else data
        position, count, end = 0, 0, len(data)
        successes = 0
        while end - position >= 10:
            length = _LENGTH.unpack_from(data, position)[0]
            next_position = position + 4 + length
            if next_position > end:
                break
            if data[position + 4]:  # a binary header begins with the code
                if data[position + 8] or data[position + 9]:
                    self.codes[int.from_bytes(data[position + 8 : position + 10], "big")] += 1
                else:
                    successes += 1
            else:
                header_length = int.from_bytes(data[position + 5 : position + 8], "big")
                header = data[position + 8 : position + 8 + header_length]
                if b'"code":0,' in header:
                    successes += 1
                else:
                    self.codes[int(json.loads(header)["code"])] += 1
            count += 1
            position = next_position
        if successes:
            self.codes[0] += successes
        self._rest = data[position:]
        return count


class _Sender:
    """One connection that keeps ``in_flight`` requests under way by replaying a ring of prepared frames."""

    def __init__(self, address: str, frames: list[bytes], in_flight: int) -> None:
        self.socket = connect(address)
        self.socket.setblocking(False)
        self.in_flight = in_flight
        self.counter = ResponseCounter()
        # Twice the ring, so that any run of frames is one slice.
        self._buffer = memoryview(b"".join(frames + frames))
        self._ends = [0]
        for frame in frames + frames:
            self._ends.append(self._ends[-1] + len(frame))
        self._ring = len(frames)
        self._next_frame = 0
        self._unsent: memoryview = memoryview(b"")
        self._sent_at_s: dict[int, float] = {}
        self._sent = 0
        self.received = 0
        self.latencies_ms: list[float] = []

    @property
    def waiting_to_write(self) -> bool:
        return bool(self._unsent)

    def top_up(self, now_s: float) -> None:
        """Sends new frames for those answered, as one write."""
        if not self._unsent:
            wanted = self.in_flight - (self._sent - self.received)
            if wanted <= 0:
                return
            first = self._next_frame
            self._unsent = self._buffer[self._ends[first] : self._ends[first + wanted]]
            self._next_frame = (first + wanted) % self._ring
            self._sent += wanted
            self._sent_at_s[self._sent] = now_s
        try:
            written = self.socket.send(self._unsent)
        except BlockingIOError:
            return
        self._unsent = self._unsent[written:]

    def receive(self, now_s: float) -> int:
        """Reads what is there; returns how many responses came. Raises ConnectionError when the broker hung up."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        count = self.counter.feed(data)
        self.received += count
        # A latency sample per group of sends: from the write of the group to the response that completes it.
        while self._sent_at_s:
            mark = next(iter(self._sent_at_s))
            if mark > self.received:
                break
            self.latencies_ms.append((now_s - self._sent_at_s.pop(mark)) * 1000)
        return count


def run_sends(
    address: str,
    frames: list[bytes],
    *,
    in_flight: int,
    seconds: float,
    connections: int = 1,
    warm_up_s: float = 0.5,
) -> LoadResult:
    """Replays ``frames`` for ``seconds`` after a warm-up; ``in_flight`` is the sum over all connections."""
    assert in_flight * 2 <= len(frames), "the ring must be longer than what is in flight"
    senders = [_Sender(address, frames, max(1, in_flight // connections)) for _ in range(connections)]
    by_descriptor = {sender.socket.fileno(): sender for sender in senders}
    poller = select.poll()  # select.select() takes no descriptor beyond 1023, of which a long test run has some
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    try:
        started_s = time.perf_counter()
        measured_from_s, measured_received = 0.0, 0
        for sender in senders:
            sender.top_up(started_s)
        while True:
            for descriptor, sender in by_descriptor.items():
                poller.modify(descriptor, select.POLLIN | (select.POLLOUT if sender.waiting_to_write else 0))
            ready = poller.poll(10_000)
            if not ready:
                raise TimeoutError("the broker has not answered for 10 s")
            now_s = time.perf_counter()
            for descriptor, events in ready:
                if events & ~select.POLLOUT:  # to be read, or broken, which reading shows
                    by_descriptor[descriptor].receive(now_s)
            if not measured_from_s and now_s - started_s >= warm_up_s:
                measured_from_s, measured_received = now_s, sum(sender.received for sender in senders)
                for sender in senders:
                    sender.latencies_ms.clear()
            if measured_from_s and now_s - measured_from_s >= seconds:
                break
            for sender in senders:
                sender.top_up(now_s)
        result = LoadResult(seconds=now_s - measured_from_s)
        result.responses = sum(sender.received for sender in senders) - measured_received
        for sender in senders:
            result.codes.update(sender.counter.codes)
            result.latencies_ms += sender.latencies_ms
        failed = sum(count for code, count in result.codes.items() if code != ResponseCode.SUCCESS)
        result.messages = max(0, result.responses - failed)
        return result
    finally:
        for sender in senders:
            sender.socket.close()


def run_pulls(
    address: str,
    topic: str,
    *,
    queues: int,
    seconds: float,
    credentials: SessionCredentials | None = None,
    max_messages: int = 32,
) -> LoadResult:
    """Reads every queue from its beginning, one pull under way per queue, until the backlog or the time is over."""
    result = LoadResult()
    with connect(address) as stream:
        connection = Connection(max_frame_bytes=64 * 1024 * 1024)
        max_offsets = {
            queue: int(
                call(
                    address,
                    RemotingCommand.request(
                        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue)
                    ),
                    credentials,
                ).ext_fields["offset"]
            )
            for queue in range(queues)
        }
        queue_of_opaque: dict[int, tuple[int, int]] = {}

        def pull(queue: int, offset: int) -> None:
            header = PullMessageRequestHeader(
                consumer_group="load",
                topic=topic,
                queue_id=queue,
                queue_offset=offset,
                max_msg_nums=max_messages,
                sys_flag=4,  # PullSysFlag: the subscription travels with the request
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
                expression_type="TAG",
            )
            command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header, serialize_type=SerializeType.ROCKETMQ)
            queue_of_opaque[command.opaque] = (queue, offset)
            stream.sendall(signed(command, credentials).encode())

        started_s = time.perf_counter()
        for queue in range(queues):
            if max_offsets[queue]:
                pull(queue, 0)
        while queue_of_opaque and time.perf_counter() - started_s < seconds:
            connection.receive_data(stream.recv(RECEIVE_BYTES))
            for response in connection.commands():
                queue, offset = queue_of_opaque.pop(response.opaque)
                result.responses += 1
                result.codes[response.code] += 1
                if response.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED):
                    continue
                next_offset = int(response.ext_fields["nextBeginOffset"])
                result.messages += next_offset - offset
                if next_offset < max_offsets[queue]:
                    pull(queue, next_offset)
        result.seconds = time.perf_counter() - started_s
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__.splitlines()[0])
    parser.add_argument("address", help="HOST:PORT of a broker")
    parser.add_argument("--topic", default="load")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=64, help="sends under way, over all connections")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--size", type=int, default=1024, help="body size in bytes")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true", help="JSON headers instead of binary ones")
    parser.add_argument("--v1", action="store_true", help="SEND_MESSAGE (10) instead of SEND_MESSAGE_V2 (310)")
    parser.add_argument("--pull", action="store_true", help="read the topic from its beginning instead")
    parser.add_argument("--no-create", action="store_true", help="the topic is there already")
    parser.add_argument("--access-key")
    parser.add_argument("--secret-key", default="")
    options = parser.parse_args()
    credentials = SessionCredentials(options.access_key, options.secret_key) if options.access_key else None
    if options.pull:
        result = run_pulls(
            options.address,
            options.topic,
            queues=options.queues,
            seconds=options.seconds,
            credentials=credentials,
        )
    else:
        if not options.no_create:
            create_topic(options.address, options.topic, queues=options.queues, credentials=credentials)
        frames = send_frames(
            options.topic,
            size_bytes=options.size,
            queues=options.queues,
            count=max(RING_FRAMES, options.in_flight * 2),
            serialize_type=SerializeType.JSON if options.json else SerializeType.ROCKETMQ,
            code=RequestCode.SEND_MESSAGE if options.v1 else RequestCode.SEND_MESSAGE_V2,
            credentials=credentials,
        )
        result = run_sends(
            options.address,
            frames,
            in_flight=options.in_flight,
            seconds=options.seconds,
            connections=options.connections,
        )
    print(json.dumps(result.summary()))


if __name__ == "__main__":
    main()
