"""One stored message, handled now by one member of a group, which says what became of it. No offset moves."""

from dataclasses import dataclass

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import BrokerRefused, BrokerUnreachable, Conflict, NotFound
from controlplane.common.sentences import say
from controlplane.consumers.selectors import group_path
from controlplane.tenants.rules import actor_require
from controlplane.topics.gateway import message_read
from controlplane.topics.models import Topic
from highwater import (
    Admin,
    BrokerError,
    ConsumeMessageDirectlyResult,
    ConsumerOfflineError,
    ConsumerTooOldError,
    ProtocolError,
    RequestTimeoutError,
)
from mqwire.codes import ResponseCode

REMARK_MAX_CHARACTERS = 4000
# RocketMQ's CMResult.
_RESULTS = frozenset({"CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL"})
_UNKNOWN_RESULT = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Handled:
    """What a member says of a message that it handled.

    `result` is RocketMQ's CMResult, such as CR_SUCCESS or CR_LATER, and UNKNOWN for any other word of the member.
    """

    result: str
    remark: str
    spent_ms: int
    orderly: bool

    @property
    def is_success(self) -> bool:
        """Whether the member would not ask for the message again."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


def message_groups(*, actor: Actor, topic: Topic) -> tuple[str, ...]:
    """Return the groups that consume a topic. Raises NotAllowed, Conflict, BrokerRefused, BrokerUnreachable."""
    actor_require(actor, "message.consume", topic.cluster.tenant)
    with cluster_admin(topic.cluster) as admin:
        return admin.topic_groups(topic.name)


def message_consume(
    *, actor: Actor, topic: Topic, broker_name: str, queue_id: int, queue_offset: int, group: str, client_id: str
) -> Handled:
    """Have a connected member handle the message at a place, and wait for its word: 10 s at most.

    Raises NotAllowed, NotFound for a message, group or member that is not there, Conflict when the cluster isn't running, the
    broker has no master or the member is too old; BrokerUnreachable (code `member_silent`) when it says nothing in time: then
    it may be at it still; BrokerRefused.
    """
    tenant = topic.cluster.tenant
    actor_require(actor, "message.consume", tenant)
    message = message_read(
        actor=actor, topic=topic, broker_name=broker_name, queue_id=queue_id, queue_offset=queue_offset
    )
    outcome = ""
    try:
        with cluster_admin(topic.cluster) as admin:
            if group not in admin.group_list(cluster=topic.cluster.slug):
                raise NotFound(say("The brokers know no consumer group of this name."))
            handled = _ask(admin, group, client_id, message.offset_message_id, topic.name, broker_name)
        outcome = handled.result
    except BrokerUnreachable as error:
        outcome = error.code
        raise
    finally:
        if outcome:  # also what no answer came to may have been handled
            audit_event_record(
                actor=actor,
                action="message.consume",
                resource=group_path(topic.cluster, group),
                tenant_id=tenant.pk,
                details={
                    "topic": topic.name,
                    "offset_message_id": message.offset_message_id,
                    "client_id": client_id,
                    "result": outcome,
                },
            )
    return handled


def _ask(admin: Admin, group: str, client_id: str, message_id: str, topic: str, broker_name: str) -> Handled:
    # The id names the broker that stored it first. The present leader has the message as well, and the members are connected there.
    broker = admin.cluster_info().broker_addr_table.get(broker_name)
    address = None if broker is None else broker.broker_addrs.get(0)
    if address is None:
        raise Conflict(
            say("%(broker_name)s has no master at the moment.", broker_name=broker_name), code="group_without_master"
        )
    try:
        found = admin.consume_message_directly(group, client_id, message_id, topic=topic, address=address)
    except ConsumerOfflineError as error:
        raise NotFound(
            say("No member of this id is connected to %(broker_name)s.", broker_name=broker_name),
            code="member_offline",
            hint=say("Look at the group's members again: ids change when a consumer restarts."),
        ) from error
    except RequestTimeoutError as error:
        raise _silent() from error
    except ProtocolError as error:
        raise BrokerRefused(
            say("What the member answered can't be read: %(error)s", error=str(error)), code="member_unreadable"
        ) from error
    except ConsumerTooOldError as error:
        raise Conflict(
            say("This member's client is too old: it can't be asked."),
            code="member_too_old",
            hint=say("Clients from RocketMQ 3.1.8 on can be."),
        ) from error
    except BrokerError as error:
        if error.response_code == ResponseCode.CONSUME_MSG_TIMEOUT:
            raise _silent() from error
        raise
    return _handled(found)


def _handled(found: ConsumeMessageDirectlyResult) -> Handled:
    # No answer of the API can carry lone surrogates.
    remark = (found.remark or "").strip().encode("utf-8", "replace").decode("utf-8")
    result = found.consume_result if found.consume_result in _RESULTS else _UNKNOWN_RESULT
    return Handled(result, remark[:REMARK_MAX_CHARACTERS], found.spent_ms, found.order)


def _silent() -> BrokerUnreachable:
    return BrokerUnreachable(
        say("The member has not answered within 10 s. It may be handling the message still."),
        code="member_silent",
        hint=say("Look at what its threads do, on the member's page."),
    )
