from django.apps import AppConfig


class FailoverConfig(AppConfig):
    name = "controlplane.failover"
    label = "failover"

    def ready(self) -> None:
        """Give the operation machine the steps of this app."""
        from controlplane.failover import mode_steps, quorum_steps, steps
        from controlplane.provisioning.steps import STEPS

        STEPS.update({**steps.STEPS, **quorum_steps.STEPS, **mode_steps.STEPS})
