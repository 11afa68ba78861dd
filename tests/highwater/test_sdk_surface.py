"""The public surface: its names, the equality of the twins, quiet imports, the error tree, the environment."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import highwater
from highwater import errors
from highwater._admin_members import member_error
from highwater._settings import settings_from_env
from highwater.errors import BrokerError, ConfigurationError, HighwaterError, broker_error

TWINS = [
    (highwater.AsyncProducer, highwater.Producer),
    (highwater.AsyncPushConsumer, highwater.PushConsumer),
    (highwater.AsyncAdmin, highwater.Admin),
]


def public_methods(of: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in inspect.getmembers(of, callable) if not name.startswith("_")}


def shape(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(method).parameters.values()
    ]


def test_the_public_names_are_pinned() -> None:
    assert sorted(highwater.__all__) == highwater.__all__
    assert set(highwater.__all__) == {
        name for name, value in vars(highwater).items() if not name.startswith("_") and not inspect.ismodule(value)
    }


def test_every_error_is_exported() -> None:
    leaves = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, HighwaterError)
    }
    assert leaves <= set(highwater.__all__)


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_twins_have_the_same_methods(asynchronous: type, synchronous: type) -> None:
    assert set(public_methods(asynchronous)) == set(public_methods(synchronous))


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_twins_have_the_same_signatures(asynchronous: type, synchronous: type) -> None:
    theirs = public_methods(synchronous)
    assert shape(asynchronous) == shape(synchronous)
    for name, method in public_methods(asynchronous).items():
        assert shape(method) == shape(theirs[name]), name


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_twins_give_the_same_results(asynchronous: type, synchronous: type) -> None:
    theirs = public_methods(synchronous)
    for name, method in public_methods(asynchronous).items():
        if name != "on":  # the decorator's handlers differ: coroutines and plain functions
            returned = inspect.signature(method).return_annotation
            assert returned == inspect.signature(theirs[name]).return_annotation, name


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_twins_are_documented_alike(asynchronous: type, synchronous: type) -> None:
    theirs = public_methods(synchronous)
    for name, method in public_methods(asynchronous).items():
        if name not in ("start", "stop"):
            assert inspect.getdoc(method) == inspect.getdoc(theirs[name]), name


@pytest.mark.parametrize(("asynchronous", "synchronous"), TWINS)
def test_no_method_of_the_synchronous_twin_is_a_coroutine(asynchronous: type, synchronous: type) -> None:
    assert not [name for name, method in public_methods(synchronous).items() if inspect.iscoroutinefunction(method)]


def test_importing_starts_no_thread_and_prints_nothing() -> None:
    program = (
        "import threading, highwater; highwater.errors.BrokerError, highwater.Producer\n"
        "assert threading.active_count() == 1, threading.enumerate()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": _path()})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_constructing_starts_no_thread() -> None:
    before = threading.active_count()
    highwater.Producer("127.0.0.1:9876")
    assert threading.active_count() == before


def test_the_package_says_that_it_is_typed() -> None:
    root = highwater.__path__[0]
    with open(f"{root}/py.typed") as marker:
        assert marker.read() == ""


@pytest.mark.parametrize("client", [highwater.Producer, highwater.Admin])
def test_a_client_that_was_not_started_says_so(client: type) -> None:
    made = client("127.0.0.1:9876")
    method = made.publish_queues if isinstance(made, highwater.Producer) else made.topic_route
    with pytest.raises(highwater.ClientStateError, match="with-block"):
        method("t")


def test_a_client_that_was_stopped_says_so() -> None:
    with highwater.Admin("127.0.0.1:9876") as admin:
        pass
    with pytest.raises(highwater.ClientStateError, match="stopped"):
        admin.cluster_info()
    with pytest.raises(highwater.ClientStateError, match="make a new one"):
        admin.start()


def test_stopping_twice_is_harmless() -> None:
    admin = highwater.Admin("127.0.0.1:9876")
    admin.start()
    admin.stop()
    admin.stop()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"namesrv": ""}, "host:port"),
        ({"namesrv": "localhost"}, "host:port"),
        ({"namesrv": "localhost:0"}, "host:port"),
        ({"namesrv": "h:1", "timeout_ms": 0}, "timeout_ms"),
        ({"namesrv": "h:1", "serialize_type": "XML"}, "ROCKETMQ or JSON"),
        ({"namesrv": "h:1", "compress_type": "RAR"}, "ZLIB, LZ4 or ZSTD"),
        ({"namesrv": "h:1", "retry_times_when_send_failed": -1}, "0 or more"),
        ({"namesrv": "h:1", "group": "a b"}, "group name"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        highwater.Producer(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"consume_threads": 0}, "consume_threads"),
        ({"pull_batch_size": 1025}, "pull_batch_size"),
        ({"consume_from": highwater.ConsumeFrom.TIMESTAMP}, "consume_timestamp_ms"),
        ({"consume_timeout_min": 0}, "consume_timeout_min"),
    ],
)
def test_a_consumers_option_that_cannot_work_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        highwater.PushConsumer("h:1", "g", **options)


def test_a_consumer_without_a_subscription_does_not_start() -> None:
    with pytest.raises(highwater.ClientStateError, match="subscribe"):
        highwater.PushConsumer("127.0.0.1:9876", "g").start()


def test_several_name_servers_may_be_joined_or_listed() -> None:
    from highwater._routes import parse_name_servers

    assert parse_name_servers("a:1;b:2, c:3") == parse_name_servers(["a:1", "b:2;c:3"]) == ("a:1", "b:2", "c:3")


# -- errors


@pytest.mark.parametrize(
    ("response_code", "kind", "retryable"),
    [
        (1, BrokerError, True),
        (2, highwater.BusyError, True),
        (3, highwater.NotSupportedError, False),
        (13, highwater.MessageRefusedError, False),
        (14, highwater.BusyError, True),
        (16, highwater.PermissionDeniedError, False),
        (17, highwater.TopicNotFoundError, True),
        (22, highwater.NotFoundError, False),
        (26, highwater.GroupNotFoundError, False),
        (206, highwater.ConsumerOfflineError, False),
        (9999, BrokerError, False),
    ],
)
def test_each_response_code_becomes_its_own_error(response_code: int, kind: type, retryable: bool) -> None:
    error = broker_error(response_code, "why", "127.0.0.1:1")
    assert type(error) is kind
    assert (error.response_code, error.remark, error.retryable) == (response_code, "why", retryable)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (1, "The Consumer <g> <c@1> not online", highwater.ConsumerOfflineError),
        (1, "The Consumer <c@1> Version <60> too low to finish, please upgrade it", highwater.ConsumerTooOldError),
        (1, "too many requests", BrokerError),
        (2, "not online", BrokerError),
    ],
)
def test_what_a_broker_says_of_a_member_in_its_remark_alone_becomes_an_error_of_its_own(
    code: int, remark: str, kind: type
) -> None:
    assert type(member_error(BrokerError(code, remark, "127.0.0.1:1"))) is kind


def test_an_error_has_a_stable_word_for_programs() -> None:
    assert broker_error(16, None, "a:1").code == "no_permission"
    assert broker_error(9999, None, "a:1").code == "code_9999"
    assert highwater.NoRouteError("x").code == "no_route"


def test_a_timeout_is_also_pythons_own() -> None:
    assert isinstance(highwater.RequestTimeoutError("x"), TimeoutError)


# -- environment


def test_the_environment_names_cluster_and_credentials() -> None:
    settings = settings_from_env(
        {"HIGHWATER_ENDPOINT": "a:1;b:2", "HIGHWATER_KEY": "k", "HIGHWATER_SECRET": "s", "HIGHWATER_TLS": "true"}
    )
    assert settings.namesrv == ("a:1", "b:2")
    assert settings.credentials == highwater.Credentials("k", "s")
    assert settings.use_tls


def test_rocketmqs_own_variable_is_understood() -> None:
    assert settings_from_env({"NAMESRV_ADDR": "a:1"}).namesrv == ("a:1",)


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [({}, "HIGHWATER_ENDPOINT"), ({"NAMESRV_ADDR": "a:1", "HIGHWATER_KEY": "k"}, "HIGHWATER_SECRET is missing")],
)
def test_a_missing_variable_is_named(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        settings_from_env(environment)


def _path() -> str:
    return ":".join(filter(None, sys.path))


def loaded_by(words: list[str]) -> tuple[str, set[str]]:
    """What a call of the command line prints first, and the modules that it has loaded at its end."""
    program = (
        f"import sys; sys.argv = {['highwater', *words]}\n"
        "from highwater.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('loaded:', *sys.modules)"
    )
    environment = {"PYTHONPATH": _path(), "HIGHWATER_URL": "http://127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    printed, modules = done.stdout.split("loaded:")
    return printed + done.stderr, set(modules.split())


def test_the_command_line_prints_its_version_without_loading_what_it_does_not_need() -> None:
    printed, loaded = loaded_by(["--version"])
    assert printed.startswith("highwater ")
    assert not loaded & {"typer", "rich", "httpx", "anyio", "msgspec", "mqwire", "highwater._public"}


def test_commands_of_the_platforms_api_are_run_without_the_sdk_and_typer() -> None:
    printed, loaded = loaded_by(["cluster", "list"])
    assert "no answer from http://127.0.0.1:1" in printed
    assert "highwater._cli_api" in loaded
    assert not loaded & {"typer", "highwater._public", "highwater._client", "highwater._cli_session"}
