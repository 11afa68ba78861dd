"""A broker group as a picture: the leader on the left, everyone else on the right, a line to whoever follows. Pure: rows in,
shapes out; `console/parts/group_picture.html` draws them. Nothing is said by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from controlplane.common.sentences import say, say_all, say_as, say_count
from controlplane.console.pills import pill_of
from controlplane.console.templatetags.console import byte_size
from controlplane.failover.membership.verdict import LAST_MOMENT_BYTES
from controlplane.failover.promotion.verdict import GroupState
from controlplane.failover.role_map import GroupRow, ReplicaRow

# In units of the drawing, of which it is so wide that its text can be read on a phone of 360 px.
WIDTH = 360
_BOX_HEIGHT = 64
_STRIDE = _BOX_HEIGHT + 10
_LEADER_WIDTH = 136
_FOLLOWERS_AT = 212
_PROMISE_HEIGHT = 22
_ELBOW_AT = (_LEADER_WIDTH + _FOLLOWERS_AT) // 2
_INDENT = 12

Look = Literal["leads", "follows", "silent", "missing"]
Line = Literal["even", "behind"]


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text, at its baseline."""

    x: int
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """A replica, or (`missing`) the place of the leader that there is none of. `name` is the first line in it."""

    x: int
    y: int
    width: int
    look: Look
    name: Words
    lines: tuple[Words, ...]
    replica_id: int | None = None
    height: int = _BOX_HEIGHT


@dataclass(frozen=True, slots=True)
class Link:
    """From the leader to a follower, as an SVG path and the arrow's head at its end."""

    path: str
    head: str
    line: Line


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """`title` and `description` say to those who don't see it what it shows."""

    group: str
    height: int
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    promise: Words
    title: str
    description: str
    width: int = WIDTH


def group_picture(group: GroupRow) -> GroupPicture:
    """Return the shapes of one group of the role map."""
    leader = next((one for one in group.replicas if one.replica_id == group.master_id), None)
    others = [one for one in group.replicas if one is not leader]
    # The leader is beside the middle of the others; what SEND_OK means stands below it.
    stacked = max(len(others) * _STRIDE - (_STRIDE - _BOX_HEIGHT), _BOX_HEIGHT)
    top = 1 + (stacked - _BOX_HEIGHT) // 2
    height = max(stacked, (stacked + _BOX_HEIGHT) // 2 + _PROMISE_HEIGHT) + 2
    leading = _box(
        1, top, _LEADER_WIDTH - 1, *_leader_words(group, leader), None if leader is None else leader.replica_id
    )
    boxes, links = [leading], []
    for position, replica in enumerate(others):
        y = 1 + position * _STRIDE
        boxes.append(_box(_FOLLOWERS_AT, y, WIDTH - _FOLLOWERS_AT - 1, *_words(group, replica), replica.replica_id))
        line = None if leader is None else _line(group, replica)
        if line is not None:
            links.append(_link(top + _BOX_HEIGHT // 2, y + _BOX_HEIGHT // 2, line))
    promise = _promise(group, leader)
    return GroupPicture(
        group=group.name,
        height=height,
        boxes=tuple(boxes),
        # A whole line lies over a broken one where they share their way.
        links=tuple(sorted(links, key=lambda link: link.line == "even")),
        promise=Words(1, top + _BOX_HEIGHT + _PROMISE_HEIGHT - 5, promise),
        title=say("%(group)s: who leads and who follows", group=group.name),
        description=say_all(*(_spoken(box) for box in boxes), say("%(promise)s.", promise=promise)),
    )


def _box(x: int, y: int, width: int, look: Look, words: Sequence[str], replica_id: int | None) -> Box:
    name, *lines = [Words(x + _INDENT, y + 20 + 17 * row, text) for row, text in enumerate(words) if text]
    return Box(x, y, width, look, name, tuple(lines), replica_id)


def _spoken(box: Box) -> str:
    text = box.lines[-1].text if box.lines else ""
    for line in reversed(box.lines[:-1]):
        text = say("%(first)s, %(second)s", first=line.text, second=text)
    return say("%(name)s: %(text)s.", name=box.name.text, text=text) if text else say("%(text)s.", text=box.name.text)


def _leader_words(group: GroupRow, leader: ReplicaRow | None) -> tuple[Look, tuple[str, ...]]:
    if leader is not None:
        role = say("Leader") if group.electorate is not None else say("Master")
        return "leads", (_name(leader), role, _epoch(leader))
    if group.state == GroupState.UNKNOWN:
        return "missing", (say("Leader not known"),)
    return "missing", (say("No leader") if group.electorate is not None else say("No master"),)


def _promise(group: GroupRow, leader: ReplicaRow | None) -> str:
    if leader is None:
        return say("Sends fail") if group.state == GroupState.NO_MASTER else say("Sends: not known")
    if leader.accepts_sends is False:
        return say("Sends are refused")
    if group.copies is None:
        return say("SEND_OK: a majority")
    if group.electorate is not None:
        return say("SEND_OK: %(copies)s of %(voters)s copies", copies=group.copies, voters=len(group.electorate.voters))
    return say_count("SEND_OK: %(count)s copy", "SEND_OK: %(count)s copies", group.copies)


def _words(group: GroupRow, replica: ReplicaRow) -> tuple[Look, tuple[str, ...]]:
    if replica.role == "unknown":
        since = replica.unreachable_since
        words = "" if since is None else say("since %(time)s UTC", time=f"{since:%H:%M:%S}")
        return "silent", (_name(replica), say("Does not answer"), words)
    if replica.claims:
        role: str = say("Waits to lead")
    elif replica.is_voter is False:
        role = say("Observer")
    else:
        role = pill_of(replica.election_state or replica.role).words
    return "follows", (_name(replica), role, _distance(group, replica))


def _distance(group: GroupRow, replica: ReplicaRow) -> str:
    if group.state == GroupState.UNKNOWN:
        return say("no recent data")
    if group.master_id is None:
        return ""  # there is no one to be behind of
    if replica.in_sync or replica.gap_bytes == 0:
        return say_as("a replica", "in sync")
    if replica.gap_bytes is not None:
        return say("%(size)s behind", size=byte_size(replica.gap_bytes))
    return say("follows no one") if replica.in_sync is None else say("behind")


def _line(group: GroupRow, replica: ReplicaRow) -> Line | None:
    """Whether it follows the leader, and how; a follower of an elected one is hardly ever at the very end of a busy log."""
    if replica.role in ("unknown", "master") or (replica.in_sync is None and replica.gap_bytes is None):
        return None
    slack = LAST_MOMENT_BYTES if group.electorate is not None else 0
    is_even = replica.in_sync or (replica.gap_bytes is not None and replica.gap_bytes <= slack)
    return "even" if is_even else "behind"


def _link(from_y: int, to_y: int, line: Line) -> Link:
    end = _FOLLOWERS_AT - 2
    return Link(f"M{_LEADER_WIDTH} {from_y}H{_ELBOW_AT}V{to_y}H{end - 7}", f"M{end} {to_y}l-8 -4.5v9z", line)


def _epoch(replica: ReplicaRow) -> str:
    return "" if replica.epoch is None else say("epoch %(epoch)s", epoch=replica.epoch)


def _name(replica: ReplicaRow) -> str:
    return say("Replica %(replica)s", replica=replica.replica_id)
