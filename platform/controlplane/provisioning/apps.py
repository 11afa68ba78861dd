from django.apps import AppConfig


class ProvisioningConfig(AppConfig):
    name = "controlplane.provisioning"
    label = "provisioning"

    def ready(self) -> None:
        from controlplane.clusters.account_distribution import distribution_register
        from controlplane.clusters.own_addresses import leader_addresses_register
        from controlplane.clusters.room import room_check_register
        from controlplane.provisioning.accounts import accounts_distribute
        from controlplane.provisioning.hosts import room_require
        from controlplane.provisioning.ports import leader_addresses

        distribution_register(accounts_distribute)
        leader_addresses_register(leader_addresses)
        room_check_register(room_require)
