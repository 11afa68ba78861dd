"""Who may stay where there is no place, or no memory, for all: pure decisions over peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from brokerd.admission import PROVEN_FRAMES_BYTES, UNPROVEN_FRAMES_BYTES, UNPROVEN_PER_ADDRESS_MAX, Admission
from brokerd.peer import Peer

MANY_PLACES = 16_000


@dataclass(eq=False)
class Facts:
    """What the decisions look at of a connection."""

    network: str
    proven: bool
    proven_frames: bool = False
    unfinished_bytes: int = 0
    access_key: str = ""


def program_of(admission: Admission, access_key: str, address: str = "10.0.0.1") -> Peer:
    """A connection that has shown an account, and whose next frame counts as the account's."""
    peer = cast("Peer", Facts(address, True, access_key=access_key))
    assert admission.admit(peer) is None
    admission.count_unfinished(peer, 0)
    return peer


def peer_of(address: str, *, proven: bool = False) -> Peer:
    return cast("Peer", Facts(address, proven))


def admitted(admission: Admission, peer: Peer) -> Peer:
    assert admission.admit(peer) is None
    return peer


def test_the_oldest_stranger_of_an_address_makes_room_for_one_too_many_of_it() -> None:
    admission = Admission(MANY_PLACES)
    strangers = [admitted(admission, peer_of("10.0.0.1")) for _ in range(UNPROVEN_PER_ADDRESS_MAX)]
    assert admission.admit(peer_of("10.0.0.1")) is strangers[0]


def test_an_address_of_many_strangers_takes_no_place_of_another() -> None:
    admission = Admission(MANY_PLACES)
    for _ in range(UNPROVEN_PER_ADDRESS_MAX):
        admission.admit(peer_of("10.0.0.1"))
    assert admission.admit(peer_of("10.0.0.2")) is None


def test_an_address_may_have_more_connections_that_have_shown_an_account() -> None:
    admission = Admission(MANY_PLACES)
    for _ in range(UNPROVEN_PER_ADDRESS_MAX):
        admitted(admission, peer_of("10.0.0.1", proven=True))
    newest = admission.admit(peer_of("10.0.0.1"))
    assert newest is None


def test_unfinished_frames_within_the_allowance_end_no_one() -> None:
    admission = Admission(MANY_PLACES)
    stranger = admitted(admission, peer_of("10.0.0.1"))
    assert admission.count_unfinished(stranger, UNPROVEN_FRAMES_BYTES) is None


def test_the_address_that_holds_most_of_the_allowance_loses_its_largest_frame_to_another() -> None:
    admission = Admission(MANY_PLACES)
    smaller, largest = (admitted(admission, peer_of("10.0.0.1")) for _ in range(2))
    admission.count_unfinished(smaller, UNPROVEN_FRAMES_BYTES // 3)
    admission.count_unfinished(largest, UNPROVEN_FRAMES_BYTES // 2)
    newcomer = admitted(admission, peer_of("10.0.0.2"))
    assert admission.count_unfinished(newcomer, UNPROVEN_FRAMES_BYTES // 4) is largest


def test_one_of_the_address_that_holds_most_ends_itself_with_what_is_too_much() -> None:
    admission = Admission(MANY_PLACES)
    first, second = (admitted(admission, peer_of("10.0.0.1")) for _ in range(2))
    admission.count_unfinished(first, UNPROVEN_FRAMES_BYTES)
    assert admission.count_unfinished(second, 1) is second


def test_what_a_peer_held_is_free_when_it_has_left() -> None:
    admission = Admission(MANY_PLACES)
    first = admitted(admission, peer_of("10.0.0.1"))
    admission.count_unfinished(first, UNPROVEN_FRAMES_BYTES)
    admission.leave(first)
    second = admitted(admission, peer_of("10.0.0.1"))
    assert admission.count_unfinished(second, UNPROVEN_FRAMES_BYTES) is None


def test_the_account_that_holds_most_loses_its_largest_frame_to_another() -> None:
    admission = Admission(MANY_PLACES)
    smaller, largest = (program_of(admission, "greedy") for _ in range(2))
    admission.count_unfinished(smaller, PROVEN_FRAMES_BYTES // 3)
    admission.count_unfinished(largest, PROVEN_FRAMES_BYTES // 2)
    other = program_of(admission, "orders-app")
    assert admission.count_unfinished(other, PROVEN_FRAMES_BYTES // 4) is largest


def test_one_of_the_account_that_holds_most_ends_itself_with_what_is_too_much() -> None:
    admission = Admission(MANY_PLACES)
    first, second = (program_of(admission, "greedy", f"10.0.0.{number}") for number in (1, 2))
    admission.count_unfinished(first, PROVEN_FRAMES_BYTES)
    assert admission.count_unfinished(second, 1) is second


def test_without_accounts_it_is_the_address_that_holds_most() -> None:
    admission = Admission(MANY_PLACES)
    greedy, other = program_of(admission, ""), program_of(admission, "", "10.0.0.2")
    admission.count_unfinished(greedy, PROVEN_FRAMES_BYTES)
    assert admission.count_unfinished(other, 1) is greedy


def test_the_first_frame_after_the_proof_of_an_account_is_no_strangers() -> None:
    admission = Admission(MANY_PLACES)
    program = admitted(admission, peer_of("10.0.0.1"))
    program.proven = True
    assert admission.count_unfinished(program, UNPROVEN_FRAMES_BYTES + 1) is None
