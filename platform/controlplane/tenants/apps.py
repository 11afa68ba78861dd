from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "controlplane.tenants"
    label = "tenants"

    def ready(self) -> None:
        from controlplane.tenants.known_secrets import secret_source_register
        from controlplane.tenants.token_services import AccountTokens

        secret_source_register(AccountTokens())
