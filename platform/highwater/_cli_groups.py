"""Verbs about consumer groups and their offsets, with mqadmin's names and letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from highwater._cli_format import parse_time, time_text
from highwater._cli_session import Session, Switch, verb
from highwater._cli_topics import Broker, Cluster, parse_attributes
from highwater._models import MessageQueue
from highwater._sync_admin import Admin
from highwater.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    PermissionDeniedError,
    ProtocolError,
    RequestTimeoutError,
)
from highwater.printable import visible

app = typer.Typer()

Group = Annotated[str, typer.Option("-g", "--group-name", help="The consumer group.")]


@verb(app, "consumerProgress")
def consumer_progress(
    session: Session,
    group: Annotated[str | None, typer.Option("-g", "--group-name", help="Without it: every group's total.")] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
) -> None:
    """Show how far a group is in each queue, or how far every group lags behind."""
    with session.admin() as admin:
        if group is None:
            _all_groups(session, admin)
            return
        progress = admin.consumer_progress(group, topic=topic)
    rows = [
        [
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            one.lag,
            one.inflight,
            time_text(one.last_timestamp_ms),
        ]
        for one in progress.queues
    ]
    columns = ["topic", "broker", "queue", "broker_offset", "consumer_offset", "diff", "inflight", "last_time"]
    session.table(columns, rows)
    if not session.as_json:
        print(f"\nConsume TPS: {progress.consume_tps:.2f}   Consume Diff Total: {progress.lag}")


def _all_groups(session: Session, admin: Admin) -> None:
    rows: list[list[object]] = []
    for name in admin.group_list():
        connections = admin.consumer_connections(name)
        try:
            progress = admin.consumer_progress(name)
        except BrokerError:
            # A group that never consumed anything: its progress is unknown, not zero.
            rows.append([name, len(connections.connections), None, None])
        else:
            rows.append([name, len(connections.connections), f"{progress.consume_tps:.2f}", progress.lag])
    session.table(["group", "members", "tps", "diff"], rows)


@verb(app, "consumerConnection")
def consumer_connection(session: Session, group: Group) -> None:
    """Show who is connected in a group, and what it subscribes to."""
    with session.admin() as admin:
        found = admin.consumer_connections(group)
    rows = [[one.client_id, one.client_addr, one.language, one.version] for one in found.connections]
    session.table(["client", "address", "language", "version"], rows)
    if not session.as_json:
        for topic, expression in found.subscriptions.items():
            print(visible(f"{topic}: {expression}"))


@verb(app, "consumerStatus")
def consumer_status(
    session: Session,
    group: Group,
    client_id: Annotated[
        str | None, typer.Option("-i", "--client-id", help="One member, queue by queue. Without it: a row for each.")
    ] = None,
    stack: Annotated[bool, typer.Option("-s", "--jstack", help="Also what the member's threads do; with -i.")] = False,
) -> None:
    """Show how the members of a group are doing, by their own word."""
    if stack and client_id is None:
        raise ConfigurationError("-s goes with -i: the stacks of one member are long enough")
    with session.admin() as admin:
        if client_id is None:
            _all_members(session, admin, group)
            return
        info = admin.consumer_running_info(group, client_id, stack=stack)
    columns = ["topic", "broker", "queue", "committed", "fetched", "locked", "last_pull", "last_consume"]
    rows = [
        [
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.commit_offset,
            one.cached_messages,
            one.locked,
            time_text(one.last_pull_timestamp_ms),
            time_text(one.last_consume_timestamp_ms),
        ]
        for one in info.queues
    ]
    if session.as_json:
        session.values(
            {
                "client": info.client_id,
                "properties": dict(info.properties),
                "subscriptions": {one.topic: one.expression for one in info.subscriptions},
                "queues": [dict(zip(columns, row, strict=True)) for row in rows],
                "stack": info.stack,
            }
        )
        return
    session.values(info.properties)
    print()
    for subscription in info.subscriptions:
        print(visible(f"{subscription.topic}: {subscription.expression}"))
    print()
    session.table(columns, rows)
    if stack:
        print(visible(f"\n{info.stack or 'This client does not say what its threads do.'}"))


def _all_members(session: Session, admin: Admin, group: str) -> None:
    rows: list[list[object]] = []
    for member in admin.consumer_connections(group).connections:
        try:
            info = admin.consumer_running_info(group, member.client_id)
        except PermissionDeniedError:
            raise
        except (BrokerError, ConnectionLostError, RequestTimeoutError, ProtocolError) as error:
            # One that hangs is what one looks for: it must not hide the others.
            rows.append([member.client_id, member.language, None, None, None, str(error)])
            continue
        consumed = [one.last_consume_timestamp_ms for one in info.queues if one.last_consume_timestamp_ms is not None]
        rows.append(
            [
                member.client_id,
                member.language,
                len(info.queues),
                info.cached_messages,
                time_text(max(consumed, default=None)),
                None,
            ]
        )
    session.table(["client", "language", "queues", "fetched", "last_consume", "error"], rows)


@verb(app, "producerConnection")
def producer_connection(
    session: Session,
    group: Annotated[str, typer.Option("-g", "--producer-group", help="The producer group.")],
    topic: Annotated[str, typer.Option("-t", "--topic", help="A topic that it sends to.")],
) -> None:
    """Show which producers of a group are connected."""
    with session.admin() as admin:
        found = admin.producer_connections(group, topic)
    rows = [[one.client_id, one.client_addr, one.language, one.version] for one in found]
    session.table(["client", "address", "language", "version"], rows)


@verb(app, "getConsumerConfig")
def get_consumer_config(session: Session, group: Group) -> None:
    """Show a group's configuration on each master."""
    rows: list[list[object]] = []
    with session.admin() as admin:
        for address in admin.cluster_info().master_addresses():
            config = admin.group_configs(address).get(group)
            if config is not None:
                rows.append(
                    [
                        address,
                        config.consume_enable,
                        config.consume_message_orderly,
                        config.consume_broadcast_enable,
                        config.retry_queue_nums,
                        config.retry_max_times,
                    ]
                )
    session.table(["broker", "enabled", "orderly", "broadcast", "retry_queues", "retry_max_times"], rows)


