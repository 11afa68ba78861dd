"""Verbs about the replicas of a broker group: status, promotion, demotion, messages that were cut."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Annotated, Any

import msgspec
import typer

from highwater._admin_replica import GroupMember, PromotionPlan, plan_promotion
from highwater._cli_format import time_text
from highwater._cli_output import EXIT_REFUSED
from highwater._cli_quorum import Addresses, show_quorum
from highwater._cli_session import Session, verb
from highwater._models import ReceivedMessage
from highwater._sync_admin import Admin
from highwater._sync_producer import Producer
from highwater.diverged import Fate, compare, is_internal, message_again
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError
from highwater.promotion_by_hand import (
    AskStatus,
    Follow,
    HoldSends,
    Promise,
    Promote,
    Promoted,
    Request,
    Wait,
    promotion_by_hand,
)
from mqwire.bodies import ReplicaStatus

app = typer.Typer()

GroupName = Annotated[str, typer.Option("-b", "--broker-name", help="The broker group's name.")]
BrokerId = Annotated[
    int, typer.Option("--broker-id", help="The replica: its configured brokerId, whatever its role is.")
]
RESEND_GROUP = "HIGHWATER_CLI"


@verb(app, "haStatus")
def ha_status(
    session: Session,
    group: GroupName,
    broker_id: Annotated[int | None, typer.Option("--broker-id", help="Only this replica, in full.")] = None,
    address: Addresses = None,
) -> None:
    """Show a group's replicas: who leads, in which epoch, and how far each log goes."""
    with session.admin() as admin:
        members = admin.group_status(group, address or ())
    if broker_id is not None:
        session.values(msgspec.to_builtins(_member(members, group, broker_id)))
        return
    if any(member.status is not None and member.status.quorum is not None for member in members):
        show_quorum(session, members)
        return
    master = _master(members)
    rows: list[list[object]] = []
    for member in members:
        status = member.status
        if status is None:
            rows.append([None, member.address, "unreachable", *[None] * 7, member.error])
            continue
        follower = None
        if master is not None:
            follower = next((one for one in master.followers if one.replica_id == status.replica_id), None)
        in_sync = status is master or (follower.in_sync if follower is not None else None)
        gap = (0, 0) if status is master else (None, None) if follower is None else _gap(follower)
        rows.append(
            [
                *(status.replica_id, member.address, status.role, status.epoch, status.end_offset),
                *(status.held_offset, status.confirm_offset, *gap, in_sync),
                status.refusal if status.role == "master" else status.not_promotable_because,
            ]
        )
    columns = ["id", "address", "role", "epoch", "end", "held", "confirmed", "gap_bytes", "gap_messages", "in_sync"]
    session.table([*columns, "remark"], rows)


def _gap(follower: object) -> tuple[int | None, int | None]:
    return getattr(follower, "gap_bytes", None), getattr(follower, "gap_messages", None)


@verb(app, "promote")
def promote(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    yes: Annotated[bool, typer.Option("--yes", help="Also when acknowledged messages may be lost.")] = False,
    address: Addresses = None,
) -> None:
    """Make a replica the master. The old master is drained first when it answers; then all who answer promise a new epoch,
    and only if their promises show that nothing is lost, or with --yes, is the replica promoted.
    """
    with session.admin() as admin:
        plan = plan_promotion(admin.group_status(group, address or ()), group, broker_id)
        if not session.as_json:
            _show(plan)
        if not plan.cleanness.clean and not yes:
            print(f"highwater: {plan.cleanness.because} With --yes it is promoted all the same", flush=True)
            raise typer.Exit(EXIT_REFUSED)
        began_s = time.monotonic()
        done = _carried_out(admin, plan, promotion_by_hand(plan, may_lose=yes))
    took_ms = round((time.monotonic() - began_s) * 1000)
    session.done(
        f"replica {broker_id} at {done.status.address} is the master of {group} in epoch {done.status.epoch}, after {took_ms} ms",
        group=group, broker_id=broker_id, address=done.status.address, epoch=done.status.epoch, took_ms=took_ms,
        clean=done.decision.cleanness.clean,
        lost_bytes=0 if done.decision.cleanness.clean else plan.cleanness.bytes_at_risk,
    )  # fmt: skip


