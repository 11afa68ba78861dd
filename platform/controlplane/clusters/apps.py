from django.apps import AppConfig


class ClustersConfig(AppConfig):
    name = "controlplane.clusters"
    label = "clusters"

    def ready(self) -> None:
        from controlplane.clusters.credential_services import KeyPairs
        from controlplane.tenants.known_secrets import secret_source_register

        secret_source_register(KeyPairs())
