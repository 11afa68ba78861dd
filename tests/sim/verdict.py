"""The judgement at the end of a run, when everything is healed and in sync."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from brokerd.consumer_offset import ConsumerOffsetManager
from brokerd.store import MessageStore
from mqwire.message import StoredMessage
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.history import Attempt, Copy, History, Violation
from tests.sim.made_groups import judge_made_groups
from tests.sim.made_topics import judge_made_topics
from tests.sim.store_harness import read_all
from tests.sim.wire import QUEUES, READ_GROUP, TOPICS, properties_of, queue_of, topic_of

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from tests.sim.world import World


def judge(world: World) -> None:
    """Raises Violation: a message that is lost, doubled, moved, or that should not exist."""
    contents = []
    for machine in world.machines:
        assert machine.process is not None, "groups in sync run"
        contents.append(_content(machine.process.store))
    kept_from = max(machine.process.store.min_physical_offset for machine in world.machines if machine.process)
    contents = [
        {where: message for where, message in content.items() if message.physical_offset >= kept_from}
        for content in contents
    ]
    first = contents[0]
    for machine, content in zip(world.machines[1:], contents[1:], strict=True):
        if content != first:
            raise Violation(
                f"{world.machines[0].name} and {machine.name} hold different logs: {_difference(first, content)}"
            )
    messages = {where: message for where, message in first.items() if where[0] in TOPICS}
    waiting = {where: message for where, message in first.items() if where[0] == RMQ_SYS_SCHEDULE_TOPIC}
    _judge_messages(world.history, messages, waiting)
    _judge_properties(world.history, messages | waiting)
    _judge_readers(world.history, messages)
    judge_made_topics(world.history, first, world.loop.now_s)
    _judge_tables(world, messages)


Content = dict[tuple[str, int, int], StoredMessage]


def _content(store: MessageStore) -> Content:
    return {
        (topic, queue_id, message.queue_offset): message
        for (topic, queue_id), messages in read_all(store).items()
        for message in messages
    }


def _difference(one: Content, other: Content) -> str:
    return str(sorted(where for where in one.keys() | other.keys() if one.get(where) != other.get(where))[:5])


Places = dict[bytes, list[tuple[int, int, int]]]


def _places(messages: Content) -> Places:
    """Body -> where it is: queue, queue offset, physical offset."""
    places: Places = defaultdict(list)
    for (_, queue_id, queue_offset), message in messages.items():
        places[message.body].append((queue_id, queue_offset, message.physical_offset))
    return places


def _judge_messages(history: History, messages: Content, waiting: Content) -> None:
    """`waiting` are those with a delay level, where they wait or waited."""
    places, waiting_places = _places(messages), _places(waiting)
    unknown = [body for body in (*places, *waiting_places) if body not in history.by_body]
    if unknown:
        raise Violation(f"{len(unknown)} messages that no one sent")
    for attempt in history.attempts:
        if attempt.topic:
            continue
        delivered = places.get(attempt.body, [])
        found = waiting_places.get(attempt.body, []) if attempt.delayed else delivered
        if len(found) > attempt.asks:
            raise Violation(f"message {attempt.number} ({attempt.code}) is there {len(found)} times: {found}")
        if found and attempt.code == "SERVICE_NOT_AVAILABLE" and attempt.asks == 1:
            raise Violation(f"message {attempt.number} was refused, and is there at {found}")
        if attempt.delayed and not delivered:
            _judge_undelivered(history, attempt, waits=bool(found))
        if attempt.code == "SEND_OK":
            _judge_acknowledged(history, attempt, found)


def _judge_undelivered(history: History, attempt: Attempt, *, waits: bool) -> None:
    """It may have been delivered, and be gone since: who still has it waiting delivers again what a loss took."""
    if not waits and (attempt.code != "SEND_OK" or history.may_be_lost(attempt.promised)):
        return
    for copy in attempt.deliveries:
        if copy.end_offset <= history.expired_below or (not waits and history.may_be_lost(copy)):
            return
    raise Violation(
        f"message {attempt.number} waited for its delivery, and is not there: it was delivered at {attempt.deliveries}"
    )


def _judge_acknowledged(history: History, attempt: Attempt, found: list[tuple[int, int, int]]) -> None:
    copy = attempt.promised
    if (copy.queue_offset, copy.physical_offset) in {place[1:] for place in found}:
        return
    if found and attempt.asks == 1:
        raise Violation(f"message {attempt.number} was acknowledged at {copy}, and is at {found[0]}")
    if not history.may_be_gone(copy):
        raise Violation(f"message {attempt.number} is lost: acknowledged by {_of(copy)}")
    history.counts["lost, as reported"] += 1


def _judge_properties(history: History, messages: Content) -> None:
    for where, message in messages.items():
        attempt = history.by_body[message.body]
        wanted = properties_of(attempt.body).items()
        if not wanted <= message.properties.items():
            raise Violation(
                f"message {attempt.number} was sent with {dict(wanted)}, and has {message.properties} at {where}"
            )


def _judge_readers(history: History, messages: Content) -> None:
    for seen in history.seen.values():
        attempt, copy = history.attempts[seen.attempt], seen.copy
        queue = attempt.queue
        there = messages.get((topic_of(queue), queue % QUEUES, copy.queue_offset))
        if there is not None and there.body == attempt.body:
            continue
        if history.may_be_gone(copy):
            history.counts["read and lost, as reported"] += 1
        else:
            raise Violation(f"a reader saw message {seen.attempt} at {_of(copy)}, and now it is not there")


def _judge_tables(world: World, messages: Content) -> None:
    """What was answered of offsets, topics and groups is so, unless it may be lost; a consumer has seen all before its offset."""
    history = world.history
    history.count_changes()
    tables = {machine.name: _tables(machine.process.broker) for machine in world.machines if machine.process}
    first, *others = tables
    for other in others:
        for what, table in tables[first].items():
            if tables[other][what] != table:
                raise Violation(f"{first} and {other} have different tables of {what}: {table}, {tables[other][what]}")
    for machine in world.machines:
        process = machine.process
        assert process is not None, "groups in sync run"
        broker = process.broker
        for queue in history.offsets.queues():
            now = broker.consumer_offsets.query(topic_of(queue), READ_GROUP, queue % QUEUES)
            history.check_offset(machine.name, queue, now)
        for name, topic in history.made_topics.items():
            if topic.exists is None or topic.copy is None or history.may_be_lost(topic.copy):
                continue
            config = broker.topic_configs.select(name)
            if (config is not None) is not topic.exists:
                done = "made" if topic.exists else "deleted"
                raise Violation(f"topic {name} was {done}, and is not so on {machine.name}")
            if config is not None and topic.queues not in (None, config.read_queue_nums):
                raise Violation(
                    f"topic {name} was given {topic.queues} queues to read, and has {config.read_queue_nums} on {machine.name}"
                )
        judge_made_groups(history, machine.name, broker)
        if process.replica.leads:
            judge_consumed(history, broker.consumer_offsets, messages)


def _tables(broker: Broker) -> dict[str, Mapping[str, Any]]:
    """What the log says, and every replica at its end. Hints are none of it, nor what a leader has not written."""
    offsets, resets, reset_counts = broker.consumer_offsets.base()
    return {
        "topics": broker.topic_configs.table,
        "groups": broker.subscription_groups.to_wrapper().subscription_group_table,
        "offsets": offsets,
        "resets": resets,
        "counts of resets": reset_counts,
        "expired messages": broker.kept_messages.base(),
    }


def judge_consumed(history: History, offsets: ConsumerOffsetManager, messages: Content) -> None:
    """After a loss a message may have the offset of another one that was read, and is lost. A leader whose retention deleted what
    the present one still has sent the consumer on.
    """
    for (topic, queue_id, offset), message in messages.items():
        attempt = history.by_body[message.body]
        resumes_at = offsets.query(topic, READ_GROUP, queue_id)
        if attempt.code != "SEND_OK" or offset >= resumes_at or message.body in history.consumed:
            continue
        if history.offsets.may_be_skipped(queue_of(topic, queue_id), offset):
            history.counts["messages that a reset passed over"] += 1
            continue
        if message.physical_offset + message.size_bytes <= history.expired_below:
            history.counts["messages in front of a consumer that had expired where it read"] += 1
            continue
        raise Violation(
            f"the consumer resumes at {resumes_at} of queue {queue_id} of {topic}, and has never seen message"
            f" {attempt.number} at {offset}"
        )


def _of(copy: Copy) -> str:
    return f"{copy.node} in epoch {copy.epoch} at {copy.physical_offset}"
