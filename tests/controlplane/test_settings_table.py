"""Settings from the environment: one table, read at start, with a sentence for what can't be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from controlplane.settings import table
from controlplane.settings.table import SETTINGS, rendered, settings_check, strangers, value
from deploy.local.layout import Layout
from deploy.local.stack import PASSED_ON

LAYERS = ("base", "local", "production", "test")


def test_tests_reach_no_platform_that_runs_in_this_checkout() -> None:
    layout = Layout.from_environment()
    usual = layout.state / "supervisor" / "supervisor.sock"
    assert Path(settings.HIGHWATER_SUPERVISOR_SOCKET) not in (usual, layout.supervisor_socket)


@pytest.mark.parametrize("name", [name for name, one in SETTINGS.items() if one.default is not None])
def test_every_default_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    value(name)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("HIGHWATER_WEB_THREADS", "four", "invalid literal"),
        ("HIGHWATER_WEB_THREADS", "0", "at least 1 is allowed"),
        ("HIGHWATER_STEP_LEASE_S", "nan", "at least 1 is allowed"),
        ("HIGHWATER_JOBS", "yes", "allowed is on, off, auto"),
        ("HIGHWATER_PORT_RANGE", "29999-20000", "two ports"),
        ("HIGHWATER_PORT_RANGE", "80-90", "two ports"),
        ("HIGHWATER_PUBLIC_URL", "mq.example.com", "the address of the console"),
        ("HIGHWATER_ADVERTISED_HOST", "mq.example.com", "an IPv4 address"),
        ("HIGHWATER_ADVERTISED_HOST", "2001:db8::7", "an IPv4 address"),
        ("HIGHWATER_WEBHOOK_NETWORKS", "10.0.0.0/99", "10.0.0.0/99"),
        ("HIGHWATER_JOB_INTERVALS_S", "ingest", "job=seconds"),
        ("HIGHWATER_SPARK_CONF", "{", "can't be used"),
        ("HIGHWATER_SSL_REDIRECT", "perhaps", "true or false"),
        ("SECRET_KEY", "short", "at least 50 characters"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start_and_names_itself(
    name: str, text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ImproperlyConfigured, match=re.escape(name)) as caught:
        value(name)
    assert words in str(caught.value)


def test_a_secret_that_cannot_be_used_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    with pytest.raises(ImproperlyConfigured) as caught:
        value("SECRET_KEY")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["SECRET_KEY", "ALLOWED_HOSTS"])
def test_what_has_no_default_must_be_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    with pytest.raises(ImproperlyConfigured, match=f"{name} is not set"):
        value(name)


def test_production_has_no_default_for_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIGHWATER_PUBLIC_URL", raising=False)
    with pytest.raises(ImproperlyConfigured, match="HIGHWATER_PUBLIC_URL is not set"):
        value("HIGHWATER_PUBLIC_URL", required=True)


def test_a_value_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("k" * 60 + "\n")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    assert value("SECRET_KEY") == "k" * 60


def test_a_variable_that_nothing_reads_is_reported_with_the_likely_one() -> None:
    environment = {"HIGHWATER_PORTS_RANGE": "1", "HIGHWATER_WEB_THREADS": "4", "HIGHWATER_STACK": "x", "PATH": "/bin"}
    assert strangers(environment) == ["HIGHWATER_PORTS_RANGE is no setting; did you mean HIGHWATER_PORT_RANGE?"]


def test_the_check_warns_of_a_variable_that_nothing_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_PORTS_RANGE", "1")
    assert any(one.msg.startswith("HIGHWATER_PORTS_RANGE is no setting") for one in settings_check())


@pytest.mark.parametrize("layer", LAYERS)
def test_settings_read_the_environment_by_the_table_alone(layer: str) -> None:
    text = Path(table.__file__).with_name(f"{layer}.py").read_text()
    assert not re.findall(r"os\.environ|getenv|env\.(?!db_url_config|email_url_config)\w+", text)
    assert set(re.findall(r'value\("(\w+)"', text)) <= set(SETTINGS)


def test_every_row_of_the_table_is_read_by_some_layer() -> None:
    texts = "".join(Path(table.__file__).with_name(f"{layer}.py").read_text() for layer in LAYERS)
    assert set(SETTINGS) == set(re.findall(r'value\("(\w+)"', texts.replace("value(\n    ", "value(")))


def test_the_document_is_what_the_table_prints() -> None:
    assert (settings.ROOT_DIR / "docs" / "settings.md").read_text() == rendered()


def test_dev_up_passes_on_every_setting_that_it_does_not_make_itself() -> None:
    made = {f"HIGHWATER_{name}" for name in ("PUBLIC_URL", "STATE_DIR", "SUPERVISOR_SOCKET", "WEB_THREADS")}
    of_https = {"HIGHWATER_SSL_REDIRECT", "HIGHWATER_PROXY_SSL_HEADER"}
    assert set(PASSED_ON) == {name for name in SETTINGS if name.startswith("HIGHWATER_")} - made - of_https