def _show(plan: PromotionPlan) -> None:
    if plan.master is None:
        print("no master of the group answers")
    else:
        print(f"master: replica {plan.master.replica_id} at {plan.master.address}, epoch {plan.master.epoch}")
    lost, messages = plan.cleanness.bytes_at_risk, plan.cleanness.messages_at_risk
    print(
        f"replica {plan.candidate.replica_id} lacks {'an unknown amount' if lost is None else f'{lost} bytes'},"
        f" messages: {'unknown' if messages is None else messages}"
    )


def _carried_out(admin: Admin, plan: PromotionPlan, requests: Generator[Request, Any, Promoted]) -> Promoted:
    """Do what the order asks for, one request after the other."""
    began_s: float | None = None
    answer: object = None
    while True:
        try:
            request = requests.send(answer)
        except StopIteration as end:
            promoted: Promoted = end.value
            return promoted
        if isinstance(request, Wait):
            began_s = time.monotonic() if began_s is None else began_s
            time.sleep(request.seconds)
            answer = time.monotonic() - began_s < request.most_s
            continue
        try:
            answer = _asked(admin, plan, request)
        except HighwaterError as error:
            answer = error


def _asked(
    admin: Admin, plan: PromotionPlan, request: AskStatus | HoldSends | Promise | Promote | Follow
) -> ReplicaStatus:
    address, group = plan.addresses[request.replica_id], plan.candidate.group
    match request:
        case AskStatus():
            return admin.replica_status(address)
        case HoldSends():
            return admin.freeze_sends(address, group, epoch=request.epoch, for_ms=request.for_ms)
        case Promise():
            return admin.demote(address, group, epoch=request.epoch)
        case Follow():
            return admin.demote(address, group, epoch=request.epoch, leader_address=request.leader_address)
        case Promote():
            return admin.promote(
                address,
                group,
                request.replica_id,
                expected_epoch=request.expected_epoch,
                new_epoch=request.new_epoch,
                in_sync=request.in_sync,
                with_incomplete_log=request.with_incomplete_log,
                lacks_an_epoch=request.lacks_an_epoch,
            )


@verb(app, "demote")
def demote(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    epoch: Annotated[int | None, typer.Option("--new-epoch", help="Else the replica's own.")] = None,
) -> None:
    """Make the master stop leading: it takes no sends until a replica is promoted."""
    with session.admin() as admin:
        status = _member(admin.group_status(group), group, broker_id)
        done = admin.demote(status.address, group, epoch=status.epoch if epoch is None else epoch)
    session.done(
        f"replica {broker_id} at {done.address} is a {done.role} in epoch {done.epoch}, its log ends at {done.end_offset}",
        group=group, broker_id=broker_id, address=done.address, role=done.role, epoch=done.epoch,
        end_offset=done.end_offset, held_offset=done.held_offset,
    )  # fmt: skip


@verb(app, "divergedMessages")
def diverged_messages(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    name: Annotated[str | None, typer.Option("--name", help="The messages of this cut; else all cuts.")] = None,
    position: Annotated[int, typer.Option("--position", help="Where to read on.")] = 0,
    compared: Annotated[bool, typer.Option("--compare", help="Say what the group has of each message now.")] = False,
) -> None:
    """Show what was cut from a replica's log: the group's leader never had these messages."""
    with session.admin() as admin:
        address = _member(admin.group_status(group), group, broker_id).address
        if name is None:
            rows: list[list[object]] = [
                [
                    *(one.name, one.reason, one.epoch, one.begin_offset, one.end_offset, one.messages),
                    None if one.cut_at_ms is None else time_text(one.cut_at_ms),
                    " ".join(f"{topic}={count}" for topic, count in one.topics.items()),
                ]
                for one in admin.diverged_list(address)
            ]
            session.table(["name", "reason", "epoch", "begin", "end", "messages", "cut_at", "topics"], rows)
            return
        found = admin.diverged_read(address, name, position=position)
        rows = [
            [
                *(begin, one.message_id, one.queue.topic, one.queue.queue_id, one.queue_offset),
                *(" ".join(one.keys) or None, time_text(one.born_timestamp_ms), time_text(one.store_timestamp_ms)),
                one.body.decode("utf-8", "replace")[:80],
                *([compare(admin, group, one).fate.value] if compared else []),
            ]
            for begin, one in zip(found.positions, found.messages, strict=True)
        ]
    columns = ["position", "message_id", "topic", "queue", "offset", "keys", "born", "stored", "body"]
    session.table([*columns, *(["now"] if compared else [])], rows)
    if found.next_position is not None and not session.as_json:
        print(f"\nmore with --position {found.next_position}")


