"""The steps between a right password, or a provider's word, and the log-in."""

from typing import Any

from allauth.mfa.stages import AuthenticateStage


class FactorStage(AuthenticateStage):  # type: ignore[misc]  # untyped upstream
    """Asks for the account's second factor, also after a provider's word, unless the provider has asked for one itself."""

    def handle(self) -> tuple[Any, bool]:
        identity = (self.login.signal_kwargs or {}).get("sociallogin")
        if identity is not None and identity.state.get("gave_factor") is True:
            return None, True
        handled: tuple[Any, bool] = super().handle()
        return handled
