"""The setting of identity providers: read from JSON or a file, and refused in one sentence when it is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from controlplane.accounts.identity_settings import identity_providers_read

CORP = {"id": "corp", "name": "Example Corp", "issuer": "https://id.example.com", "client_id": "highwater"}


def read(*providers: dict[str, Any]) -> Any:
    return identity_providers_read(json.dumps(providers))


def test_no_setting_is_no_provider() -> None:
    assert identity_providers_read("  ") == ()


def test_the_setting_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "providers.json"
    file.write_text(json.dumps([CORP]))
    assert identity_providers_read(str(file)) == read(CORP)


@pytest.mark.parametrize(
    ("providers", "sentence"),
    [
        ([{**CORP, "issuer": "http://id.example.com"}], "does not begin with https://"),
        ([{**CORP, "issuer": "https://id.example.com/?x=1"}], "no plain https address"),
        ([{**CORP, "issuer": "https://user:secret@id.example.com"}], "no plain https address"),
        ([{**CORP, "id": "Corp/1"}], r"regex.*\$\[0\]\.id"),
        ([{**CORP, "clientid": "x"}], "unknown field `clientid`"),
        ([{"id": "corp"}], "missing required field `name`"),
        ([CORP, CORP], "two providers with the id corp"),
        ([CORP, {**CORP, "id": "other", "name": "Other"}], "two providers with the issuer"),
    ],
)
def test_a_wrong_setting_is_one_sentence(providers: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^HIGHWATER_IDENTITY_PROVIDERS .*{sentence}[^\n]*$"):
        read(*providers)


def test_the_command_line_says_it_without_a_traceback() -> None:
    wrong = {"HIGHWATER_IDENTITY_PROVIDERS": '[{"id": "corp"}]', "SECRET_KEY": "x" * 50}
    command = [sys.executable, str(settings.ROOT_DIR / "manage.py"), "check"]
    variables = {**os.environ, **wrong, "DJANGO_SETTINGS_MODULE": "controlplane.settings.local"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("HIGHWATER_IDENTITY_PROVIDERS can’t be read: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["corp", "[{", "/nowhere/providers.json"])
def test_what_is_neither_json_nor_a_file_is_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="HIGHWATER_IDENTITY_PROVIDERS"):
        identity_providers_read(text)


@pytest.mark.parametrize(
    ("url", "may_call", "may_show"),
    [
        ("https://id.example.com/token", True, True),
        ("https://tokens.example.com/token", True, True),
        ("https://169.254.169.254/latest", False, True),
        ("https://id.example.com:8443/token", False, True),
        ("http://id.example.com/token", False, False),
        ("javascript:alert(1)", False, False),
        (None, False, False),
    ],
)
def test_the_platform_calls_only_hosts_that_the_setting_names(url: object, may_call: bool, may_show: bool) -> None:
    (provider,) = read({**CORP, "endpoint_hosts": ["tokens.example.com"]})
    assert (provider.may_call(url), provider.may_show(url)) == (may_call, may_show)
