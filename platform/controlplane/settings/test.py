"""For pytest. The database's address is put in by the `postgres_url` fixture, or by DATABASE_URL."""

from controlplane.settings.base import *  # noqa: F403  # settings are layered by star import in Django
from controlplane.settings.base import STATE_DIR
from controlplane.settings.table import value

HIGHWATER_ENVIRONMENT = "test"
SECRET_KEY = value("SECRET_KEY", default="a-key-for-tests-only-that-protects-nothing-at-all-0123456789")
ALLOWED_HOSTS = ["testserver", "127.0.0.1", "localhost"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False  # hundreds of log-ins come from one address
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # argon2's cost is not what tests are about
HIGHWATER_JOBS = "off"
# Nothing listens there. The supervisor of a platform that runs in this checkout would answer for clusters that it does not know.
HIGHWATER_SUPERVISOR_SOCKET = str(STATE_DIR / "supervisor" / "tests.sock")
HIGHWATER_DELETE_UNDO_HOURS = 0.0  # tests of deletions are about the end of it
HIGHWATER_JOB_RESIDENT_IDLE_S = 0.0
CELERY_BROKER_URL = "memory://"
