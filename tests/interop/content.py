"""The messages that the interop tests send: planned here from a seed, made by each client for itself, checked here.

A plan is a dict that the client programs understand: seed, size, kind, tag, keys, sharding_key, delay_level,
properties. The body follows from seed, size and kind alone: the AES-128-CTR key stream under the first 16 bytes of
SHA-256(seed), or its hexadecimal digits for kind "text" (which compresses, as real bodies do). So no body travels
between test and client, yet each can be checked.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Plan = dict[str, Any]

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
# RocketMQ's clients compress what is over 4 KiB, and a body that can't be compressed grows by a few bytes per 16 KiB:
# this is as near to the limit of 4 MiB as a body can safely be.
LARGEST_BODY_BYTES = 4 * MEBIBYTE - 8 * KIBIBYTE

TAGS = ("paid", "shipped", "täg-✓", None)
UNICODE_PROPERTIES = {
    "greeting": "grüß dich, 世界 🚀",
    "emoji-ключ": "значение",
    "spaces and =:;,": "a b=c:d;e,f",
}


def body(plan: Plan) -> bytes:
    """The body that every client makes of ``plan``."""
    size = int(plan["size"])
    key = hashlib.sha256(str(plan["seed"]).encode()).digest()[:16]
    encryptor = Cipher(algorithms.AES128(key), modes.CTR(bytes(16))).encryptor()
    if plan["kind"] == "text":
        return encryptor.update(bytes((size + 1) // 2)).hex().encode()[:size]
    return encryptor.update(bytes(size))


def body_sha256(plan: Plan) -> str:
    return hashlib.sha256(body(plan)).hexdigest()


def _sizes(count: int, rng: random.Random) -> Iterator[int]:
    """Mostly small and 1 KiB bodies; of 10,000, about 30 of 100 KiB, 4 of 1 MiB and one near 4 MiB; some of one
    byte.
    """
    for index in range(count):
        if index == count // 2 and count >= 100:
            yield LARGEST_BODY_BYTES
        elif index % 2500 == 1249:
            yield MEBIBYTE
        elif index % 333 == 99:
            yield 100 * KIBIBYTE
        elif index % 50 == 17:
            yield rng.randrange(3 * KIBIBYTE, 10 * KIBIBYTE)
        elif index % 3 == 0:
            yield KIBIBYTE
        else:
            yield rng.choice((1, 2, 31, 100, rng.randrange(1, 512)))


def plans(
    seed: str,
    count: int,
    *,
    tags: Sequence[str | None] = TAGS,
    sizes: Sequence[int] | None = None,
    first_index: int = 0,
) -> list[Plan]:
    """``count`` plans of mixed sizes (or of ``sizes``, in turn), the same for the same arguments.

    The property "index" distinguishes messages of one test; several calls for one test need their own ``first_index``.
    """
    rng = random.Random(seed)
    chosen = list(sizes) if sizes is not None else list(_sizes(count, rng))
    made: list[Plan] = []
    for index in range(count):
        plan: Plan = {
            "seed": f"{seed}-{index}",
            "size": chosen[index % len(chosen)],
            "kind": "text" if index % 2 else "binary",
            "keys": f"order-{seed}-{index} all-{seed}",
            "sharding_key": f"customer-{index % 13}",
            "properties": {"index": str(first_index + index)},
        }
        tag = tags[index % len(tags)]
        if tag is not None:
            plan["tag"] = tag
        if index % 5 == 0:
            plan["properties"] |= UNICODE_PROPERTIES
        made.append(plan)
    return made


def assert_same_message(plan: Plan, received: dict[str, Any]) -> None:
    """Checks body, tag, keys and user properties of a received message against its plan."""
    label = plan["seed"]
    assert received["size"] == plan["size"], label
    assert received["sha256"] == body_sha256(plan), label
    assert (received["tags"] or None) == plan.get("tag"), label
    assert received["keys"] == plan["keys"], label
    for name, value in plan["properties"].items():
        assert received["properties"].get(name) == value, f"{label}: property {name}"


def index_of(received: dict[str, Any]) -> int:
    return int(received["properties"]["index"])


def assert_exactly_these(expected: Sequence[Plan], received: Sequence[dict[str, Any]]) -> None:
    """Every planned message arrived exactly once, with equal content, and nothing else did."""
    by_index = {int(plan["properties"]["index"]): plan for plan in expected}
    seen: dict[int, int] = {}
    for message in received:
        index = index_of(message)
        seen[index] = seen.get(index, 0) + 1
        assert index in by_index, f"no one sent message {index} here"
        assert_same_message(by_index[index], message)
    missing = sorted(set(by_index) - set(seen))
    assert not missing, f"{len(missing)} of {len(by_index)} messages are missing, first {missing[:10]}"
    twice = {index: count for index, count in seen.items() if count > 1}
    assert not twice, f"received more than once: {dict(list(twice.items())[:10])}"
