"""How a REST request says who it is: a bearer token, or the console's session (with CSRF protection)."""

from datetime import timedelta

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.fresh_factor import session_factor_take
from controlplane.accounts.models import ApiToken, User
from controlplane.accounts.tokens import secret_matches, token_text_parse

# Often enough to distinguish a token in use from a forgotten one, seldom enough not to write on each request.
_LAST_USED_RESOLUTION = timedelta(minutes=1)


def token_authenticate(text: str) -> ApiToken | None:
    """Return the live token with this text, or None. Writes `last_used_at`, once a minute at most."""
    parsed = token_text_parse(text)
    if parsed is None or parsed.environment != settings.HIGHWATER_ENVIRONMENT:
        return None
    token = (
        ApiToken.objects.select_related("tenant", "user", "service_account").filter(public_id=parsed.public_id).first()
    )
    if token is None or not secret_matches(parsed, token.secret_hash) or not token.is_usable:
        return None
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - _LAST_USED_RESOLUTION:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer hw_<env>_<id>_<secret>`."""

    def authenticate(self, request: Request) -> tuple[TokenActor, ApiToken] | None:
        """Return the actor; None when there is no bearer token; raises AuthenticationFailed for a wrong one."""
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token_authenticate(text.strip())
        if token is None:
            raise AuthenticationFailed("The token is unknown, revoked or expired.")
        return TokenActor(token), token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="highwater"'


class ConsoleSessionAuthentication(SessionAuthentication):
    """The console's session cookie; unsafe methods need the CSRF token."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        """Return the session's user, with when its second factor was given; None without a session."""
        found: tuple[User, None] | None = super().authenticate(request)
        if found is not None:
            session_factor_take(request._request, found[0])
        return found


class TokenAuthenticationScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped upstream
    """Describes bearer tokens in the OpenAPI document."""

    target_class = "controlplane.accounts.authentication.TokenAuthentication"
    name = "bearerToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "hw_<env>_<id>_<secret>"}


class SessionAuthenticationScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped upstream
    """Describes the console's cookie in the OpenAPI document."""

    target_class = "controlplane.accounts.authentication.ConsoleSessionAuthentication"
    name = "consoleSession"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
