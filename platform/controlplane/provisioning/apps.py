from django.apps import AppConfig


class ProvisioningConfig(AppConfig):
    name = "controlplane.provisioning"
    label = "provisioning"

    def ready(self) -> None:
        from controlplane.clusters.account_distribution import distribution_register
        from controlplane.clusters.own_addresses import leader_addresses_register
        from controlplane.clusters.room import room_check_register
        from controlplane.provisioning.accounts import accounts_distribute
        from controlplane.provisioning.authority_steps import STEPS as OF_AUTHORITY
        from controlplane.provisioning.hosts import room_require
        from controlplane.provisioning.ports import leader_addresses
        from controlplane.provisioning.steps import STEPS

        STEPS.update(OF_AUTHORITY)
        distribution_register(accounts_distribute)
        leader_addresses_register(leader_addresses)
        room_check_register(room_require)
