from django.apps import AppConfig


class FailoverConfig(AppConfig):
    name = "controlplane.failover"
    label = "failover"

    def ready(self) -> None:
        """Give the operation machine the steps of this app."""
        from controlplane.failover.drill.steps import STEPS as OF_DRILL
        from controlplane.failover.membership.steps import STEPS as OF_MEMBERSHIP
        from controlplane.failover.mode.steps import STEPS as OF_MODE
        from controlplane.failover.promotion.steps import STEPS as OF_PROMOTION
        from controlplane.failover.resume_steps import STEPS as OF_RESUME
        from controlplane.failover.rolling.steps import STEPS as OF_ROLLING
        from controlplane.provisioning.steps import STEPS

        STEPS.update({**OF_PROMOTION, **OF_MEMBERSHIP, **OF_MODE, **OF_DRILL, **OF_RESUME, **OF_ROLLING})
