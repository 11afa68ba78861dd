"""Verbs about messages, with mqadmin's names and letters."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from typing import Annotated

import typer

from highwater._admin_messages import MAX_TIMESTAMP_MS
from highwater._admin_models import QueryResult
from highwater._admin_topics import is_system_topic
from highwater._cli_format import body_text, parse_time, time_text
from highwater._cli_output import UNKNOWN
from highwater._cli_session import Session, verb
from highwater._models import Message, MessageQueue, ReceivedMessage
from highwater._sync_admin import Admin
from highwater.errors import ConfigurationError, NoRouteError, NotFoundError
from highwater.message_trace import trace_message
from highwater.printable import printable_json, visible
from highwater.trace_story import TraceStory
from mqwire.names import RMQ_SYS_TRACE_TOPIC

app = typer.Typer()

Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic.")]
SEND_GROUP = "HIGHWATER_CLI"
_TAIL_EVERY_S = 1.0


def _facts(message: ReceivedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "broker": message.queue.broker_name or None,
        "queue": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "born": time_text(message.born_timestamp_ms),
        "born_host": ":".join(map(str, message.born_host)),
        "stored": time_text(message.store_timestamp_ms),
        "store_host": ":".join(map(str, message.store_host)),
        "reconsume_times": message.reconsume_times,
        "size_bytes": message.size_bytes,
        "properties": dict(message.properties),
        "body": body_text(message.body),
    }


@verb(app, "queryMsgById")
def query_msg_by_id(
    session: Session,
    message_id: Annotated[str, typer.Option("-i", "--msg-id", help="The broker's id (offsetMsgId).")],
    topic: Annotated[str | None, typer.Option("-t", "--topic")] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group-name", help="Have a member of this group handle it now; together with -d."),
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("-d", "--client-id", help="The member, as consumerConnection shows it.")
    ] = None,
) -> None:
    """Show the message that an offsetMsgId names, or hand it to one member of a group."""
    if (group is None) != (client_id is None):
        raise ConfigurationError("-g and -d go together: they name the member that handles the message")
    with session.admin() as admin:
        if group is not None and client_id is not None:
            result = admin.consume_message_directly(group, client_id, message_id, topic=topic)
            session.values(
                {
                    "result": result.consume_result,
                    "remark": result.remark,
                    "orderly": result.order,
                    "spent_ms": result.spent_ms,
                }
            )
            return
        session.values(_facts(admin.message_by_id(message_id, topic)))


@verb(app, "queryMsgByUniqueKey")
def query_msg_by_unique_key(
    session: Session,
    topic: Topic,
    message_id: Annotated[str, typer.Option("-i", "--msg-id", help="The client's id (UNIQ_KEY).")],
) -> None:
    """Show the message that a client's id names."""
    with session.admin() as admin:
        result = admin.query_messages(topic, message_id, unique=True)
    if not result.messages:
        raise _not_found(f"no broker's index of topic {topic} has the id {message_id}", result)
    session.values(_facts(result.messages[0]))


def _not_found(what: str, result: QueryResult) -> NotFoundError:
    reasons = "".join(f"; {broker_name}: {remark}" for broker_name, remark in result.remarks.items())
    return NotFoundError(0, what + reasons, "the cluster")


