from django.apps import AppConfig


class ConsumersConfig(AppConfig):
    name = "controlplane.consumers"
    label = "consumers"
