from django.apps import AppConfig


class ProvisioningConfig(AppConfig):
    name = "controlplane.provisioning"
    label = "provisioning"

    def ready(self) -> None:
        from controlplane.clusters.account_distribution import distribution_register
        from controlplane.provisioning.accounts import accounts_distribute

        distribution_register(accounts_distribute)