@verb(app, "queryMsgByKey")
def query_msg_by_key(
    session: Session,
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--msg-key", help="One of the message's keys.")],
    limit: Annotated[int, typer.Option("-m", "--max-num", min=1, help="At most 64 of each broker.")] = 64,
    begin: Annotated[str | None, typer.Option("-b", "--begin-timestamp", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("-e", "--end-timestamp", help="Stored at this time or earlier.")] = None,
) -> None:
    """List the messages with a key, newest first."""
    begin_ms = 0 if begin is None else parse_time(begin)
    end_ms = MAX_TIMESTAMP_MS if end is None else parse_time(end)
    with session.admin() as admin:
        result = admin.query_messages(topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
    if not result.messages:
        raise _not_found(f"no message of topic {topic} has the key {key} in that time", result)
    _rows(session, list(result.messages))


@verb(app, "whereIsMyMessage")
def where_is_my_message(
    session: Session,
    text: Annotated[str, typer.Option("-i", "--msg-id", help="A key, the client's id or the broker's id.")],
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Look in this topic only.")] = None,
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", help="Where clients write their trace records.")
    ] = RMQ_SYS_TRACE_TOPIC,
) -> None:
    """Find a message by any id or key: where it is stored, where it stands for each consumer group, and its trace records."""
    with session.admin() as admin:
        topics = [name for name in admin.topic_list() if not is_system_topic(name)]
        found = trace_message(admin, text, topic=topic, topics=topics)
        traces = None if found.message is None else _traces(admin, found.message, trace_topic)
    if found.message is None:
        lines = [f"{reason.sentence} {reason.attempt}" for reason in found.reasons]
        raise NotFoundError(0, "\n  ".join(["no message was found", *lines]), "")
    facts = {**_facts(found.message), "original_deleted": found.original_is_gone}
    if found.delayed_until_ms is not None:
        facts["delivered_from"] = time_text(found.delayed_until_ms)
    if found.is_half:
        facts["transaction"] = "prepared: neither committed nor rolled back"
    rows = [
        [one.group, one.standing.value, one.before, one.tries, time_text(one.next_ms), one.sentence]
        for one in found.groups
    ]
    columns = ["group", "standing", "before", "tries", "next", "sentence"]
    if session.as_json:
        facts["groups"] = [dict(zip(columns, row, strict=True)) for row in rows]
        facts["traces"] = None if traces is None else asdict(traces)
        session.values(facts)
        return
    session.values(facts)
    session.table(columns, rows)
    if traces:
        session.table(
            ["trace", "at", "client", "group", "took_ms", "result"],
            [
                *(
                    [
                        "sent" if one.is_from_sender else "sent (another program says)",
                        time_text(one.at_ms),
                        one.address,
                        one.group,
                        one.cost_ms,
                        _sent(one.is_success),
                    ]
                    for one in traces.sends
                ),
                *(
                    ["delivered", time_text(one.began_ms), one.address, one.group, one.cost_ms, one.result or "no end"]
                    for one in traces.deliveries
                ),
            ],
        )


def _sent(is_success: bool) -> str:
    return "success" if is_success else "failed"


def _traces(admin: Admin, message: ReceivedMessage, trace_topic: str) -> TraceStory | None:
    """None where the trace topic is not there."""
    if not message.message_id:
        return TraceStory()
    try:
        return admin.message_traces(message.message_id, trace_topic=trace_topic, sender=message.born_host[0])
    except NoRouteError:
        return None


@verb(app, "queryMsgByOffset")
def query_msg_by_offset(
    session: Session,
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--broker-name")],
    queue_id: Annotated[int, typer.Option("-i", "--queue-id", min=0)],
    offset: Annotated[int, typer.Option("-o", "--offset", min=0)],
) -> None:
    """Show the message at an offset of a queue."""
    queue = MessageQueue(topic, broker, queue_id)
    with session.admin() as admin:
        message = next(iter(admin.pull(queue, offset, 1)), None)
    if message is None or message.queue_offset != offset:
        raise NotFoundError(0, f"{queue} has no message at offset {offset}", broker)
    session.values(_facts(message))


@verb(app, "sendMessage")
def send_message(
    session: Session,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="The message's body, as text.")],
    keys: Annotated[str, typer.Option("-k", "--key", help="Keys, separated by blanks.")] = "",
    tags: Annotated[str | None, typer.Option("-c", "--tags")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker-name", help="Together with -i.")] = None,
    queue_id: Annotated[int | None, typer.Option("-i", "--queue-id", min=0, help="Together with -b.")] = None,
) -> None:
    """Send one message."""
    if (broker is None) != (queue_id is None):
        raise ConfigurationError("-b and -i go together: they name one queue")
    queue = None if broker is None or queue_id is None else MessageQueue(topic, broker, queue_id)
    with session.producer(SEND_GROUP) as producer:
        result = producer.send(Message(topic, body.encode(), tags=tags, keys=keys.split()), queue=queue)
    session.values(
        {
            "status": result.status.value,
            "message_id": result.message_id,
            "offset_message_id": result.offset_message_id,
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "queue_offset": result.queue_offset,
        }
    )


