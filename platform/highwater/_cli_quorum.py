"""Verbs about broker groups that elect their leader (DLedger): who counts, who leads, who should."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from random import Random
from typing import Annotated

import typer

from highwater._admin_replica import GroupMember
from highwater._cli_output import EXIT_REFUSED
from highwater._cli_session import Session, verb
from highwater._sync_admin import Admin
from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import Standing, ballot_drawn, judge_recovery
from highwater.recovery_order import LeadRecovered, PromiseRecovery, recovery_order
from mqwire.bodies import ReplicaStatus

app = typer.Typer()

GroupName = Annotated[str, typer.Option("-b", "--broker-name", help="The broker group's name.")]
BrokerId = Annotated[int, typer.Option("--broker-id", help="The replica: the number in its dLegerSelfId.")]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--address",
        help="host:port of a replica that is registered nowhere, as one with brokerId 0 that knows no leader; repeatable.",
    ),
]
_WAIT_S = 10.0
_LOOK_PERIOD_S = 0.05


def show_quorum(session: Session, members: tuple[GroupMember, ...]) -> None:
    """haStatus of such a group: states, epochs and votes, voters and which are behind."""
    leader = _leader(members)
    rows: list[list[object]] = []
    for member in members:
        status = member.status
        if status is None or status.quorum is None:
            rows.append([None, member.address, "unreachable", *[None] * 8, member.error])
            continue
        quorum = status.quorum
        known = leader or status
        assert known.quorum is not None, "a leader of such a group reports it"
        gap: int | None = None if leader is None else max(0, leader.end_offset - status.held_offset)
        rows.append(
            [
                *(status.replica_id, member.address, quorum.state, status.replica_id in known.quorum.voters),
                *(status.epoch, quorum.voted_for, status.end_offset, status.held_offset, status.confirm_offset, gap),
                status.replica_id == known.quorum.preferred_leader,
                status.refusal if status is leader else quorum.not_electable_because or status.not_promotable_because,
            ]
        )
    columns = ["id", "address", "state", "voter", "epoch", "voted_for", "end", "held", "confirmed", "behind_bytes"]
    session.table([*columns, "preferred", "remark"], rows)
    if not session.as_json:
        print(f"\n{_summary(members, leader)}")


def _summary(members: tuple[GroupMember, ...], leader: ReplicaStatus | None) -> str:
    """In words what the table means: who can be written to, and why not."""
    known_states = [
        member.status for member in members if member.status is not None and member.status.quorum is not None
    ]
    known = leader or max(known_states, key=lambda status: status.epoch)
    assert known.quorum is not None, "of those that report it"
    voters = set(known.quorum.voters)
    silent = len(voters.difference(status.replica_id for status in known_states))
    if leader is None:
        return f"mode dledger, no leader: {silent} of {len(voters)} voters unreachable; writes refused, reads go on"
    pending = "; a change of the voters is not confirmed yet" if known.quorum.change_pending else ""
    return (
        f"mode dledger, replica {leader.replica_id} leads in epoch {leader.epoch};"
        f" {len(voters)} voters, {silent} unreachable{pending}"
    )


@verb(app, "transferLeadership")
def transfer_leadership(session: Session, group: GroupName, broker_id: BrokerId) -> None:
    """Hand the leadership to another voter, without losing a message."""
    with session.admin() as admin:
        leader = _need_leader(admin, group)
        began_s = time.monotonic()
        admin.transfer_leadership(leader.address, group, broker_id)

        def leads(status: ReplicaStatus) -> bool:
            return status.replica_id == broker_id and status.epoch > leader.epoch and status.role == "master"

        done = _wait(admin, group, leads, f"replica {broker_id} did not take over; the leader goes on")
    took_ms = round((time.monotonic() - began_s) * 1000)
    session.done(
        f"replica {broker_id} at {done.address} leads {group} in epoch {done.epoch}, after {took_ms} ms",
        group=group, broker_id=broker_id, address=done.address, epoch=done.epoch, took_ms=took_ms,
    )  # fmt: skip


@verb(app, "recoverQuorum")
def recover_quorum(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    confirm: Annotated[
        str, typer.Option("--confirm", help="The group's name, typed: what the lost replicas alone held is lost.")
    ] = "",
    address: Addresses = None,
) -> None:
    """Let a group that has lost a majority of its disks for good go on with the replicas that are left.

    Everyone who does not answer with a disk that counted is given up. The replica must hold most of those that are left.
    """
    with session.admin() as admin:
        members = admin.group_status(group, address or ())
        statuses = {one.status.replica_id: one.status for one in members if one.status is not None}
        wanted = statuses.get(broker_id)
        if wanted is None or wanted.quorum is None:
            raise NoRouteError(f"replica {broker_id} of {group} does not answer, or does not elect its leader")
        answers = {key: Standing.of(status) for key, status in statuses.items() if status.quorum is not None}
        recovery = judge_recovery(wanted.quorum.voters, answers, broker_id)
        if recovery.problem is not None:
            raise NoRouteError(recovery.problem)
        if confirm != group:
            print(f"highwater: {recovery.loss} To go on: --confirm {group}", flush=True)
            raise typer.Exit(EXIT_REFUSED)
        ballot = ballot_drawn((status.epoch for status in statuses.values()), Random())
        addresses = {key: status.address for key, status in statuses.items()}
        done = _recovered(admin, group, addresses, recovery_order(recovery, broker_id, ballot))
    session.done(
        f"replica {broker_id} at {done.address} leads {group} in epoch {done.epoch}; voters: {list(recovery.survivors)}."
        " Start replicas with empty disks, and let them count with addObserver and addVoter",
        group=group, broker_id=broker_id, address=done.address, epoch=done.epoch, voters=list(recovery.survivors),
        lost=list(recovery.lost),
    )  # fmt: skip


def _recovered(
    admin: Admin,
    group: str,
    addresses: Mapping[int, str],
    requests: Generator[PromiseRecovery | LeadRecovered, ReplicaStatus | HighwaterError, ReplicaStatus],
) -> ReplicaStatus:
    """Do what the order asks for, one request after the other."""
    request = next(requests)
    while True:
        try:
            said: ReplicaStatus | HighwaterError = _asked(admin, group, addresses, request)
        except HighwaterError as error:
            said = error
        try:
            request = requests.send(said)
        except StopIteration as end:
            status: ReplicaStatus = end.value
            return status


def _asked(
    admin: Admin, group: str, addresses: Mapping[int, str], request: PromiseRecovery | LeadRecovered
) -> ReplicaStatus:
    address = addresses[request.replica_id]
    match request:
        case PromiseRecovery():
            leader_address = None if request.leader_id == request.replica_id else addresses[request.leader_id]
            return admin.demote(address, group, epoch=request.epoch, leader_address=leader_address, lost=request.lost)
        case LeadRecovered():
            return admin.promote(
                address,
                group,
                request.replica_id,
                expected_epoch=request.expected_epoch,
                new_epoch=request.new_epoch,
                lost=request.lost,
            )


@verb(app, "addObserver")
def add_observer(
    session: Session,
    group: GroupName,
    broker_id: BrokerId,
    address: Annotated[str, typer.Option("-a", "--address", help="Where the new replica serves, host:port.")],
) -> None:
    """Let a replica that does not count yet know its leader: it fetches everything and serves reads."""
    _change(session, group, "addObserver", broker_id, address)


@verb(app, "addVoter")
def add_voter(session: Session, group: GroupName, broker_id: BrokerId) -> None:
    """Let an observer that has caught up count: for what is confirmed, and in elections."""
    _change(session, group, "addVoter", broker_id)


@verb(app, "removeVoter")
def remove_voter(session: Session, group: GroupName, broker_id: BrokerId) -> None:
    """Let a voter count no more, dead or alive. The leader must hand its role over first."""
    _change(session, group, "removeVoter", broker_id)


@verb(app, "forgetReplica")
def forget_replica(session: Session, group: GroupName, broker_id: BrokerId) -> None:
    """Strike a replica that was stopped for good off the lists of all others, the leader's first: no one waits for it then."""
    with session.admin() as admin:
        leader = _need_leader(admin, group)
        statuses = [member.status for member in admin.group_status(group) if member.status is not None]
        if any(status.replica_id == broker_id for status in statuses):
            raise NoRouteError(f"replica {broker_id} of {group} still answers: stop it first")
        for status in sorted(statuses, key=lambda status: status.replica_id != leader.replica_id):
            admin.change_members(status.address, group, "forget", broker_id)
    session.done(f"no replica in {group} waits for replica {broker_id} any more", group=group, broker_id=broker_id)


