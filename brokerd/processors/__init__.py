"""One module per family of request codes: a command in, a reply and effects out.

Each exports HANDLERS. Sends and pulls are not among them: the dispatcher gives those to their processors in bulk.
"""

from __future__ import annotations

from brokerd.processors import (
    acl_admin,
    broker_admin,
    client_manage,
    consume_stats,
    consumer_manage,
    consumer_relay,
    group_admin,
    lock_batch_mq,
    metering_report,
    query_message,
    quorum_admin,
    replica_admin,
    reset_offset,
    send_back,
    topic_admin,
)
from brokerd.processors.context import Handler

HANDLERS: dict[int, Handler] = {}
for _module in (
    acl_admin,
    broker_admin,
    client_manage,
    consume_stats,
    consumer_manage,
    consumer_relay,
    group_admin,
    lock_batch_mq,
    metering_report,
    query_message,
    quorum_admin,
    replica_admin,
    reset_offset,
    send_back,
    topic_admin,
):
    HANDLERS.update(_module.HANDLERS)
