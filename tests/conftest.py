"""What every room's tests may use: real PostgreSQL and Redis, the whole platform, a browser, other languages' tools.

Nothing skips when a tool is missing: the fixture fails with the line that installs it (`./dev test` installs them all).
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local import tools
from deploy.local.ports import free_port as find_free_port
from tests.support.migrated import TEMPLATE, copy_postgres
from tests.support.platform_stack import PlatformStack, running_platform
from tests.support.servers import PostgresForTests, RedisForTests

if TYPE_CHECKING:  # Django is not loaded where no test needs it
    from django.core.management.color import Style

# Settings are read when Django loads, so the servers have addresses now; they start when the first test asks for one.
# HIGHWATER_TEST_DATABASE_URL and HIGHWATER_TEST_REDIS_URL run the suite against other versions. DATABASE_URL is
# deliberately not read: no one's data shall be at hand for tests.
_postgres = None if os.environ.get("HIGHWATER_TEST_DATABASE_URL") else PostgresForTests(copy_postgres)
_redis = None if os.environ.get("HIGHWATER_TEST_REDIS_URL") else RedisForTests()
os.environ["DATABASE_URL"] = _postgres.url if _postgres else os.environ["HIGHWATER_TEST_DATABASE_URL"]
os.environ["REDIS_URL"] = _redis.url if _redis else os.environ["HIGHWATER_TEST_REDIS_URL"]

# Rooms that know nothing of Django: when only they are asked for, it isn't loaded, which saves seconds.
ROOMS_WITHOUT_DJANGO = {
    *("mqwire", "namesrvd", "brokerd", "highwater", "tidy", "bench"),
    *("interop", "replication", "dledger", "nemesis"),
}

# `.ci/run` tries a failed test once more, as it may have waited too short on a busy machine. Not these: one message lost in a
# hundred runs is a defect.
NEVER_REPEATED = ("tests/sim/", "acknowledged", "lost", "exactly_once")
# Nor where real daemons broke a promise: the failure says how to see it again.
NEVER_REPEATED_AFTER = "./dev nemesis"

# How long a page may take on a busy machine until it shows what a test waits for; playwright's own 5 s are too few.
BROWSER_PATIENCE_MS = 30_000

# Without the first three, Chromium starts two processes less for each window: one that draws suggestions under its address bar,
# which no test sees, and a spare one. The others are playwright's own: of two such switches the last counts alone.
CHROMIUM_WITHOUT = [
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay"),
    *("HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "TcpPortRandomizationWin", "OptimizationHints", "AimEnabled"),
    *("NetworkTimeServiceQuerying", "PreconnectToSearch"),
]

# As root Chromium needs --no-sandbox. The others keep it from calling home, in vain where the network is closed.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    f"--disable-features={','.join(CHROMIUM_WITHOUT)}",
]


# Nothing that is imported or collected is garbage. Searching it again and again costs 6 to 13 % of what tests compute.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if all(_room(argument) in ROOMS_WITHOUT_DJANGO for argument in config.args):
        return
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.test"
    # Playwright's synchronous interface runs an event loop in the main thread, in which Django refuses its database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    import django

    django.setup()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Browser tests last: from its first page to the end of the run, playwright's synchronous interface keeps an asyncio
    # loop running in the main thread, and in such a thread no test can run a loop of its own. Before and among them, those of
    # the whole platform last: from its start to the end of the run it takes a tenth of a processor.
    items.sort(key=lambda item: ["playwright" in _fixtures(item), "platform_stack" in _fixtures(item)])
    for item in items:
        if any(part in item.nodeid for part in NEVER_REPEATED):
            item.add_marker(pytest.mark.flaky(reruns=0))
        elif "tests/nemesis/" in item.nodeid and item.config.getoption("reruns", 0):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=re.escape(NEVER_REPEATED_AFTER)))
    if os.environ.get("HIGHWATER_SCREENSHOTS"):  # only what opens a browser draws any
        items[:] = [item for item in items if "playwright" in _fixtures(item)]
    without = [item.nodeid for item in items if _unknown_fixtures(item)]
    if without:  # reported at once instead of in the middle of a long run
        raise pytest.UsageError("these tests use a fixture that their folder does not have: " + ", ".join(without))


def _fixtures(item: pytest.Item) -> Collection[str]:
    """Names of all fixtures that a test uses."""
    return getattr(item, "fixturenames", ())


def _unknown_fixtures(item: pytest.Item) -> set[str]:
    """Names that a test or its fixtures ask for and nothing defines."""
    if not isinstance(item, pytest.Function):
        return set()
    asked = item._fixtureinfo  # no public way shows what a test's fixtures are before it is set up
    given = {*asked.name2fixturedefs, *getattr(getattr(item, "callspec", None), "params", {}), "request"}
    return set(asked.names_closure) - given


def _room(argument: str) -> str | None:
    """The folder of tests/ that a command line argument lies in; None for tests/ itself."""
    path = Path(argument.split("::")[0]).resolve()
    tests = Path(__file__).parent
    return path.relative_to(tests).parts[0] if path != tests and path.is_relative_to(tests) else None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of an empty database whose user may create others."""
    if _postgres is None:
        yield os.environ["DATABASE_URL"]
        return
    with _postgres.running() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    if _redis is None:
        yield os.environ["REDIS_URL"]
        return
    with _redis.running() as url:
        yield url


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None, postgres_url: str) -> None:
    """pytest-django's hook: whoever wants the database gets PostgreSQL started first, and a copy of migrated tables."""
    from django.contrib.auth.management import create_permissions
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db.models.signals import post_migrate

    # Whenever Django has emptied the tables it writes a row for each model and right into two of its own, which nothing here reads:
    # that takes four times as long as to empty them all.
    for receiver, uid in (
        (create_permissions, "django.contrib.auth.management.create_permissions"),
        (create_contenttypes, None),
    ):
        assert post_migrate.disconnect(receiver, dispatch_uid=uid), f"{receiver.__name__} is called by another name"
    _delete_instead_of_truncating()
    if _postgres is not None:
        from django.db import connection

        connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE


