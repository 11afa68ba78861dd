"""What is true in every environment. Values that differ come from the environment (django-environ).

What the environment may set stands in table.py, and is printed as docs/settings.md.
"""

from pathlib import Path
from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.accounts.identity_settings import IdentityProvider, identity_providers_read
from controlplane.common.logging import logging_configuration
from controlplane.settings.table import env, value

ROOT_DIR = Path(__file__).resolve().parents[3]
STATE_DIR = Path(ROOT_DIR, value("HIGHWATER_STATE_DIR")).resolve()

# --- Highwater's own -------------------------------------------------------------------------------------------------
HIGHWATER_ENVIRONMENT = "local"  # the <env> part of API tokens: hw_<env>_<id>_<secret>
HIGHWATER_STATE_DIR = STATE_DIR
# Networks beside the public internet to which tenants may have alerts sent, by plain http, too: 10.0.0.0/8,192.168.1.5/32
# What is no network stops the start: else each message would fail.
HIGHWATER_WEBHOOK_NETWORKS: list[str] = value("HIGHWATER_WEBHOOK_NETWORKS")
HIGHWATER_SUPERVISOR_SOCKET: str = value("HIGHWATER_SUPERVISOR_SOCKET") or str(
    STATE_DIR / "supervisor" / "supervisor.sock"
)
HIGHWATER_PUBLIC_URL = value("HIGHWATER_PUBLIC_URL")
HIGHWATER_ADVERTISED_HOST = value("HIGHWATER_ADVERTISED_HOST")
HIGHWATER_DRIVER = "controlplane.provisioning.drivers.local.LocalDriver"
# Outside the usual ephemeral range (32768-60999), so that an outgoing connection does not sit on a leased port.
HIGHWATER_PORT_RANGE = value("HIGHWATER_PORT_RANGE")
HIGHWATER_DAEMON_COMMANDS: dict[str, list[str]] = {}  # daemon -> command line; default: this Python, `-m` daemon
HIGHWATER_REMOTING_TIMEOUT_MS = 3000  # of every request to a name server or broker
HIGHWATER_REMOTING_PATIENCE_MS = 9000  # for all daemons of a cluster that do not answer, each time it is worked on
HIGHWATER_REMOTING_TOTAL_MS = 20_000  # that one web request waits for a cluster's daemons, whether these answer or not
# Of each web process (granian's --blocking-threads): so many requests it answers at once, and clusters that hang get not all.
HIGHWATER_WEB_THREADS = value("HIGHWATER_WEB_THREADS")
# How long a worker that runs a step may be silent before another takes it over. It renews its claim four times as often.
HIGHWATER_STEP_LEASE_S = value("HIGHWATER_STEP_LEASE_S")
# How often a cluster's brokers record their usage (meteringIntervalMs); a new value counts when a broker next starts.
HIGHWATER_METERING_INTERVAL_MS = value("HIGHWATER_METERING_INTERVAL_MS")

# What a tenant may have; `manage.py set_limit` gives one tenant more or less. What follows the fourth is kept by each broker:
# rates and connections by access key, rates by topic, its topics (also those that clients make), queues and groups, and what it
# stores in all.
HIGHWATER_LIMITS: dict[str, int] = {
    "clusters": 10,
    "brokers": 30,
    "stored_gib": 1200,  # all brokers together: as many as above, each with stored_bytes
    "topics_per_cluster": 2000,
    "credentials_per_cluster": 100,
    "operations_at_once": 3,
    "messages_per_second": 50_000,
    "bytes_per_second": 128 * 1024 * 1024,
    "connections": 5_000,
    "held_pulls": 20_000,
    "topics": 5_000,
    "queues": 50_000,
    "groups": 10_000,
    "stored_bytes_per_topic": 20 * 1024**3,
    "stored_bytes": 40 * 1024**3,
}
# Where the platform runs as root, each cluster's daemons run as the OS user of this number and a port of theirs; 0: as root.
HIGHWATER_DAEMON_USERS = value("HIGHWATER_DAEMON_USERS")
# Where the platform may make control groups, each daemon takes so much memory, page cache included; 0: without limits.
HIGHWATER_DAEMON_MEMORY_MIB = value("HIGHWATER_DAEMON_MEMORY_MIB")
HIGHWATER_DAEMON_IO_MIB_PER_S = value("HIGHWATER_DAEMON_IO_MIB_PER_S")
HIGHWATER_MEMORY_OVERCOMMIT = value("HIGHWATER_MEMORY_OVERCOMMIT")
HIGHWATER_DISK_OVERCOMMIT = value("HIGHWATER_DISK_OVERCOMMIT")
HIGHWATER_TENANTS_PER_USER = value("HIGHWATER_TENANTS_PER_USER")

