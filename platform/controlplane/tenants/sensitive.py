"""When a tenant asks people for a second factor: at the log-in, and before acts that are worth a second look at who is there,
which can't be undone, show a secret, or make a key.

Where a tenant wants that, a person confirms each such act with a second factor that is at most 15 minutes old, in the console and
in requests with the console's session. API tokens are not asked: making one is such an act.

Two acts are left out. Who leaves a tenant gives up only rights of their own. And a leak is ended without delay: revoking a token
or disabling a service account, which another token or a click puts right. Deleting a key pair also stops programs that send.
"""

import time

from controlplane.accounts.actors import Actor
from controlplane.accounts.fresh_factor import FRESH_FOR_S, factors_of, has_given_factor, is_fresh
from controlplane.accounts.models import User
from controlplane.common.errors import FactorNeeded
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant

# What a sentence calls each.
SENSITIVE_ACTS: dict[str, str] = {
    "cluster.delete": say("deletes a cluster"),
    "topic.delete": say("deletes a topic"),
    "offset.reset": say("resets offsets"),
    "group.promote_with_loss": say("promotes a replica though messages may be lost"),
    "diverged.delete": say("deletes messages that a failover set aside"),
    "group.recover": say("goes on without a lost majority"),
    "credential.create": say("makes a key pair"),
    "credential.reveal": say("reads a secret"),
    "credential.delete": say("deletes a key pair"),
    "token.create": say("makes an API token"),
    "service_account.delete": say("deletes a service account"),
    "member.remove": say("removes a member"),
    "masking_rule.delete": say("shows what a masking rule hides"),
    "tenant.factor_off": say("turns this question off"),
}


def entry_require(actor: Actor, tenant: Tenant) -> None:
    """Raise FactorNeeded for a person whose browser session was begun without a second factor, where the tenant demands one."""
    if not tenant.requires_second_factor or not isinstance(actor, User) or has_given_factor(actor):
        return
    if factors_of(actor):
        raise FactorNeeded(
            say("The tenant %(tenant)s demands a second factor at the log-in.", tenant=tenant.slug),
            hint=say("Confirm at /2fa/reauthenticate/ in the browser. Or use an API token."),
        )
    raise FactorNeeded(
        say(
            "The tenant %(tenant)s demands a second factor at the log-in, and your account has none.",
            tenant=tenant.slug,
        ),
        hint=say("Set up an authenticator app or a passkey under Account, Second factor (/2fa/)."),
        code="factor_missing",
    )


def factor_require(actor: Actor, act: str, tenant: Tenant) -> None:
    """Raise FactorNeeded unless the tenant does not want it, or the person gave a second factor a short while ago."""
    what = SENSITIVE_ACTS[act]
    wanted = tenant.wants_second_factor or (act == "tenant.factor_off" and tenant.requires_second_factor)
    if not wanted or not isinstance(actor, User) or is_fresh(actor, time.time()):
        return
    if factors_of(actor):
        raise FactorNeeded(
            say(
                "The tenant %(tenant)s asks for the second factor again before someone %(what)s.",
                tenant=tenant.slug,
                what=what,
            ),
            hint=say(
                "Confirm at /2fa/reauthenticate/ in the browser; it counts for %(fresh_for_s)s minutes."
                " Or use an API token.",
                fresh_for_s=FRESH_FOR_S // 60,
            ),
        )
    raise FactorNeeded(
        say(
            "The tenant %(tenant)s asks for a second factor before someone %(what)s, and your account has none.",
            tenant=tenant.slug,
            what=what,
        ),
        hint=say("Set up an authenticator app or a passkey under Account, Second factor (/2fa/)."),
        code="factor_missing",
    )
