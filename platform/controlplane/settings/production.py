"""Behind TLS. `manage.py check --deploy` is clean with these settings.

Environment, besides base's: SECRET_KEY (>= 50 characters), SECRET_KEY_FALLBACKS (comma-separated, while keys rotate),
ALLOWED_HOSTS, EMAIL_URL, DEFAULT_FROM_EMAIL, HIGHWATER_PUBLIC_URL, HIGHWATER_PROXY_SSL_HEADER (true only behind a
proxy that overwrites X-Forwarded-Proto).
"""

from controlplane.common.logging import logging_configuration
from controlplane.settings.base import *  # noqa: F403  # settings are layered by star import in Django
from controlplane.settings.base import env

HIGHWATER_ENVIRONMENT = "live"
HIGHWATER_PUBLIC_URL = env.str("HIGHWATER_PUBLIC_URL")
SECRET_KEY = env.str("SECRET_KEY")
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = [HIGHWATER_PUBLIC_URL]

SECURE_SSL_REDIRECT = env.bool("HIGHWATER_SSL_REDIRECT", default=True)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]  # probes come over plain HTTP from inside
SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
if env.bool("HIGHWATER_PROXY_SSL_HEADER", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = True
SESSION_COOKIE_NAME = "__Host-sessionid"
HIGHWATER_BROWSER_COOKIE_NAME = "__Host-browser"
CSRF_COOKIE_SECURE = True
CSRF_COOKIE_NAME = "__Host-csrftoken"
CSRF_COOKIE_HTTPONLY = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https"

vars().update(env.email_url("EMAIL_URL", default="smtp://127.0.0.1:25"))
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="highwater@localhost")

LOGGING = logging_configuration(level=env.str("HIGHWATER_LOG_LEVEL", default="INFO"), json_lines=True)
