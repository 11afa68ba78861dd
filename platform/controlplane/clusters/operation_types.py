"""The kinds of operations. Without rows: the simulation (tests/sim) walks the lists of their steps."""

from django.db import models


class OperationType(models.TextChoices):
    """What an operation does."""

    CLUSTER_CREATE = "cluster.create"
    CLUSTER_DELETE = "cluster.delete"
    CLUSTER_SUSPEND = "cluster.suspend"
    CLUSTER_RESUME = "cluster.resume"
    CLUSTER_GROW = "cluster.grow"
    CLUSTER_MODE = "cluster.mode"
    CLUSTER_RESTART = "cluster.restart"
    CLUSTER_UPGRADE = "cluster.upgrade"
    CLUSTER_CA = "cluster.ca"
    GROUP_PROMOTE = "group.promote"
    GROUP_SWITCHOVER = "group.switchover"
    GROUP_DRILL = "group.drill"
    # Of groups that elect their leader.
    GROUP_TRANSFER = "group.transfer"
    GROUP_PREFER = "group.prefer"
    GROUP_REPLACE = "group.replace"
    GROUP_GROW = "group.grow"
    GROUP_SHRINK = "group.shrink"
    GROUP_RECOVER = "group.recover"
