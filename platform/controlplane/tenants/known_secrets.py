"""What still works when a person leaves a tenant, or loses rights: secrets that outlast them, which they made or have seen.

Each app that keeps such secrets registers where they are: this one its tokens, apps above it theirs. What is a person's own, as
their tokens and invitations, is not asked for here: it ends with their rights (`tenants.services`).
"""

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from controlplane.accounts.actors import Actor
from controlplane.accounts.models import User
from controlplane.common.errors import BrokerUnreachable, InvalidInput
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

ALL = "all"


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """One of them. `kind` is service_account_token, key_pair or alert_channel; `place` is the service account, cluster or host."""

    kind: str
    id: uuid.UUID
    name: str
    place: str
    made: bool
    known_since: datetime


# What is left to do once the transaction is over: returns what is not confirmed, by name.
Finish = Callable[[], tuple[str, ...]]


class SecretSource(Protocol):
    """Where an app keeps secrets. `permission` is what their revocation needs."""

    kind: str
    permission: str

    def find(self, tenant: Tenant, user: User, still: str | None) -> list[KnownSecret]:
        """Return what the user knows, but for what the role `still` may have; None: the user has no role any more."""

    def revoke(self, actor: Actor, tenant: Tenant, ids: Collection[uuid.UUID]) -> Finish:
        """Revoke them, within the caller's transaction. Raises NotAllowed."""


_sources: dict[str, SecretSource] = {}


def secret_source_register(source: SecretSource) -> None:
    """Have the source's secrets found from now on."""
    _sources[source.kind] = source


def known_secrets(tenant: Tenant, user: User, still: str | None = None) -> list[KnownSecret]:
    """Return what outlasts the user, who leaves (`still` is None) or has the role `still` from then on; the oldest first."""
    found = [secret for source in _sources.values() for secret in source.find(tenant, user, still)]
    return sorted(found, key=lambda secret: (secret.kind, secret.known_since))


def may_revoke(actor: Actor, tenant: Tenant, secret: KnownSecret) -> bool:
    """Whether the actor may revoke it: who leaves may not always."""
    return actor_can(actor, _sources[secret.kind].permission, tenant)


def known_secrets_revoke(
    actor: Actor, tenant: Tenant, user: User, still: str | None, chosen: Collection[str]
) -> list[Finish]:
    """Revoke those of `known_secrets` whose ids are chosen, or all; within the caller's transaction. Call `finish_all` after it.

    Raises InvalidInput for an id that is not one of them, NotAllowed.
    """
    if not chosen:
        return []
    secrets = known_secrets(tenant, user, still)
    ids = {str(secret.id) for secret in secrets}
    wanted = ids if ALL in chosen else set(chosen)
    if unknown := sorted(wanted - ids):
        raise InvalidInput.for_field(
            "revoke", say("The person knows no secret with the id %(unknown)s.", unknown=unknown[0]), "unknown_secret"
        )
    done = []
    for kind, source in _sources.items():
        mine = [secret.id for secret in secrets if secret.kind == kind and str(secret.id) in wanted]
        if mine:
            done.append(source.revoke(actor, tenant, mine))
    return done


def finish_all(finishes: list[Finish]) -> None:
    """Wait until what was revoked is refused everywhere; raises BrokerUnreachable that names what did not confirm it."""
    missing: list[str] = []
    for finish in finishes:
        missing += finish()
    if missing:
        raise BrokerUnreachable(
            say(
                "All is done, but key pairs may still be let in at %(missing)s: no confirmation came from there.",
                missing=", ".join(missing),
            ),
            hint=say("They are deleted there as soon as it answers."),
            extra={"missing_daemons": missing},
        )