@verb(app, "preferLeader")
def prefer_leader(
    session: Session,
    group: GroupName,
    broker_id: Annotated[int | None, typer.Option("--broker-id", help="Which voter; none when left out.")] = None,
) -> None:
    """Say which voter shall lead whenever it is in sync."""
    _change(session, group, "prefer", broker_id)


@verb(app, "changeMode")
def change_mode(
    session: Session,
    group: GroupName,
    mode: Annotated[
        str, typer.Option("--mode", help="single, async, sync or dledger: one step at a time, in this order or back.")
    ],
    in_sync: Annotated[
        int | None,
        typer.Option(
            "--in-sync-replicas", min=1, help="With sync: how many hold what is acknowledged; 2 when left out."
        ),
    ] = None,
    least: Annotated[
        int, typer.Option("--min-in-sync-replicas", min=1, help="With sync: below it sends are refused.")
    ] = 1,
) -> None:
    """Change the mode of a running group, without stopping a replica."""
    with session.admin() as admin:
        leader = _need_leader(admin, group)
        if in_sync is None:
            in_sync = 2 if mode == "sync" else 1  # with 1 the master alone would be enough once no slave is in sync
        admin.change_mode(
            leader.address, group, mode, in_sync_replicas=in_sync, min_in_sync_replicas=least, leader=leader
        )
        deadline_s = time.monotonic() + _WAIT_S
        modes: dict[int, str] = {}
        while time.monotonic() < deadline_s and set(modes.values()) != {mode}:
            statuses = [member.status for member in admin.group_status(group)]
            modes = {status.replica_id: status.mode for status in statuses if status is not None}
            time.sleep(_LOOK_PERIOD_S)
    others = sorted(replica_id for replica_id, now in modes.items() if now != mode)
    if others:
        raise NoRouteError(f"the change is written, but replicas {others} have not adopted it yet; see haStatus")
    session.done(f"{group} is in mode {mode}", group=group, mode=mode, replicas=sorted(modes))


