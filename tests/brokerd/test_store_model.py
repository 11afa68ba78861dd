"""The store against a model: lists of messages. Any order of appends, flushes, restarts, kills and power cuts."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokerd.store import GetMessageStatus, MessageStore
from mqwire.codes import MessageSysFlag
from mqwire.message import decode_records
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import CLIENT, CLIENT_V6, FILE_BYTES, ManualClock, bodies, message, new_store, read_all

TOPICS = ("a", "b", "t" * 200)

one_message = st.builds(
    message,
    body=st.one_of(st.binary(max_size=30), st.integers(0, 1500).map(bytes)),
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 2),
    tag=st.sampled_from(["", "red", "größe"]),
    properties=st.sampled_from([b"", b"KEYS\x01k 1\x02", "größe\x01groß\x02".encode()]),
    born_host=st.sampled_from([CLIENT, CLIENT_V6]),
    sys_flag=st.sampled_from(
        [0, 0, 0, MessageSysFlag.TRANSACTION_PREPARED_TYPE, MessageSysFlag.TRANSACTION_COMMIT_TYPE]
    ),
)
Key = tuple[str, int]


class StoreModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.disk = MemoryDisk()
        self.clock = ManualClock()
        self.log: list[tuple[Key | None, bytes, int]] = []  # queue (None: in none), body, end in the log
        self.durable = 0  # messages
        self.deleted: dict[Key, int] = {}  # how many of a queue's messages are of deleted topics
        self._open()

    def _open(self) -> None:
        self.store: MessageStore = new_store(self.disk, self.clock, unwritten_entries_max=20)
        report = self.store.open()
        assert not report.damage, report
        assert report.end_offset >= (self.log[self.durable - 1][2] if self.durable else 0)

    def _expected(self) -> dict[Key, list[bytes]]:
        queues: dict[Key, list[bytes]] = defaultdict(list)
        for key, body, _ in self.log:
            if key is not None:
                queues[key].append(body)
        return {key: found for key, found in queues.items() if found}

    @rule(batch=st.lists(one_message, min_size=1, max_size=6), later_ms=st.integers(0, 5000))
    def append(self, batch: list, later_ms: int) -> None:  # type: ignore[type-arg]  # of MessageToStore
        self.clock.time_ms += later_ms
        expected = self._expected()
        for each, result in zip(batch, self.store.append(batch), strict=True):
            key = (each.topic, each.queue_id)
            consumable = not each.sys_flag & MessageSysFlag.TRANSACTION_PREPARED_TYPE
            end = result.physical_offset + result.size_bytes
            assert result.physical_offset // FILE_BYTES == (end - 1) // FILE_BYTES
            if consumable:
                queue = expected.setdefault(key, [])
                assert result.queue_offset == len(queue)
                queue.append(each.body)
            self.log.append((key if consumable else None, bytes(each.body), end))

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.end_offset
        self.durable = len(self.log)

    @rule()
    def flush_consume_queues(self) -> None:
        self.store.flush_consume_queues()
        self.durable = len(self.log)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        expected = self._expected()
        if any(key[0] == topic for key in expected):
            self.durable = len(self.log)
        for key, found in expected.items():
            if key[0] == topic:
                self.deleted[key] = len(found)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.store.close(clean=clean)
        if clean:
            self.durable = len(self.log)
        self._open()

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.after_kill()
        self._open()

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        self.disk = self.disk.after_power_cut(seed)
        self._open()
        kept = sum(end <= self.store.end_offset for _, _, end in self.log)
        assert kept >= self.durable
        del self.log[kept:]
        self.durable = kept

    @rule(what=st.sampled_from(["consumequeue", "checkpoint"]))
    def lose_what_can_be_rebuilt(self, what: str) -> None:
        self.store.close(clean=False)
        if what == "consumequeue":
            self.disk.remove_tree("/store/consumequeue")
        else:
            self.disk.names.pop("/store/checkpoint")
        self._open()

    @rule(data=st.data())
    def pull_somewhere(self, data: st.DataObject) -> None:
        expected = self._expected()
        if not expected:
            return
        key = data.draw(st.sampled_from(sorted(expected)))
        found = expected[key]
        offset = data.draw(st.integers(-1, len(found) + 1))
        result = self.store.get_messages(*key, offset, data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4000)))
        first = self.deleted.get(key, 0)
        if first <= offset < len(found):
            assert result.status is GetMessageStatus.FOUND
            messages = decode_records(b"".join(result.chunks))
            assert [each.body for each in messages] == found[offset : offset + result.count]
            assert result.next_begin_offset == offset + result.count
        else:
            assert not result.chunks

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def everything_is_there(self) -> None:
        expected = {key: found[self.deleted.get(key, 0) :] for key, found in self._expected().items()}
        found = {key: [each.body for each in messages] for key, messages in read_all(self.store).items()}
        assert {key: value for key, value in found.items() if value} == {
            key: value for key, value in expected.items() if value
        }
        assert len(bodies(self.store)) == sum(map(len, expected.values()))


StoreModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreAgainstTheModel = StoreModel.TestCase