# --- Spark's jobs ----------------------------------------------------------------------------------------------------
HIGHWATER_JOBS = value("HIGHWATER_JOBS")  # on, off, or auto: as soon as PySpark and Java are there
HIGHWATER_SPARK_SETUP = ""  # a file that says how far the installation of Spark is, where the platform does that itself
# Here, with all cores; a task is tried four times, as on a cluster: on a busy machine its Python process may start too late.
HIGHWATER_SPARK_MASTER = value("HIGHWATER_SPARK_MASTER")
# Spark's settings: a JSON object, or the path of a file that holds one.
HIGHWATER_SPARK_CONF: str | dict[str, str] = value("HIGHWATER_SPARK_CONF")
HIGHWATER_LAKE = value("HIGHWATER_LAKE") or str(STATE_DIR / "lake")
HIGHWATER_CHECKPOINTS = value("HIGHWATER_CHECKPOINTS") or str(STATE_DIR / "checkpoints")
HIGHWATER_JOB_COMMAND = ["{python}", "-m", "spark_etl.jobs.{job}"]  # --config FILE --result FILE follow
HIGHWATER_JOB_TIMEOUT_S = value("HIGHWATER_JOB_TIMEOUT_S")
HIGHWATER_JOB_TIMEOUT_PER_DAY_S = value("HIGHWATER_JOB_TIMEOUT_PER_DAY_S")  # more, a day of a backfill
# One Spark session stays up between runs and is given back after so long without one; 0: a process for each run.
HIGHWATER_JOB_RESIDENT_IDLE_S = value("HIGHWATER_JOB_RESIDENT_IDLE_S")
HIGHWATER_LAKE_NAMESPACE = value("HIGHWATER_LAKE_NAMESPACE")  # of the lake's tables in their catalog
HIGHWATER_LAKE_DAYS = value("HIGHWATER_LAKE_DAYS")  # metering records; a backfill reaches no further
HIGHWATER_QUARANTINE_DAYS = value("HIGHWATER_QUARANTINE_DAYS")
HIGHWATER_LAKE_SNAPSHOT_HOURS = value("HIGHWATER_LAKE_SNAPSHOT_HOURS")  # versions no invoice refers to
HIGHWATER_LAKE_ORPHAN_HOURS = value("HIGHWATER_LAKE_ORPHAN_HOURS")  # files that killed runs left
HIGHWATER_JOB_INTERVALS_S: dict[str, int] = value("HIGHWATER_JOB_INTERVALS_S")
HIGHWATER_LATE_WINDOW_HOURS = 48  # so long a closed hour takes late records; an invoice is issued after that
HIGHWATER_DELETE_UNDO_HOURS = value("HIGHWATER_DELETE_UNDO_HOURS")
HIGHWATER_RETENTION_HOURS = 72  # brokers' fileReservedTime, as provisioning renders it
HIGHWATER_LAG_HISTORY_DAYS = 30
HIGHWATER_JOB_RUN_HISTORY_DAYS = value("HIGHWATER_JOB_RUN_HISTORY_DAYS")

# --- Django ----------------------------------------------------------------------------------------------------------
DEBUG = False
ALLOWED_HOSTS: list[str] = []
ROOT_URLCONF = "controlplane.urls"
WSGI_APPLICATION = "controlplane.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.usersessions",
    "django_celery_beat",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # Swagger UI's files
    "rest_framework",
    "rules.apps.AutodiscoverRulesConfig",
    "controlplane.common",
    "controlplane.accounts",
    "controlplane.tenants",
    "controlplane.clusters",
    "controlplane.topics",
    "controlplane.consumers",
    "controlplane.provisioning",
    "controlplane.failover",
    "controlplane.insight",
    "controlplane.billing",
    "controlplane.alerts",
    "controlplane.status",
    "controlplane.console",
]

