from django.apps import AppConfig


class StatusConfig(AppConfig):
    name = "controlplane.status"
    label = "status"
