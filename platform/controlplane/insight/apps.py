from django.apps import AppConfig


class InsightConfig(AppConfig):
    name = "controlplane.insight"
    label = "insight"

    def ready(self) -> None:
        """Give the operation machine the steps of this app."""
        from controlplane.insight.deletion_steps import STEPS
        from controlplane.provisioning import steps

        steps.STEPS.update(STEPS)