MIDDLEWARE = [
    "controlplane.common.middleware.BrowserPolicyMiddleware",
    "controlplane.common.middleware.RequestContextMiddleware",
    "controlplane.clusters.waiting.WaitsMiddleware",
    "controlplane.common.https.HttpsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "controlplane.accounts.session_middleware.SessionCookieMiddleware",
    "controlplane.common.middleware.LanguageMiddleware",
    "controlplane.common.in_flight.InFlightMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "controlplane.accounts.session_middleware.SessionUseMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.common.middleware.WrongMethodPageMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT_DIR / "web" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES: dict[str, Any] = {"default": env.db_url_config(value("DATABASE_URL"))}
DATABASES["default"].update(CONN_MAX_AGE=60, CONN_HEALTH_CHECKS=True)

REDIS_URL = value("REDIS_URL")
CACHES: dict[str, Any] = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "hw:json",
        # Only rate limits are in it: a page waits a moment for them, not longer.
        "OPTIONS": {
            "serializer": "controlplane.common.cache_values.JsonSerializer",
            "socket_timeout": 1,
            "socket_connect_timeout": 1,
            "retry": Retry(NoBackoff(), 1),
        },
    }
}

# --- language and time -----------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
USE_I18N = True
LOCALE_PATHS = [str(STATE_DIR / "locale")]  # made of web/locale when a process starts
LANGUAGE_COOKIE_NAME = "language"
USE_TZ = True
TIME_ZONE = "UTC"

# --- static files ----------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = STATE_DIR / "static"
STATICFILES_DIRS = [ROOT_DIR / "web" / "static"]
WHITENOISE_ALLOW_ALL_ORIGINS = False  # pages of others load none of them
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# --- accounts --------------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = [
    "rules.permissions.ObjectPermissionBackend",
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "controlplane.accounts.password_words.WordsValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "controlplane.accounts.adapter.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
# Whom people may log in with beside their password: a JSON list, or the path of a file that holds one (docs/operations.md).
HIGHWATER_IDENTITY_PROVIDERS: tuple[IdentityProvider, ...] = identity_providers_read(
    value("HIGHWATER_IDENTITY_PROVIDERS")
)
# Who may make an account: `open` to all, by an identity provider only (`identity`), or no one (`closed`).
HIGHWATER_SIGN_UP = value("HIGHWATER_SIGN_UP")
SOCIALACCOUNT_ADAPTER = "controlplane.accounts.identities.IdentityAdapter"
SOCIALACCOUNT_AUTO_SIGNUP = False  # who is not known yet says whether to make an account, or to connect it to one
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # a provider's word for an address opens no account
ACCOUNT_REAUTHENTICATION_REQUIRED = True  # before addresses of the account change
SOCIALACCOUNT_REAUTHENTICATION_REQUIRED = True
SOCIALACCOUNT_STORE_TOKENS = False
MFA_ADAPTER = "controlplane.accounts.second_factor.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_FORMS = {
    "activate_totp": "controlplane.accounts.totp_form.AppForm",
    "add_webauthn": "controlplane.accounts.passkey_forms.PasskeyAddForm",
    "edit_webauthn": "controlplane.accounts.passkey_forms.PasskeyRenameForm",
    "login_webauthn": "controlplane.accounts.passkey_forms.PasskeyLogInForm",
}
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = "highwater@localhost"
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Highwater] "
ACCOUNT_SESSION_REMEMBER = None  # the log-in page asks
ACCOUNT_FORMS = {"login": "controlplane.accounts.log_in_form.LogInForm"}
# A session ends after so long without use, and at last by its age; longer where its user chose to stay logged in.
HIGHWATER_SESSION_IDLE_MINUTES = value("HIGHWATER_SESSION_IDLE_MINUTES")
HIGHWATER_SESSION_HOURS = value("HIGHWATER_SESSION_HOURS")
HIGHWATER_REMEMBERED_IDLE_DAYS = value("HIGHWATER_REMEMBERED_IDLE_DAYS")
HIGHWATER_REMEMBERED_DAYS = value("HIGHWATER_REMEMBERED_DAYS")
SESSION_ENGINE = "controlplane.accounts.session_store"
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
SESSION_COOKIE_AGE = ACCOUNT_SESSION_COOKIE_AGE = HIGHWATER_REMEMBERED_DAYS * 24 * 3600
ACCOUNT_LOGOUT_ON_GET = False
# The only known proxy count is none: a forged X-Forwarded-For must not reset allauth's rate limits.
ALLAUTH_TRUSTED_PROXY_COUNT = value("HIGHWATER_TRUSTED_PROXIES")

# --- security --------------------------------------------------------------------------------------------------------
SESSION_COOKIE_HTTPONLY = True
# Where all is HTTPS, each cookie's name begins with __Host- (production.py): no other host of the domain can set it.
HIGHWATER_BROWSER_COOKIE_NAME = "browser"  # by which a browser is known that an account was used with
HIGHWATER_THEME_COOKIE_NAME = "theme"
HIGHWATER_MESSAGES_COOKIE_NAME = "messages"  # what the next page tells once
MESSAGE_STORAGE = "controlplane.common.message_cookies.MessageStorage"
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024  # a test message may carry RocketMQ's 4 MiB, base64 adds a third
FILE_UPLOAD_HANDLERS = ["controlplane.common.uploads.SmallUploadHandler"]

