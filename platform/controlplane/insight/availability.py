"""Whether Spark's jobs can run where this process runs."""

import importlib.util
import os
import shutil

from django.conf import settings


def jobs_problem() -> str:
    """Return why no job is scheduled here, in a sentence; empty when they are.

    HIGHWATER_JOBS is `on`, `off`, or `auto`: on where PySpark and Java are found.
    """
    if settings.HIGHWATER_JOBS == "on":
        return ""
    if settings.HIGHWATER_JOBS == "off":
        return "Jobs are switched off (HIGHWATER_JOBS=off)."
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed here; install the dependency group `etl`."
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "No Java was found here; install one, or set JAVA_HOME."
    return ""