def _change(session: Session, group: str, change: str, replica_id: int | None, address: str | None = None) -> None:
    with session.admin() as admin:
        leader = _need_leader(admin, group)
        admin.change_members(leader.address, group, change, replica_id, replica_address=address)

        def final(status: ReplicaStatus) -> bool:
            return status.role == "master" and status.quorum is not None and not status.quorum.change_pending

        done = _wait(admin, group, final, "the change is in force, but a majority has not confirmed it yet")
    quorum = done.quorum
    assert quorum is not None, "just looked"
    session.done(
        f"{group}: voters {quorum.voters}, observers {quorum.observers}, preferred leader {quorum.preferred_leader}",
        group=group, voters=quorum.voters, observers=quorum.observers, preferred_leader=quorum.preferred_leader,
    )  # fmt: skip


def _wait(admin: Admin, group: str, wanted: Callable[[ReplicaStatus], bool], otherwise: str) -> ReplicaStatus:
    deadline_s = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline_s:
        for member in admin.group_status(group):
            if member.status is not None and wanted(member.status):
                return member.status
        time.sleep(_LOOK_PERIOD_S)
    raise NoRouteError(f"after {_WAIT_S:g} s: {otherwise}; see haStatus")


def _leader(members: tuple[GroupMember, ...]) -> ReplicaStatus | None:
    leaders = [member.status for member in members if member.status is not None and member.status.role == "master"]
    return max(leaders, key=lambda status: status.epoch, default=None)


def _need_leader(admin: Admin, group: str) -> ReplicaStatus:
    members = admin.group_status(group)
    leader = _leader(members)
    if leader is None:
        raise NoRouteError(f"no replica of {group} leads just now; see haStatus")
    return leader