# --- REST ------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "controlplane.accounts.authentication.TokenAuthentication",
        "controlplane.accounts.authentication.ConsoleSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.common.parsers.JsonParser"],
    "DEFAULT_PAGINATION_CLASS": "controlplane.common.pagination.CursorPagination",
    "DEFAULT_THROTTLE_CLASSES": [
        "controlplane.common.throttling.ApiThrottle",
        "controlplane.common.throttling.TenantThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {"api": "1200/min", "anonymous": "120/min"},
    "DEFAULT_SCHEMA_CLASS": "controlplane.common.schema.ApiSchema",
    "EXCEPTION_HANDLER": "controlplane.common.problems.problem_exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "NUM_PROXIES": value("HIGHWATER_TRUSTED_PROXIES"),
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Highwater",
    "DESCRIPTION": "Clusters, topics, credentials and messages of hosted RocketMQ-compatible queues."
    " It answers in English whatever language the console is in: programs go by a problem's `code`, not by its title or detail."
    "\n\nWhat is here stays: `/api/v1` only grows. What will go is marked as deprecated here and answers as before for at least"
    " 180 days, with the headers `Deprecation` (RFC 9745) and `Sunset` (RFC 8594). The whole policy: docs/api.md.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    # Swagger UI stops drawing, without a word, somewhere past 125 operations that are all open; closed groups are quick as well.
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "docExpansion": "none",
        "filter": True,
        "defaultModelsExpandDepth": 0,
    },
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "MemberRole": "controlplane.tenants.models.Role",
        "CredentialRole": "controlplane.clusters.models.CredentialRole",
        "ClusterState": "controlplane.clusters.models.ClusterState",
        "CredentialState": "controlplane.clusters.models.CredentialState",
        "OperationState": "controlplane.clusters.models.OperationState",
        "StepState": "controlplane.clusters.models.StepState",
        "TopicState": "controlplane.topics.models.TopicState",
        "MessageType": "controlplane.topics.models.MessageType",
        "NewMessageType": "controlplane.topics.services.MESSAGE_TYPES",
        "Health": "controlplane.clusters.models.Health",
        "InvoiceState": "controlplane.billing.models.InvoiceState",
        "CaStep": ["trust_next", "sign_by_next", "drop_former"],
        "InvitationState": ["pending", "expired"],
        "LiveState": ["live", "not_running", "unreachable", "skipped"],
        "JobRunState": "controlplane.insight.models.JobRunState",
        "ReplayTarget": "controlplane.consumers.models.ReplayTarget",
        "ReplayState": "controlplane.consumers.models.ReplayState",
        "SendingOutcome": "controlplane.consumers.paced.OUTCOMES",
        "AlertState": ["firing", "resolved"],
        "ChannelKind": "controlplane.alerts.models.ChannelKind",
        "DeliveryState": "controlplane.alerts.models.DeliveryState",
        "AlertKind": "controlplane.alerts.kinds.KIND_CHOICES",
        "AlertSeverity": "controlplane.alerts.kinds.SEVERITY_CHOICES",
        "MaskedPart": "controlplane.topics.models.MaskedPart",
        "PlatformPart": "controlplane.status.models.Part",
        "PlatformPartState": "controlplane.status.serializers.PART_STATES",
        "IncidentImpact": "controlplane.status.models.Impact",
        "ServiceAccountState": "controlplane.tenants.serializers.ACCOUNT_STATES",
        "ServiceAccountRole": "controlplane.tenants.serializers.ACCOUNT_ROLES",
        "IncidentState": "controlplane.status.models.IncidentState",
        "MaintenanceState": "controlplane.status.serializers.MAINTENANCE_STATES",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "controlplane.common.schema.add_problems",
        "controlplane.common.schema.add_examples",
        "controlplane.common.schema.add_refusals",
        "controlplane.common.schema_links.add_links",
        "controlplane.alerts.webhook_description.add_webhooks",
    ],
}

