"""`manage.py failover_drill TENANT CLUSTER GROUP --confirm GROUP`: stop a group's leader on purpose, wait, and print the report."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.accounts.actors import SystemActor
from controlplane.clusters.models import OperationState
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.failover.drill.plan import DrillPlan
from controlplane.failover.drill.services import drill_preview, drill_start
from controlplane.failover.models import Drill, DrillFault, DrillVerdict
from controlplane.failover.selectors import drill_get, group_get, timeline_of
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant

_LOOK_S = 0.5
# Longer than all its steps may take.
_LONGEST_S = 1800


class Command(BaseCommand):
    help = (
        "Stop a broker group's leader on purpose, and measure the outage and the losses. Without --confirm it only says what"
        " would happen. Exits with 0 when the drill passed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's slug")
        parser.add_argument("cluster", help="the cluster's slug")
        parser.add_argument("group", help="the broker group's name")
        parser.add_argument("--confirm", default="", help="the broker group's name again: begin")
        parser.add_argument("--fault", choices=DrillFault.values, default=DrillFault.KILL)
        parser.add_argument("--give-back", action="store_true", help="have the old leader lead again afterwards")

    def handle(self, *args: Any, **options: Any) -> str:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"There is no tenant {options['tenant']!r}.")
        fault, gives_back = DrillFault(options["fault"]), bool(options["give_back"])
        try:
            cluster = cluster_get(tenant, options["cluster"])
            group, driver = group_get(cluster, options["group"]), get_driver()
            if not options["confirm"]:
                return _plan_words(
                    drill_preview(cluster=cluster, group=group, driver=driver, gives_back=gives_back, fault=fault)
                )
            drill = drill_start(
                actor=SystemActor("command line"),
                cluster=cluster,
                group=group,
                driver=driver,
                gives_back=gives_back,
                fault=fault,
                confirm=options["confirm"],
            )
            deadline = time.monotonic() + _LONGEST_S
            while (drill := drill_get(cluster, drill.pk)).state == OperationState.IN_PROGRESS:
                if time.monotonic() > deadline:
                    raise CommandError(f"The drill goes on; see {drill.path}")
                time.sleep(_LOOK_S)
        except ApplicationError as error:
            raise CommandError(str(error)) from error
        return self._result_of(drill)

    def _result_of(self, drill: Drill) -> str:
        for line in timeline_of(drill.failover):
            self.stdout.write(f"{line.after_ms / 1000:8.2f} s  {line.title}: {line.detail}")
        if drill.state == OperationState.FAILED:
            raise CommandError(f"The drill failed: {(drill.operation.error or {}).get('cause', 'no cause is known')}")
        if drill.verdict != DrillVerdict.PASSED:
            raise CommandError(f"{drill.get_verdict_display()}: {drill.verdict_because}")
        return f"{drill.get_verdict_display()}: {drill.verdict_because}"


def _plan_words(plan: DrillPlan) -> str:
    if plan.problems:
        raise CommandError(f"A drill is not possible now. {' '.join(plan.problems)}")
    steps = [f"{number}. {step.title}: {step.does}" for number, step in enumerate(plan.steps, 1)]
    return "\n".join([*steps, f"Nothing was changed. Begin with --confirm {plan.group}"])
