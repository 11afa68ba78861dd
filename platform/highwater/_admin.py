"""AsyncAdmin: administration of clusters, as RocketMQ's mqadmin does it."""

from __future__ import annotations

from highwater._admin_brokers import BrokerAdmin
from highwater._admin_members import MemberAdmin
from highwater._admin_messages import MessageAdmin
from highwater._admin_replica import ReplicaAdmin


class AsyncAdmin(MemberAdmin, BrokerAdmin, MessageAdmin, ReplicaAdmin):
    """Administration of the clusters that the name servers know; see each method.

    Changes go to every master of a cluster (or to every name server) and are safe to repeat: after a failure some may
    have been changed and others not.
    """