# --- Celery ----------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = None  # results are rows: operations and their steps
CELERY_TASK_IGNORE_RESULT = True
# A step that hangs: its worker is killed, no longer renews the claim, and another worker tries.
CELERY_TASK_TIME_LIMIT = 55
CELERY_TASK_SOFT_TIME_LIMIT = 45
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A worker whose processes are all busy takes nothing that another could begin at once, such as a promotion's step.
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 600, "socket_timeout": 5, "socket_connect_timeout": 5}
# A request does not wait long for a broken queue: beat sends again what the rows say.
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
# Who finds and replaces a dead master waits for nothing else: a failover's steps get this queue where they are sent.
FAILOVER_QUEUE = "failovers"
CELERY_TASK_ROUTES = {
    "insight.job_run": {"queue": "jobs"},
    "billing.invoice_reproduce": {"queue": "jobs"},
    # Strangers' receivers may be slow: they keep no operation waiting.
    "alerts.deliver": {"queue": "deliveries"},
    "failover.clusters_sample": {"queue": FAILOVER_QUEUE},
    "failover.cluster_sample": {"queue": FAILOVER_QUEUE},
}
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_SCHEDULE: dict[str, Any] = {
    "operations-resume": {
        "task": "provisioning.operations_resume",
        "schedule": HIGHWATER_STEP_LEASE_S / 2,
        "options": {"expires": HIGHWATER_STEP_LEASE_S},
    },
    "clusters-sample-health": {
        "task": "provisioning.clusters_sample_health",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    "consumers-replays-resume": {
        "task": "consumers.replays_resume",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    "failover-diverged-resends-resume": {
        "task": "failover.diverged_resends_resume",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    "failover-drill-windows-look": {
        "task": "failover.drill_windows_look",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "clusters-purge": {"task": "provisioning.clusters_purge", "schedule": 60.0, "options": {"expires": 60}},
    "hosts-sample": {"task": "provisioning.hosts_sample", "schedule": 60.0, "options": {"expires": 60}},
    "certificates-renew": {"task": "provisioning.certificates_renew", "schedule": 3600.0, "options": {"expires": 3600}},
    "failover-clusters-sample": {
        "task": "failover.clusters_sample",
        "schedule": 3.0,
        "options": {"expires": 3},
    },
    "insight-jobs-dispatch": {"task": "insight.jobs_dispatch", "schedule": 15.0, "options": {"expires": 15}},
    "insight-log-samples-take": {"task": "insight.log_samples_take", "schedule": 60.0, "options": {"expires": 60}},
    "insight-log-samples-expire": {"task": "insight.log_samples_expire", "schedule": 3600.0},
    "insight-figures-sample": {"task": "insight.figures_sample", "schedule": 15.0, "options": {"expires": 15}},
    "insight-figures-expire": {"task": "insight.figures_expire", "schedule": 600.0, "options": {"expires": 600}},
    "insight-lag-windows-expire": {"task": "insight.lag_windows_expire", "schedule": 3600.0},
    "insight-job-runs-expire": {"task": "insight.job_runs_expire", "schedule": 3600.0},
    "alerts-evaluate": {"task": "alerts.evaluate", "schedule": 15.0, "options": {"expires": 15}},
    "alerts-deliveries-resume": {
        "task": "alerts.deliveries_resume",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    # A worker of each queue says that it lives; Spark's are long at work, and are judged by their runs.
    **{
        f"status-worker-beat-{queue}": {
            "task": "status.worker_beat",
            "args": (queue,),
            "schedule": 30.0,
            "options": {"queue": queue, "expires": 30},
        }
        for queue in ("celery", FAILOVER_QUEUE, "deliveries")
    },
    "alerts-expire": {"task": "alerts.expire", "schedule": 3600.0},
    "accounts-notices-mail": {"task": "accounts.notices_mail", "schedule": 60.0, "options": {"expires": 60}},
    "accounts-sessions-expire": {"task": "accounts.sessions_expire", "schedule": 3600.0},
    "tenants-invitations-mail": {"task": "tenants.invitations_mail", "schedule": 60.0, "options": {"expires": 60}},
    "billing-budgets-check": {"task": "billing.budgets_check", "schedule": 60.0, "options": {"expires": 60}},
    "billing-invoices-issue": {"task": "billing.invoices_issue", "schedule": 3600.0, "options": {"expires": 3600}},
    "billing-subscriptions-default": {
        "task": "billing.subscriptions_default",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "idempotency-records-expire": {"task": "common.idempotency_records_expire", "schedule": 3600.0},
}

# --- logs ------------------------------------------------------------------------------------------------------------
LOGGING = logging_configuration(level=value("HIGHWATER_LOG_LEVEL"), json_lines=False)