@verb(app, "resendDiverged")
def resend_diverged(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    name: Annotated[str, typer.Option("--name", help="The cut, as divergedMessages names it.")],
    positions: Annotated[
        list[int] | None, typer.Option("--position", help="Only the message here; may be repeated.")
    ] = None,
    rate: Annotated[int, typer.Option("--rate", help="Messages a second, at most.", min=1, max=100)] = 10,
) -> None:
    """Send a cut's messages again, each once. Those that the group has are passed over; each keeps its id."""
    wanted = None if positions is None else set(positions)
    rows: list[list[object]] = []
    with session.admin() as admin, session.producer(RESEND_GROUP, retries=0) as producer:
        address = _member(admin.group_status(group), group, broker_id).address
        position: int | None = 0
        while position is not None:
            found = admin.diverged_read(address, name, position=position)
            for begin, one in zip(found.positions, found.messages, strict=True):
                if (wanted is None or begin in wanted) and not is_internal(one):
                    rows.append(
                        [
                            begin,
                            one.message_id,
                            *_resent(admin, producer, group, one, f"{group}/{broker_id}/{name}/{begin}"),
                        ]
                    )
                    if rows[-1][2] != "skipped":
                        time.sleep(1 / rate)
            position = found.next_position
    session.table(["position", "message_id", "outcome", "detail"], rows)


def _resent(admin: Admin, producer: Producer, group: str, message: ReceivedMessage, origin: str) -> tuple[str, str]:
    comparison = compare(admin, group, message)
    if comparison.fate in (Fate.PRESENT, Fate.MOVED) and comparison.found is not None:
        queue = comparison.found.queue
        return "skipped", f"the group has it: {queue.topic}/{queue.queue_id}/{comparison.found.queue_offset}"
    again = message_again(message, origin)
    if isinstance(again, str):
        return "skipped", again
    try:
        sent = producer.send(again)
    except HighwaterError as error:
        return "unknown", f"{error}: look for it by its id before you send it once more"
    return "sent", f"{sent.queue.topic}/{sent.queue.queue_id}/{sent.queue_offset} {sent.status.value}"


@verb(app, "deleteDiverged")
def delete_diverged(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    name: Annotated[str, typer.Option("--name", help="The cut, as divergedMessages names it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Really: it is the only copy of these messages.")] = False,
) -> None:
    """Delete a cut from a replica's disk for good."""
    if not yes:
        raise ConfigurationError(f"{name} is the only copy of its messages; add --yes to delete it for good")
    with session.admin() as admin:
        admin.diverged_delete(_member(admin.group_status(group), group, broker_id).address, name)
    session.done(f"{name} is deleted from replica {broker_id} of {group}", group=group, broker_id=broker_id, name=name)


def _master(members: tuple[GroupMember, ...]) -> ReplicaStatus | None:
    leaders = [member.status for member in members if member.status is not None and member.status.role == "master"]
    return max(leaders, key=lambda status: status.epoch, default=None)


def _member(members: tuple[GroupMember, ...], group: str, replica_id: int) -> ReplicaStatus:
    for member in members:
        if member.status is not None and member.status.replica_id == replica_id:
            return member.status
    raise NoRouteError(f"replica {replica_id} of {group} does not answer")
