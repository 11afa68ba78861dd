"""Errors of this package: each names its cause and the way out."""

from __future__ import annotations


class EtlError(Exception):
    """A run can't go on. `cause` is what is wrong, `way_out` what to do about it."""

    def __init__(self, cause: str, way_out: str) -> None:
        super().__init__(f"{cause} Way out: {way_out}")
        self.cause = cause
        self.way_out = way_out

    def __reduce__(self) -> tuple[type[EtlError], tuple[str, str]]:
        # Spark carries errors from its Python workers by pickle, which would call __init__ with one argument.
        return type(self), (self.cause, self.way_out)


class OptionError(EtlError, ValueError):
    """An option of the data source can't work."""


class ConfigError(EtlError, ValueError):
    """A job's configuration file can't be used."""


class LostMessagesError(EtlError):
    """Messages between where reading stood and where the queue now begins or ends are gone."""
