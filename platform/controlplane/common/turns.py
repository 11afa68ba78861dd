"""Fair turns for work that is done for every cluster again and again: looks at its health, its leaders, its figures.

A cluster has one turn of a kind at a time. One whose last turn was slow shares a place with its tenant's other slow ones, and
that place rests for half as long as the turn took: whatever a tenant's clusters do, its looks take two thirds of one worker at
most, and other tenants' clusters keep their rhythm. A turn that is not had is not waited for; the next beat brings another one.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import TypeVar
from uuid import UUID

from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.common.logging import get_logger

_log = get_logger("controlplane.turns")

T = TypeVar("T")

SLOW_S = 1.0
# So long a cluster stays known as slow: a turn that is quick again ends it at once.
_KNOWN_AS_SLOW_S = 300
# A worker that dies keeps its places no longer; turns have a lower time limit.
_PLACE_S = 60


def interleaved(items: Iterable[tuple[UUID, T]], shuffle: Callable[[list[T]], None] = random.shuffle) -> list[T]:
    """Return (tenant, item) as items, one of each tenant in turn, so that who has many delays no one; its own in any order."""
    by_tenant: dict[UUID, list[T]] = defaultdict(list)
    for tenant, item in items:
        by_tenant[tenant].append(item)
    for own in by_tenant.values():
        shuffle(own)
    rounds = zip_longest(*by_tenant.values(), fillvalue=None)
    return [item for each in rounds for item in each if item is not None]


@contextmanager
def turn(kind: str, tenant: UUID, cluster: UUID, monotonic: Callable[[], float] = time.monotonic) -> Iterator[bool]:
    """Yield whether this cluster has its turn now. Without the cache every cluster has."""
    own, slow, place = f"turn:{kind}:{cluster}", f"turn:{kind}:slow:{cluster}", f"turn:{kind}:tenant:{tenant}"
    try:
        if not cache.add(own, 1, timeout=_PLACE_S):
            yield False
            return
        shares = bool(cache.get(slow))
        if shares and not cache.add(place, 1, timeout=_PLACE_S):
            cache.delete(own)
            yield False
            return
    except RedisError as error:
        _log.warning("turns are off: the cache does not answer", error=str(error))
        yield True
        return
    began_s = monotonic()
    try:
        yield True
    finally:
        took_s = monotonic() - began_s
        try:
            cache.delete(own)
            if took_s >= SLOW_S:
                cache.set(slow, 1, timeout=_KNOWN_AS_SLOW_S)
                cache.set(place, 1, timeout=max(1, round(took_s / 2)))
            elif shares:
                cache.delete_many([slow, place])
        except RedisError as error:  # they end by themselves
            _log.warning("a turn is not given back: the cache does not answer", error=str(error))
