"""The lists of topics and of groups' lag as files for spreadsheets: the console's downloads, and the API's."""

from django.http import HttpResponse

from controlplane.clusters.models import Cluster
from controlplane.common.csv_files import csv_response
from controlplane.insight.live import GroupLag, group_names, groups_live
from controlplane.insight.selectors import lag_of_topics
from controlplane.topics.selectors import topics_named


def topics_csv(cluster: Cluster, search: str) -> HttpResponse:
    """Return the cluster's topics whose names hold `search`, by name; each with the group that has the largest backlog."""
    topics = list(topics_named(cluster, search))
    lags = lag_of_topics(cluster, [topic.name for topic in topics])
    return csv_response(
        f"topics-{cluster.slug}",
        (
            *("topic", "description", "state", "message_type", "perm", "read_queue_nums", "write_queue_nums"),
            *("created_at", "largest_backlog_messages", "largest_backlog_group", "backlog_as_of"),
        ),
        (
            (
                *(topic.name, topic.description, topic.state, topic.message_type, topic.perm),
                *(topic.read_queue_nums, topic.write_queue_nums, topic.created_at),
                *((lag.lag_messages, lag.group, lag.as_of) if (lag := lags.get(topic.name)) else (None, None, None)),
            )
            for topic in topics
        ),
    )


def lag_csv(cluster: Cluster, search: str) -> HttpResponse:
    """Return the lag of each group whose name holds `search`, in each of its topics, as the brokers report it now.

    Raises Conflict, BrokerUnreachable, … where the groups are not known.
    """
    wanted = search.strip().lower()
    groups = groups_live(cluster, [name for name in group_names(cluster) if wanted in name.lower()])
    return csv_response(
        f"lag-{cluster.slug}",
        ("group", "topic", "backlog_messages", "oldest_message_ms", "as_of", "problem"),
        (row for group in groups for row in _rows(group)),
    )


def _rows(group: GroupLag) -> list[tuple[object, ...]]:
    """A line for each topic of the group; one alone where nothing is known."""
    rows: list[tuple[object, ...]] = []
    for topic in group.topics:
        queues = [queue for queue in group.queues or () if queue.topic == topic]
        ages = [queue.lag_ms for queue in queues]
        oldest = None if None in ages else max((age for age in ages if age is not None), default=0)
        rows.append(
            (group.group, topic, sum(queue.lag_messages for queue in queues), oldest, group.as_of, group.message)
        )
    return rows or [(group.group, None, group.lag_messages, group.lag_ms, group.as_of, group.message)]
