"""Behind TLS. `manage.py check --deploy` is clean with these settings.

What the environment sets stands in table.py.
"""

from controlplane.common.logging import logging_configuration
from controlplane.settings.base import *  # noqa: F403  # settings are layered by star import in Django
from controlplane.settings.table import env, value

HIGHWATER_ENVIRONMENT = "live"
HIGHWATER_PUBLIC_URL = value("HIGHWATER_PUBLIC_URL", required=True)
SECRET_KEY = value("SECRET_KEY")
SECRET_KEY_FALLBACKS = value("SECRET_KEY_FALLBACKS")
ALLOWED_HOSTS = value("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = [HIGHWATER_PUBLIC_URL]

SECURE_SSL_REDIRECT = value("HIGHWATER_SSL_REDIRECT")
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]  # probes come over plain HTTP from inside
SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
if value("HIGHWATER_PROXY_SSL_HEADER"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = True
SESSION_COOKIE_NAME = "__Host-sessionid"
HIGHWATER_BROWSER_COOKIE_NAME = "__Host-browser"
HIGHWATER_THEME_COOKIE_NAME = "__Host-theme"
HIGHWATER_MESSAGES_COOKIE_NAME = "__Host-messages"
LANGUAGE_COOKIE_NAME = "__Host-language"
CSRF_COOKIE_SECURE = True
CSRF_COOKIE_NAME = "__Host-csrftoken"
CSRF_COOKIE_HTTPONLY = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https"

vars().update(env.email_url_config(value("EMAIL_URL")))
DEFAULT_FROM_EMAIL = value("DEFAULT_FROM_EMAIL")

LOGGING = logging_configuration(level=value("HIGHWATER_LOG_LEVEL"), json_lines=True)
