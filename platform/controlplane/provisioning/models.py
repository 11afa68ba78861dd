"""Ports that are given out, and what hosts had and used. A unique row is a port's lock: two workers can't lease one."""

from typing import Any, ClassVar

from django.db import models

from controlplane.common.models import BaseModel


class HostSample(models.Model):
    """What a host of daemons had and used at one moment; a day of them is kept. Null: the host did not tell.

    Processor times are counted since the host's start. `daemons` has each daemon that ran, by its process' name: its `life`
    (another word after each start), `cpu_s`, `memory_bytes`, `read_bytes`, `written_bytes` and `descriptors`, counted since then.
    """

    id = models.BigAutoField(primary_key=True)
    host = models.CharField(max_length=253)
    sampled_at = models.DateTimeField(db_index=True)
    cores = models.PositiveIntegerField()
    cpu_busy_s = models.FloatField()
    cpu_total_s = models.FloatField()
    load = models.FloatField(null=True)
    memory_bytes = models.BigIntegerField()
    memory_available_bytes = models.BigIntegerField()
    disk_bytes = models.BigIntegerField()
    disk_free_bytes = models.BigIntegerField()
    descriptors = models.BigIntegerField(null=True)
    descriptors_max = models.BigIntegerField(null=True)
    daemons: Any = models.JSONField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["host", "-sampled_at"], name="host_sample_latest")]

    def __str__(self) -> str:
        return f"{self.host} at {self.sampled_at:%Y-%m-%d %H:%M:%S}"


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