@verb(app, "consumeMessage")
def consume_message(
    session: Session,
    topic: Topic,
    broker: Annotated[str | None, typer.Option("-b", "--broker-name", help="Only of this broker.")] = None,
    queue_id: Annotated[int | None, typer.Option("-i", "--queue-id", min=0, help="Only of this queue.")] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0, help="Begin at this offset.")] = None,
    begin: Annotated[str | None, typer.Option("-s", "--begin-timestamp", help="Begin at this time.")] = None,
    end: Annotated[str | None, typer.Option("-e", "--end-timestamp", help="Stop at this time.")] = None,
    count: Annotated[int, typer.Option("-c", "--message-number", min=1, help="At most so many of each queue.")] = 128,
) -> None:
    """List messages without consuming them: no group's progress changes."""
    end_ms = None if end is None else parse_time(end)
    messages: list[ReceivedMessage] = []
    with session.admin() as admin:
        queues = [
            queue
            for queue in admin.topic_route(topic).subscribe_queues
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        for queue in queues:
            start = offset if offset is not None else admin.min_offset(queue)
            if begin is not None:
                start = max(start, admin.search_offset(queue, parse_time(begin)))
            messages += _read(admin, queue, start, count, end_ms)
    _rows(session, messages)


@verb(app, "tailMessages")
def tail_messages(
    session: Session,
    topic: Topic,
    tag: Annotated[str | None, typer.Option("-c", "--tags", help="Only of this tag.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--msg-key", help="Only with this key.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only with this in their body.")] = None,
    seconds: Annotated[
        int | None, typer.Option("--seconds", min=1, help="End after so long. Else with Ctrl-C.")
    ] = None,
) -> None:
    """Print messages as they are stored, without consuming them: no group's progress changes. With --json one a line."""
    end = float("inf") if seconds is None else time.monotonic() + seconds
    with session.admin() as admin, contextlib.suppress(KeyboardInterrupt):
        places = {queue: admin.max_offset(queue) for queue in admin.topic_route(topic).subscribe_queues}
        while time.monotonic() < end:
            for message in _since(admin, places):
                if (
                    tag in (None, message.tags)
                    and (key is None or key in message.keys)
                    and (text is None or text.casefold() in message.body.decode("utf-8", "replace").casefold())
                ):
                    print(_line(session, message), flush=True)
            time.sleep(min(_TAIL_EVERY_S, max(0.0, end - time.monotonic())))


def _since(admin: Admin, places: dict[MessageQueue, int]) -> list[ReceivedMessage]:
    """What was stored in the queues from their places on, oldest first, one answer of each; the places move on."""
    found: list[ReceivedMessage] = []
    for queue, start in places.items():
        batch = [message for message in admin.pull(queue, start, 32) if message.queue_offset >= start]
        if batch:
            places[queue] = batch[-1].queue_offset + 1
            found += batch
    return sorted(found, key=lambda message: (message.store_timestamp_ms, message.queue_offset))


def _line(session: Session, message: ReceivedMessage) -> str:
    if session.as_json:
        return printable_json(_facts(message))
    place = f"{message.queue.broker_name}/{message.queue.queue_id}/{message.queue_offset}"
    words = [
        time_text(message.store_timestamp_ms),
        place,
        message.tags,
        " ".join(message.keys),
        body_text(message.body, 200),
    ]
    return visible("  ".join(word or UNKNOWN for word in words))


def _read(admin: Admin, queue: MessageQueue, start: int, count: int, end_ms: int | None) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        batch = admin.pull(queue, start, min(32, count - len(found)))
        batch = [message for message in batch if message.queue_offset >= start]
        if not batch:
            break
        found += [message for message in batch if end_ms is None or message.store_timestamp_ms < end_ms]
        if end_ms is not None and batch[-1].store_timestamp_ms >= end_ms:
            break
        start = batch[-1].queue_offset + 1
    return found


def _rows(session: Session, messages: list[ReceivedMessage]) -> None:
    rows = [
        [
            message.queue.broker_name or None,
            message.queue.queue_id,
            message.queue_offset,
            message.message_id,
            message.tags,
            " ".join(message.keys) or None,
            time_text(message.store_timestamp_ms),
            body_text(message.body, 64 if not session.as_json else 1 << 20),
        ]
        for message in messages
    ]
    session.table(["broker", "queue", "offset", "message_id", "tags", "keys", "stored", "body"], rows)
