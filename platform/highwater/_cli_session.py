"""What every verb of `highwater admin` shares: options, connections, tables or JSON, exit codes."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_type_hints

import typer

from highwater._cli_output import (
    EXIT_NO_PERMISSION,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    UNKNOWN,
    print_table,
)
from highwater._cli_ways_out import way_out
from highwater._models import Credentials
from highwater._settings import Settings, settings_from_env
from highwater._sync_admin import Admin
from highwater._sync_producer import Producer
from highwater.errors import (
    BrokerError,
    ConfigurationError,
    HighwaterError,
    MessageIllegalError,
    NoRouteError,
    NotFoundError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from highwater.printable import printable_json, visible

Namesrv = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrv-addr", help="Name servers, host:port;host:port. Else HIGHWATER_ENDPOINT, NAMESRV_ADDR."
    ),
]
AccessKey = Annotated[str | None, typer.Option("--access-key", help="Else HIGHWATER_KEY.")]
SecretKey = Annotated[
    str | None, typer.Option("--secret-key", help="Else HIGHWATER_SECRET, where no other user of this machine sees it.")
]
TimeoutMs = Annotated[int, typer.Option("--timeout-ms", min=1, help="For each request.")]
UseTls = Annotated[bool, typer.Option("--tls", help="Connect with TLS. Else HIGHWATER_TLS.")]
TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", help="Connect with TLS to the cluster of this CA, a PEM file. Else HIGHWATER_TLS_CA."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# mqadmin's switches take a value: `-o true`.
Switch = Literal["true", "false"]

_COMMON: dict[str, tuple[Any, Any]] = {
    "namesrv": (Namesrv, None),
    "access_key": (AccessKey, None),
    "secret_key": (SecretKey, None),
    "timeout_ms": (TimeoutMs, 5000),
    "tls": (UseTls, False),
    "tls_ca": (TlsCa, None),
    "as_json": (AsJson, False),
}


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a verb."""

    settings: Settings
    timeout_ms: int
    as_json: bool

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """Administration of the cluster that the options name."""
        settings = self.settings
        with Admin(settings.namesrv, settings.credentials, self.timeout_ms, use_tls=settings.use_tls) as admin:
            yield admin

    @contextmanager
    def producer(self, group: str, *, retries: int = 2) -> Iterator[Producer]:
        """A producer for the same cluster; without `retries` it sends nothing twice."""
        settings = self.settings
        with Producer(
            settings.namesrv,
            group,
            retry_times_when_send_failed=retries,
            credentials=settings.credentials,
            timeout_ms=self.timeout_ms,
            use_tls=settings.use_tls,
        ) as producer:
            yield producer

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows under headings; as JSON a list of objects. None is an unknown value: "-", and null in JSON."""
        if self.as_json:
            self._json([dict(zip(columns, row, strict=True)) for row in rows])
            return
        print_table(columns, rows)

    def values(self, values: Mapping[str, object]) -> None:
        """Names and values, one to a line; as JSON one object."""
        if self.as_json:
            self._json(values)
            return
        width = max(map(len, values), default=0)
        for name, value in values.items():
            print(visible(f"{name:<{width}}  {UNKNOWN if value is None else value}"))

    def done(self, sentence: str, **facts: object) -> None:
        """A change was made; as JSON its facts."""
        if self.as_json:
            self._json({"done": True, **facts})
        else:
            print(visible(sentence))

    @staticmethod
    def _json(value: object) -> None:
        print(printable_json(value))


def verb(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a verb: it gets a Session first, and its own options stand before the common ones."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for option, (annotation, default) in _COMMON.items()
        ]

        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            options = {option: arguments.pop(option) for option in _COMMON}
            with exit_codes():
                function(_session(**options), **arguments)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # how typer learns the options
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + common
        )
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + common}
        app.command(name)(run)
        return function

    return decorate


def _session(
    *,
    namesrv: str | None,
    access_key: str | None,
    secret_key: str | None,
    timeout_ms: int,
    tls: bool,
    tls_ca: str | None,
    as_json: bool,
) -> Session:
    if bool(access_key) != bool(secret_key):
        raise ConfigurationError("--access-key and --secret-key go together")
    # The options win; what they leave open comes from the environment.
    given = {"HIGHWATER_ENDPOINT": namesrv, "HIGHWATER_TLS_CA": tls_ca}
    environment = {**os.environ, **{name: value for name, value in given.items() if value}}
    settings = settings_from_env(environment)
    if access_key and secret_key:
        settings = replace(settings, credentials=Credentials(access_key, secret_key))
    return Session(replace(settings, use_tls=settings.use_tls or tls), timeout_ms, as_json)


@contextmanager
def exit_codes() -> Iterator[None]:
    """The SDK's errors as one line on standard error, a second with the way out, and an exit code."""
    try:
        yield
    except HighwaterError as error:
        print(visible(f"highwater: {error}"), file=sys.stderr)
        if (way := way_out(error)) is not None:
            print(f"  {way[0].upper()}{way[1:]}.", file=sys.stderr)
        raise typer.Exit(exit_code(error)) from None
    except BrokenPipeError:
        # The reader of our output has seen enough.
        sys.stderr.close()
        raise typer.Exit(0) from None


def exit_code(error: HighwaterError) -> int:
    """The exit code for an error."""
    if isinstance(error, ConfigurationError | MessageIllegalError):
        return EXIT_USAGE
    if isinstance(error, PermissionDeniedError):
        return EXIT_NO_PERMISSION
    if isinstance(error, NotFoundError | NoRouteError | TopicNotFoundError):
        return EXIT_NOT_FOUND
    return EXIT_REFUSED if isinstance(error, BrokerError) else EXIT_UNREACHABLE
