"""One event per line on stderr, by structlog: readable on a terminal, JSON in production. Secrets are never logged."""

from typing import Any

import structlog

_SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structlog"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own request log repeats what RequestContextMiddleware says.
            "django.request": {"level": "ERROR"},
            "django.server": {"level": "WARNING"},
            # It logs each step of making an invoice's font smaller.
            "fontTools": {"level": "WARNING"},
        },
    }


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the structlog logger called `name`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
