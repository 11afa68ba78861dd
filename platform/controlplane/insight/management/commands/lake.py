"""`manage.py lake ACTION`: repair the lake, see the runbook in spark_etl/README.md."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from controlplane.common.audit import audit_event_record
from controlplane.insight.job_config import config_of, spark_conf_problem
from controlplane.insight.locks import job_lock
from controlplane.insight.models import JobRun
from controlplane.insight.process import run_job
from mqwire.jobs import JobName

_REPAIR = JobName.REPAIR.value
_DONE = {
    "reread": "The next ingest reads {count} queues from their oldest message. Records that are there are left out.",
    "requeue": "{count} refused messages are records now, and in the lake.",
    "accept": "{count} hours may fall. The next usage_billing counts them again.",
    "migrate": "{count} records were added.",
}


class Command(BaseCommand):
    help = "Repair the lake: read again what is missing, take back what was refused, or let usage fall for a reason."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=sorted(_DONE))
        parser.add_argument("--cluster", action="append", default=[], help="cluster id; several times; none: all")
        parser.add_argument("--from", dest="begin", type=_moment, help="accept: hours from 2026-11-21T13:00+00:00 on")
        parser.add_argument("--to", dest="end", type=_moment, help="accept: hours before this moment")
        parser.add_argument("--reason", default="", help="accept: why usage may fall; it is kept")
        parser.add_argument("--source", default="", help="migrate: the folder or URL of the lake of before")

    def handle(self, *args: Any, **options: Any) -> str:
        action = options["action"]
        problem = spark_conf_problem()
        if problem:
            raise CommandError(problem)
        if (options["begin"] is None) != (options["end"] is None):
            raise CommandError("Give both ends, --from and --to, or neither.")
        run = JobRun(
            job=_REPAIR,
            is_backfill=options["begin"] is not None,
            range_from=options["begin"],
            range_to=options["end"],
        )
        details = {"clusters": options["cluster"], "reason": options["reason"], "source": options["source"]}
        config = {**config_of(run), "repair": {"action": action, "by": "command line", **details}}
        with transaction.atomic():
            audit_event_record(actor="command line", action=f"lake.{action}", resource="lake", details=details)
        with job_lock(_REPAIR) as lock:
            if lock is None:
                raise CommandError("Another repair is at work. Wait until it has ended.")
            # This command has no second job for a session to wait for.
            result = run_job(_REPAIR, config, lock, in_session=False)
        if not result.completed:
            raise CommandError(result.error)
        return _DONE[action].format(count=result.rows_out)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a moment needs its zone")
    return moment
