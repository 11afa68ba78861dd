from django.apps import AppConfig


class InsightConfig(AppConfig):
    name = "controlplane.insight"
    label = "insight"
