from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "controlplane.alerts"
    label = "alerts"

    def ready(self) -> None:
        from controlplane.alerts.channels import MadeChannels
        from controlplane.tenants.known_secrets import secret_source_register

        secret_source_register(MadeChannels())
