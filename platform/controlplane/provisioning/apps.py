from django.apps import AppConfig


class ProvisioningConfig(AppConfig):
    name = "controlplane.provisioning"
    label = "provisioning"

    def ready(self) -> None:
        from controlplane.clusters.account_distribution import distribution_register
        from controlplane.clusters.room import room_check_register
        from controlplane.provisioning.accounts import accounts_distribute
        from controlplane.provisioning.hosts import room_require

        distribution_register(accounts_distribute)
        room_check_register(room_require)
