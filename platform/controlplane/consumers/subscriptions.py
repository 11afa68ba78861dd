"""Which members of a group subscribe otherwise than the others.

A broker keeps one subscription for a whole group, the one that it heard last: members that differ take messages from
each other that they then drop.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_TAG = "TAG"


@dataclass(frozen=True, slots=True)
class Subscribed:
    """How a member subscribes to a topic. `expression_type` is RocketMQ's TAG or SQL92."""

    expression: str
    expression_type: str = _TAG


@dataclass(frozen=True, slots=True)
class Difference:
    """A topic that a member subscribes to otherwise; None: not subscribed."""

    topic: str
    own: Subscribed | None
    usual: Subscribed | None


@dataclass(frozen=True, slots=True)
class OddMember:
    """A member that subscribes otherwise, and where, sorted by topic."""

    client_id: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The members that subscribe otherwise than `example` does, sorted; without a majority, `example` is one of several."""

    odd: tuple[OddMember, ...] = ()
    has_majority: bool = True
    example: str = ""


def compare(subscribed: Mapping[str, Mapping[str, Subscribed]]) -> Comparison:
    """Name the minority among members (by client id) that report what they subscribe to (by topic)."""
    alike: dict[frozenset[tuple[str, Subscribed]], list[str]] = {}
    for client_id in sorted(subscribed):
        same = frozenset((topic, _normal(one)) for topic, one in subscribed[client_id].items())
        alike.setdefault(same, []).append(client_id)
    if not alike:
        return Comparison()
    most, *others = sorted(alike.values(), key=lambda members: (-len(members), members))
    odd = sorted(client_id for members in others for client_id in members)
    return Comparison(
        odd=tuple(OddMember(client_id, _differences(subscribed[client_id], subscribed[most[0]])) for client_id in odd),
        has_majority=all(len(members) < len(most) for members in others),
        example=most[0],
    )


def _differences(own: Mapping[str, Subscribed], usual: Mapping[str, Subscribed]) -> tuple[Difference, ...]:
    return tuple(
        Difference(topic, mine, theirs)
        for topic in sorted({*own, *usual})
        for mine, theirs in [(own.get(topic), usual.get(topic))]
        if mine is None or theirs is None or _normal(mine) != _normal(theirs)
    )


def _normal(one: Subscribed) -> Subscribed:
    """The same for expressions that select the same: the order of tags means nothing, and an empty one is all."""
    kind = one.expression_type.strip() or _TAG
    if kind != _TAG:
        return Subscribed(one.expression.strip(), kind)
    tags = sorted({tag.strip() for tag in one.expression.split("||")} - {""})
    return Subscribed(" || ".join(tags) or "*", kind)