@verb(app, "updateSubGroup")
def update_sub_group(
    session: Session,
    group: Group,
    cluster: Cluster = None,
    broker: Broker = None,
    consume_enable: Annotated[Switch, typer.Option("-s", "--consume-enable")] = "true",
    consume_from_min_enable: Annotated[Switch, typer.Option("-m", "--consume-from-min-enable")] = "true",
    consume_broadcast_enable: Annotated[Switch, typer.Option("-d", "--consume-broadcast-enable")] = "true",
    consume_message_orderly: Annotated[Switch, typer.Option("-o", "--consume-message-orderly")] = "false",
    notify_consumer_ids_changed: Annotated[Switch, typer.Option("-a", "--notify-consumer-ids-changed")] = "true",
    broker_id: Annotated[int, typer.Option("-i", "--broker-id", min=0, help="Where to read from first.")] = 0,
    which_broker_when_consume_slowly: Annotated[
        int, typer.Option("-w", "--which-broker-when-consume-slowly", min=0)
    ] = 1,
    retry_queue_nums: Annotated[int, typer.Option("-q", "--retry-queue-nums", min=0)] = 1,
    retry_max_times: Annotated[int, typer.Option("-r", "--retry-max-times", min=-1)] = 16,
    attributes: Annotated[str, typer.Option("--attributes", help="+name=value,+name=value")] = "",
) -> None:
    """Create a consumer group, or change it."""
    with session.admin() as admin:
        addresses = admin.create_group(
            group,
            cluster=cluster,
            address=broker,
            consume_enable=consume_enable == "true",
            consume_from_min_enable=consume_from_min_enable == "true",
            consume_broadcast_enable=consume_broadcast_enable == "true",
            consume_message_orderly=consume_message_orderly == "true",
            retry_queue_nums=retry_queue_nums,
            retry_max_times=retry_max_times,
            broker_id=broker_id,
            which_broker_when_consume_slowly=which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=notify_consumer_ids_changed == "true",
            attributes=parse_attributes(attributes),
        )
    session.done(f"group {group} is on {', '.join(addresses)}", group=group, addresses=addresses)


@verb(app, "deleteSubGroup")
def delete_sub_group(
    session: Session,
    group: Group,
    cluster: Annotated[str, typer.Option("-c", "--cluster-name", help="From every master of this cluster.")],
    remove_offset: Annotated[
        Switch, typer.Option("-r", "--remove-offset", help="Also its offsets, its retry and its dead-letter topic.")
    ] = "false",
) -> None:
    """Delete a consumer group."""
    with session.admin() as admin:
        admin.delete_group(group, cluster=cluster, clean_offset=remove_offset == "true")
    session.done(f"group {group} is gone from {cluster}", group=group, cluster=cluster)


@verb(app, "resetOffsetByTime")
def reset_offset_by_time(
    session: Session,
    group: Group,
    topic: Annotated[str, typer.Option("-t", "--topic", help="The topic.")],
    timestamp: Annotated[
        str | None,
        typer.Option("-s", "--timestamp", help="now, -1 (the end), milliseconds, or a time like 2026-01-31T23:59:59."),
    ] = None,
    force: Annotated[Switch, typer.Option("-f", "--force", help="Also forward, not only back.")] = "true",
    broker: Annotated[str | None, typer.Option("-b", "--broker-name", help="Only one queue: its broker group.")] = None,
    queue_id: Annotated[int | None, typer.Option("-q", "--queue", min=0, help="Only one queue: its number.")] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0, help="Its offset, instead of a time.")] = None,
) -> None:
    """Set a group to a time in every queue of a topic, or one queue to an offset, be its members connected or not."""
    offsets: Mapping[MessageQueue, int]
    with session.admin() as admin:
        if broker is not None and queue_id is not None and offset is not None and timestamp is None:
            queue = MessageQueue(topic, broker, queue_id)
            admin.reset_offset(group, queue, offset)
            offsets = {queue: offset}
        elif timestamp is not None and broker is None and queue_id is None and offset is None:
            offsets = admin.reset_offset_by_time(group, topic, parse_time(timestamp), force=force == "true")
        else:
            raise ConfigurationError("give a time (-s), or one queue and its offset (-b, -q and -o)")
    rows = [[queue.broker_name, queue.queue_id, offset] for queue, offset in offsets.items()]
    session.table(["broker", "queue", "offset"], rows)
