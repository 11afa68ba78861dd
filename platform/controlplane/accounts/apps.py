from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "controlplane.accounts"
    label = "accounts"

    def ready(self) -> None:
        """Connect the receivers that write changes of second factors and identities into the audit trail."""
        from controlplane.accounts import identities, second_factor  # noqa: F401  # need the models
