"""Verbs about topics, with mqadmin's names and letters."""

from __future__ import annotations

from typing import Annotated

import typer

from highwater._admin_topics import is_system_topic
from highwater._cli_format import time_text
from highwater._cli_session import Session, Switch, verb
from highwater.errors import ConfigurationError

app = typer.Typer()

Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic.")]
Cluster = Annotated[str | None, typer.Option("-c", "--cluster-name", help="Every master of this cluster.")]
Broker = Annotated[str | None, typer.Option("-b", "--broker-addr", help="Only the broker at this address, host:port.")]


@verb(app, "topicList")
def topic_list(
    session: Session,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster-name", help="Only of this cluster.")] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="System, retry and dead-letter topics, too.")] = False,
) -> None:
    """List the topics."""
    with session.admin() as admin:
        topics = admin.topic_list(cluster=cluster)
        info = admin.cluster_info()
    # A broker makes topics of its own and its cluster's name.
    own = {*info.cluster_addr_table, *info.broker_addr_table}
    if not all_topics:
        topics = tuple(topic for topic in topics if topic not in own and not is_system_topic(topic))
    session.table(["topic"], [[topic] for topic in topics])


@verb(app, "topicRoute")
def topic_route(session: Session, topic: Topic) -> None:
    """Show which brokers have the topic, and how many queues."""
    with session.admin() as admin:
        route = admin.topic_route(topic)
    rows = [
        [
            name,
            sum(queue.broker_name == name for queue in route.subscribe_queues),
            sum(queue.broker_name == name for queue in route.publish_queues),
            " ".join(f"{broker_id}={address}" for broker_id, address in sorted(addresses.items())),
        ]
        for name, addresses in sorted(route.brokers.items())
    ]
    session.table(["broker", "read_queues", "write_queues", "addresses"], rows)


@verb(app, "topicClusterList")
def topic_cluster_list(session: Session, topic: Topic) -> None:
    """List the clusters that have the topic."""
    with session.admin() as admin:
        brokers = set(admin.topic_route(topic).brokers)
        table = admin.cluster_info().cluster_addr_table
    session.table(["cluster"], [[cluster] for cluster, names in table.items() if brokers.intersection(names)])


@verb(app, "topicStatus")
def topic_status(session: Session, topic: Topic) -> None:
    """Show each queue's first and next offset, and when it was last written to."""
    with session.admin() as admin:
        stats = admin.topic_stats(topic)
    rows = [
        [
            one.queue.broker_name,
            one.queue.queue_id,
            one.min_offset,
            one.max_offset,
            time_text(one.last_update_timestamp_ms),
        ]
        for one in stats.queues
    ]
    session.table(["broker", "queue", "min_offset", "max_offset", "last_updated"], rows)


@verb(app, "topicLimits")
def topic_limits(session: Session, topic: Topic) -> None:
    """Show how long a topic keeps messages, and its quotas with their use, at each broker."""
    with session.admin() as admin:
        limits = admin.topic_limits(topic)
    rows = [[one.broker_name, one.name, "-" if one.used is None else one.used, one.limit] for one in limits]
    session.table(["broker", "limit", "used", "at_most"], rows)


@verb(app, "updateTopic")
def update_topic(
    session: Session,
    topic: Topic,
    cluster: Cluster = None,
    broker: Broker = None,
    read_queue_nums: Annotated[int, typer.Option("-r", "--read-queue-nums", min=1)] = 8,
    write_queue_nums: Annotated[int, typer.Option("-w", "--write-queue-nums", min=0)] = 8,
    perm: Annotated[int, typer.Option("-p", "--perm", help="2 write, 4 read, 6 both.")] = 6,
    order: Annotated[
        Switch, typer.Option("-o", "--order", help="Keep the queues fixed, for ordered messages.")
    ] = "false",
    attributes: Annotated[
        str, typer.Option("-a", "--attributes", help="RocketMQ's form: +message.type=FIFO,+reserve.time=24,-other.")
    ] = "",
) -> None:
    """Create a topic, or change it."""
    with session.admin() as admin:
        addresses = admin.create_topic(
            topic,
            cluster=cluster,
            address=broker,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            order=order == "true",
            attributes=parse_attributes(attributes),
        )
    session.done(f"topic {topic} is on {', '.join(addresses)}", topic=topic, addresses=addresses)


@verb(app, "deleteTopic")
def delete_topic(
    session: Session,
    topic: Topic,
    cluster: Annotated[str, typer.Option("-c", "--cluster-name", help="From every master of this cluster.")],
) -> None:
    """Delete a topic with its messages."""
    with session.admin() as admin:
        admin.delete_topic(topic, cluster=cluster)
    session.done(f"topic {topic} is gone from {cluster}", topic=topic, cluster=cluster)


def parse_attributes(text: str) -> dict[str, str | None]:
    """`+name=value,-name` as names and values, None for one to remove; raises ConfigurationError."""
    attributes: dict[str, str | None] = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.removeprefix("+").partition("=")
        if part.startswith("-") and len(part) > 1 and not separator:
            attributes[part[1:]] = None
        elif not separator or not name or part.startswith("-"):
            raise ConfigurationError(f"{part!r} is not an attribute: it should read +name=value, or -name to remove it")
        else:
            attributes[name] = value
    return attributes
