"""Whether Spark's jobs can run here, and what a page says until their first figures are there."""

import importlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from controlplane.common.sentences import say, say_all
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.insight.spark_setup import SparkSetup, spark_setup_read

SWITCHED_OFF = say("Jobs are switched off (HIGHWATER_JOBS=off).")
SOON = say("Spark is installed. First figures in about 2 minutes.")
LATE = say(
    "Spark is installed, and the first usage is being counted. It takes longer than usual: this machine is busy."
)
SOON_FOR = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why there are no figures yet, in a sentence; `next_try_at` and `way_out` only where something failed."""

    sentence: str
    way_out: str = ""
    next_try_at: datetime | None = None


def jobs_problem() -> str:
    """Return why no job is scheduled here, in a sentence; empty when they are.

    HIGHWATER_JOBS is `on`, `off`, or `auto`: on as soon as Spark and Java are there, which is looked up each time.
    """
    if settings.HIGHWATER_JOBS == "on":
        return ""
    if settings.HIGHWATER_JOBS == "off":
        return SWITCHED_OFF
    setup = spark_setup(timezone.now())
    if setup is not None:
        return "" if setup.is_ready else setup.sentence
    importlib.invalidate_caches()  # it may have been installed since this process looked last
    if importlib.util.find_spec("pyspark") is None:
        return say("PySpark is not installed here; install the dependency group `etl`.")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return say("No Java was found here; install one, or set JAVA_HOME.")
    return ""


def spark_setup(now: datetime) -> SparkSetup | None:
    """Return how far the installation is; None where the platform doesn't install Spark itself."""
    file = settings.HIGHWATER_SPARK_SETUP
    return spark_setup_read(Path(file), now) if file else None


def figures_awaited(now: datetime) -> Waiting | None:
    """Return why usage has not been counted yet; None as soon as it has been, once."""
    usage = JobRun.objects.filter(job=Job.USAGE_BILLING)
    if usage.filter(state=JobRunState.COMPLETED).exists():
        return None
    if settings.HIGHWATER_JOBS == "off":
        return Waiting(say_all(SWITCHED_OFF, say("No usage is counted.")))
    setup = spark_setup(now)
    if setup is not None and not setup.is_ready:
        return Waiting(setup.sentence, setup.way_out, setup.next_try_at)
    problem = jobs_problem()
    if problem:
        return Waiting(say_all(say("No usage is counted."), problem))
    if usage.filter(state=JobRunState.FAILED).exists() and not usage.exclude(state=JobRunState.FAILED).exists():
        return Waiting(
            say(
                "The first count of usage failed. It is tried again in a few minutes; the platform's operators were notified."
            )
        )
    is_late = setup is not None and setup.ready_at is not None and now - setup.ready_at > SOON_FOR
    return Waiting(LATE if is_late else SOON)
