"""`./dev up`: one machine, loopback only, plain HTTP, no mail server."""

from urllib.parse import urlsplit

from controlplane.settings.base import *  # noqa: F403  # settings are layered by star import in Django
from controlplane.settings.base import HIGHWATER_PUBLIC_URL, STATE_DIR
from controlplane.settings.table import value

SECRET_KEY = value("SECRET_KEY")
ALLOWED_HOSTS = sorted({"127.0.0.1", "localhost", "[::1]", urlsplit(HIGHWATER_PUBLIC_URL).hostname or "localhost"})
CSRF_TRUSTED_ORIGINS = [HIGHWATER_PUBLIC_URL]

# Files are served straight from web/static, so that an edited file shows on reload without collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# Someone has just started it and wants to see figures: records twice a minute.
HIGHWATER_METERING_INTERVAL_MS = value("HIGHWATER_METERING_INTERVAL_MS", default="30000")
# Each task that runs at the same time has a Python process of its own: however many cores there are, two will do.
HIGHWATER_SPARK_MASTER = value("HIGHWATER_SPARK_MASTER", default="local[2,4]")
# A session that is small and quiet between its runs; `python -m tests.bench.quiet` measures it. For many clusters or a
# large backfill give it memory and Java's full compiler instead.
HIGHWATER_SPARK_CONF = value("HIGHWATER_SPARK_CONF") or {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # Of the small frames that the jobs make of their own lists: each part is a Python process.
    "spark.default.parallelism": "1",
    "spark.driver.extraJavaOptions": (
        "-Duser.timezone=UTC -XX:ActiveProcessorCount=2 -XX:+UseSerialGC -Xms128m -Xmn32m"
        " -XX:MinHeapFreeRatio=15 -XX:MaxHeapFreeRatio=40 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=96m"
    ),
}
HIGHWATER_SPARK_SETUP = str(STATE_DIR / "spark" / "setup.json")
HIGHWATER_JOB_COMMAND = [
    "{python}",
    "-m",
    "deploy.local.etl",
    "{job}",
]  # with the PySpark and the Java that were installed

# A file each, in a folder that `./dev up` makes for its user alone: the log would keep links that reset passwords.
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = str(STATE_DIR / "mail")
ACCOUNT_EMAIL_VERIFICATION = "none"  # there is no mail server on a laptop
