"""How often stored messages are looked at. A look takes up to some seconds of a thread of the web's, of which there are few for all
tenants: each person or token, and each tenant, has so many in ten seconds.
"""

import time
from hashlib import sha256

from django.core.cache import cache
from redis.exceptions import RedisError

from controlplane.accounts.actors import Actor, actor_label
from controlplane.common.errors import TooOften
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant

_log = get_logger("controlplane.looks")

WINDOW_S = 10
LOOKS_OF_ONE = 60
LOOKS_OF_TENANT = 150


def look_require(actor: Actor, tenant: Tenant) -> None:
    """Count a look; raise TooOften when this actor, or all of the tenant together, look more often than people and programs do."""
    if looks_too_often("look", actor, tenant, of_one=LOOKS_OF_ONE, of_tenant=LOOKS_OF_TENANT, window_s=WINDOW_S):
        raise TooOften(
            say("Messages of this tenant are looked at too often at the moment."),
            hint=say(
                "Wait %(seconds)s seconds. To read many messages, consume them, or ask for more of them at once.",
                seconds=WINDOW_S,
            ),
            retry_after_s=WINDOW_S,
        )


def looks_too_often(
    kind: str, actor: Actor, tenant: Tenant, *, of_one: int, of_tenant: int, window_s: int = WINDOW_S
) -> bool:
    """Count a look of a kind; return whether it is one too many. Without the cache none is."""
    window = int(time.time() // window_s)
    for key, most in (
        (f"{kind}:{tenant.pk}:{sha256(actor_label(actor).encode()).hexdigest()}:{window}", of_one),
        (f"{kind}:{tenant.pk}:{window}", of_tenant),
    ):
        try:
            cache.add(key, 0, timeout=2 * window_s)
            looks = cache.incr(key)
        except (RedisError, ValueError) as error:  # ValueError: the key has gone in between
            _log.warning("looks at messages are not counted", error=str(error))
            return False
        if looks > most:
            return True
    return False
