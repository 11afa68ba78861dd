"""The steps between a right password, or a provider's word, and the log-in."""

from typing import Any

from allauth.mfa.stages import AuthenticateStage

from controlplane.accounts.fresh_factor import FACTOR_BY_PROVIDER


class FactorStage(AuthenticateStage):  # type: ignore[misc]  # untyped upstream
    """Asks for the account's second factor, also after a provider's word, unless the provider has asked for one itself."""

    def handle(self) -> tuple[Any, bool]:
        identity = (self.login.signal_kwargs or {}).get("sociallogin")
        if identity is not None and identity.state.get("gave_factor") is True:
            if self.login.user is not None:
                self.request.session[FACTOR_BY_PROVIDER] = str(self.login.user.pk)
            return None, True
        handled: tuple[Any, bool] = super().handle()
        return handled
