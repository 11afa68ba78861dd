from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "controlplane.accounts"
    label = "accounts"

    def ready(self) -> None:
        """Connect the receivers of log-ins and of changes to second factors and identities."""
        from controlplane.accounts import (  # noqa: F401  # need the models
            account_events,
            identities,
            known_browsers,
            second_factor,
            session_keys,
            session_limits,
        )