def _delete_instead_of_truncating() -> None:
    """TRUNCATE gives each of some eighty tables new files, whether it has rows or not; a test leaves rows in a few of them.

    In whatever order the rows go: all foreign keys of Django are checked at the end of the transaction. Only where a table has
    triggers of ours rows must not go one by one.
    """
    from django.db import connection

    truncated = connection.ops.sql_flush

    def sql_flush(
        style: Style, tables: Sequence[str], *, reset_sequences: bool = False, allow_cascade: bool = False
    ) -> list[str]:
        if reset_sequences or not tables:
            return truncated(style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade)
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(f"(SELECT '{table}' FROM \"{table}\" LIMIT 1)" for table in tables))
            with_rows = [table for (table,) in cursor.fetchall()]
            cursor.execute("SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
            with_triggers = {table for (table,) in cursor.fetchall()}
        if with_triggers.intersection(with_rows):
            return truncated(style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade)
        return [f'DELETE FROM "{table}"' for table in with_rows]

    connection.ops.sql_flush = sql_flush  # type: ignore[method-assign] # of this one alone: Django has no setting for it


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Call it for a TCP port of the loopback that no one uses. Better still: let the server bind to port 0."""
    return find_free_port


@pytest.fixture(scope="session")
def platform_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformStack]:
    """The whole platform, as `./dev up` starts it, shared by all tests: give your tenant a name of its own."""
    with running_platform(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    return tools.require(tools.CHROMIUM)


@pytest.fixture(scope="session")
def java_home() -> Path:
    """A JDK of at least version 17: `java_home / "bin" / "java"` and `javac`."""
    return tools.require(tools.JAVA)


@pytest.fixture(scope="session")
def maven() -> Path:
    return tools.require(tools.MAVEN)


@pytest.fixture(scope="session")
def go() -> Path:
    return tools.require(tools.GO)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any], chromium_path: Path) -> dict[str, Any]:
    """pytest-playwright's hook: the Chromium of this machine instead of a download."""
    from playwright.sync_api import expect  # only tests with a browser pay for it

    expect.set_options(timeout=BROWSER_PATIENCE_MS)
    return {**browser_type_launch_args, "executable_path": str(chromium_path), "args": CHROMIUM_ARGUMENTS}
