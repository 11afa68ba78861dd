"""When a person last confirmed with a second factor in this browser session."""

from dataclasses import dataclass

from allauth.account.authentication import get_authentication_records
from allauth.mfa.models import Authenticator
from django.http import HttpRequest

from controlplane.accounts.models import SessionFactor, User

FRESH_FOR_S = 15 * 60
# In the session: the key of the user for whom the provider has asked for a factor. A session may be begun for one person and used
# by another.
FACTOR_BY_PROVIDER = "factor_by_provider"


def session_factor_take(request: HttpRequest, user: User) -> None:
    """Note at the user when this session's newest second factor was given: services ask for it by `factor_require`."""
    given = [float(one["at"]) for one in get_authentication_records(request, user) if one.get("method") == "mfa"]
    by_provider = request.session.get(FACTOR_BY_PROVIDER) == str(user.pk)
    user.session_factor = SessionFactor(max(given, default=None), by_provider)


def has_given_factor(user: User) -> bool:
    """Whether a second factor was given in this browser session, here or at a trusted identity provider, however long ago."""
    given = user.session_factor
    return given is not None and (given.at_s is not None or given.by_provider)


def is_fresh(user: User, now_s: float) -> bool:
    """Whether the user gave a second factor within the last FRESH_FOR_S; never for one who came by no browser session."""
    given = user.session_factor
    return given is not None and given.at_s is not None and now_s - given.at_s < FRESH_FOR_S


@dataclass(frozen=True, slots=True)
class Factors:
    """Which second factors an account has, recovery codes left out."""

    app: bool
    passkey: bool

    def __bool__(self) -> bool:
        return self.app or self.passkey


def factors_of(user: User) -> Factors:
    """Return the account's second factors."""
    kinds = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    return Factors(app=Authenticator.Type.TOTP in kinds, passkey=Authenticator.Type.WEBAUTHN in kinds)
