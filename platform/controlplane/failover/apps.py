from django.apps import AppConfig


class FailoverConfig(AppConfig):
    name = "controlplane.failover"
    label = "failover"

    def ready(self) -> None:
        """Give the operation machine the steps of this app."""
        from controlplane.failover.steps import STEPS
        from controlplane.provisioning import steps

        steps.STEPS.update(STEPS)
