"""One event per line on stderr, by structlog: readable on a terminal, JSON in production. Secrets are never logged."""

import logging
import re
from typing import Any

import structlog

# Addresses that hold a secret: its reader sets the password, confirms the e-mail address, or sees an invitation.
_SECRET_PART = re.compile(r"(?<=^/password/reset/key/)[^/]+|(?<=^/confirm-email/)[^/]+|(?<=^/invitations/)[^/]+")

_SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def loggable_path(path: str) -> str:
    """Return the path without the secrets of links that were mailed."""
    return _SECRET_PART.sub("…", path)


def without_secret_paths(record: logging.LogRecord) -> bool:
    """Take the secrets out of the paths that Django logs; for a logger's filters."""
    if isinstance(record.args, tuple):
        record.args = tuple(loggable_path(one) if isinstance(one, str) else one for one in record.args)
    return True


def logging_configuration(*, level: str, json_lines: bool) -> dict[str, Any]:
    """Return the LOGGING dictionary (logging.config.dictConfig's shape) and configure structlog to feed it."""
    structlog.configure(
        processors=[
            *_SHARED_PROCESSORS,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: Any
    if json_lines:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Its usual traceback, by rich, shows local variables: passwords and keys among them.
        plain = structlog.dev.plain_traceback
        renderer = [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structlog": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED_PROCESSORS,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
            }
        },
        "filters": {"without_secret_paths": {"()": lambda: without_secret_paths}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structlog"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own request log repeats what RequestContextMiddleware says.
            "django.request": {"level": "ERROR", "filters": ["without_secret_paths"]},
            "django.server": {"level": "WARNING"},
            # It logs each step of making an invoice's font smaller.
            "fontTools": {"level": "WARNING"},
        },
    }


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the structlog logger called `name`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
