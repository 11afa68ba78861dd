"""OpenID Connect as django-allauth's provider, with what it leaves out: the issuer, the nonce and each signature are checked.

django-allauth looks for a module of this name in each app, and for `urls` beside it.
"""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base import Provider
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.utils import generate_code_challenge
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest

from controlplane.accounts.identity_claims import (
    IdentityRefused,
    document_check,
    id_token_claims,
    identity_of,
    nonce_of,
    with_user_info,
)
from controlplane.accounts.identity_settings import IdentityProvider


def identity_provider(provider_id: str) -> IdentityProvider:
    """Return the provider of that id. Raises SocialApp.DoesNotExist."""
    for provider in settings.HIGHWATER_IDENTITY_PROVIDERS:
        if provider.id == provider_id:
            found: IdentityProvider = provider
            return found
    raise SocialApp.DoesNotExist


class IdentityAnswers(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # untyped upstream
    """The requests to a provider, and what its answers mean. OAuth2Error and requests' own errors say that there is no log-in."""

    nonce: str

    @property
    def setting(self) -> IdentityProvider:
        return identity_provider(self.provider_id)

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the provider's description of itself, checked; asked for once in a request of ours."""
        if not hasattr(self, "_openid_config"):
            try:
                self._openid_config = document_check(_get(self.setting.document_url), self.setting)
            except IdentityRefused as error:
                raise OAuth2Error(str(error)) from error
        return self._openid_config

    @property
    def basic_auth(self) -> bool:
        """How the client's secret is sent: as the provider wants it, else by HTTP Basic, the standard's default."""
        methods = self.openid_config.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return bool(self.setting.client_secret) and "client_secret_post" not in methods

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: str | None = None
    ) -> Any:
        """Exchange the code, and keep the nonce that its ID token must have."""
        if pkce_code_verifier is None:
            raise OAuth2Error("this log-in was begun without PKCE")
        self.nonce = nonce_of(pkce_code_verifier)
        try:
            return super().get_access_token_data(request, app, client, pkce_code_verifier)
        except (KeyError, ValueError, TypeError) as error:
            raise OAuth2Error(f"its token endpoint answered with nonsense: {error!r}") from error

    def parse_token(self, data: Any) -> SocialToken:
        """Return an empty token: the access token is used at once, and kept nowhere."""
        return SocialToken()

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any) -> SocialLogin:
        """Return who it is, as the ID token says; the address comes from the UserInfo endpoint where the token has none."""
        answer = kwargs["response"]
        try:
            claims = id_token_claims(
                answer.get("id_token"), _get(self.openid_config["jwks_uri"]), self.setting, self.nonce
            )
            if "email" not in claims and self.setting.may_call(self.openid_config.get("userinfo_endpoint")):
                claims = with_user_info(claims, _get(self.profile_url, str(answer["access_token"])))
        except IdentityRefused as error:
            raise OAuth2Error(str(error)) from error
        login = self.get_provider().sociallogin_from_response(request, claims)
        login.gave_factor = self.setting.gave_factor(claims)
        return login


class IdentityLogin(OpenIDConnectProvider):  # type: ignore[misc]  # untyped upstream
    """Begins a log-in, and reads the person out of the claims that were checked."""

    oauth2_adapter_class = IdentityAnswers

    def get_redirect_from_request_kwargs(self, request: HttpRequest) -> dict[str, Any]:
        """Take from the request whether to log in or to connect, and where to go on: no scopes or other parameters."""
        kwargs: dict[str, Any] = Provider.get_redirect_from_request_kwargs(self, request)
        if kwargs["process"] != AuthProcess.CONNECT:
            kwargs["process"] = AuthProcess.LOGIN
        return kwargs

    def get_pkce_params(self) -> dict[str, str]:
        """Return the challenge and its verifier, always, and the nonce that goes with them."""
        parameters: dict[str, str] = generate_code_challenge()
        return {**parameters, "nonce": nonce_of(parameters["code_verifier"])}

    def get_scope(self) -> list[str]:
        return ["openid", "email"]

    def serialize(self) -> dict[str, str]:
        """Return what finds this provider again: its own id, as two may have the same client id."""
        return {"id": self.app.provider_id}

    def extract_uid(self, data: dict[str, Any]) -> str:
        return identity_of(data["iss"], data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, str]:
        """Keep what the list of identities shows."""
        return {"issuer": data["iss"], "subject": data["sub"], "email": str(data.get("email", ""))[:254]}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"email": data["email"] if isinstance(data.get("email"), str) else None}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[EmailAddress]:
        """Return the address that the provider sends; confirmed only where the setting takes its word for the domain."""
        email = data.get("email")
        if not isinstance(email, str) or not email:
            return []
        is_confirmed = data.get("email_verified") is True and identity_provider(self.app.provider_id).confirms(email)
        return [EmailAddress(email=email.lower(), verified=is_confirmed, primary=True)]


def _get(url: str, token: str = "") -> Any:  # nosec B107  # empty: without a token
    with get_adapter().get_requests_session() as session:
        answer = session.get(url, headers={"Authorization": f"Bearer {token}"} if token else None)
        answer.raise_for_status()
        return answer.json()


provider_classes = [IdentityLogin]
