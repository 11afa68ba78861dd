from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "controlplane.accounts"
    label = "accounts"

    def ready(self) -> None:
        """Connect the receivers that write changes of second factors into the audit trail."""
        from controlplane.accounts import second_factor  # noqa: F401  # needs the models
