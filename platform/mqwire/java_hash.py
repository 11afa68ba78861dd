"""Java's String.hashCode of UTF-8 text: what tags, and the keys of the message index, are known by.

    hash = 31**(n - 1) * unit 0 + ... + 31 * unit n-2 + unit n-1, of UTF-16 units, modulo 2**32

A sender chooses how long they are, so long texts are hashed by blocks: a block is one large number whose lanes are
its units, and neighbours are joined, all pairs of a block at once, until one lane is left. A tenth of the time of one by one.
"""

from __future__ import annotations

from operator import mul
from typing import Final

MASK: Final = 0xFFFFFFFF
SHORT: Final = 128  # bytes of a text that has its powers ready
_DESCENDING = [pow(31, exponent, 2**32) for exponent in range(SHORT, -1, -1)]
POWERS: Final[list[tuple[int, ...]]] = [tuple(_DESCENDING[SHORT + 1 - size :]) for size in range(SHORT + 1)]
"""By what each byte of a text of that size counts in its hash: 31 to the size - 1, down to 1."""
MOVES: Final[list[int]] = _DESCENDING[::-1]
"""By what a hash counts when a text of that size follows: 31 to the size."""

_BLOCK_BYTES: Final = 512


def java_hash(text: bytes) -> int:
    """String.hashCode of UTF-8 text, as 32 bits without a sign."""
    return joined_hash(0, text)


def joined_hash(head: int, tail: bytes) -> int:
    """The hash of head + tail, of whose head the hash is known."""
    if not tail.isascii():
        return hash_of_units(head, tail.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass"))
    size = len(tail)
    if size > SHORT:
        return (head * pow(31, size, 2**32) + _hash_of_lanes(tail, _OF_BYTES)) & MASK
    total: int = sum(map(mul, tail, POWERS[size]))
    return (head * MOVES[size] + total) & MASK


def hash_of_units(head: int, units: bytes) -> int:
    """The hash of head + tail, of whose tail the UTF-16 units are given, big-endian."""
    return (head * pow(31, len(units) // 2, 2**32) + _hash_of_lanes(units, _OF_UNITS)) & MASK


def _joins(lane_bits: int) -> tuple[int, list[tuple[int, int, int]]]:
    """By what the hash before it counts when a block follows, and for each step of joining lanes: their width, what masks every
    other one, and by what the left one of a pair counts.
    """
    power = 31
    steps = []
    while lane_bits < 8 * _BLOCK_BYTES:
        # From 64 bits on only the lower 32 go on: so a product never reaches the next lane.
        kept = (1 << min(lane_bits, 32)) - 1
        lanes = kept.to_bytes(lane_bits // 4, "big") * (4 * _BLOCK_BYTES // lane_bits)
        steps.append((lane_bits, int.from_bytes(lanes, "big"), power))
        power = power * power & MASK
        lane_bits *= 2
    return power, steps


_OF_BYTES: Final = _joins(8)
_OF_UNITS: Final = _joins(16)


def _hash_of_lanes(text: bytes, joins: tuple[int, list[tuple[int, int, int]]]) -> int:
    move, steps = joins
    value = 0
    # Zeros in front count nothing.
    text = bytes(-len(text) % _BLOCK_BYTES) + text
    for begin in range(0, len(text), _BLOCK_BYTES):
        block = int.from_bytes(text[begin : begin + _BLOCK_BYTES], "big")
        for lane_bits, lanes, power in steps:
            block = (block >> lane_bits & lanes) * power + (block & lanes)
        value = (value * move + block) & MASK
    return value
