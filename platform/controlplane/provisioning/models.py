"""Ports that are given out. A unique row is the lock: two workers can't lease one port."""

from typing import ClassVar

from django.db import models

from controlplane.common.models import BaseModel


class PortLease(BaseModel):
    """One TCP port of one host, held by a replica or a name server until its cluster is deleted."""

    host = models.CharField(max_length=253)
    port = models.PositiveIntegerField()
    cluster_id = models.UUIDField(db_index=True)
    holder = models.UUIDField(help_text="id of the NameServer or Replica")
    purpose = models.CharField(max_length=32, help_text="listenPort, haListenPort, ...")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["host", "port"], name="port_lease_host_port")]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
