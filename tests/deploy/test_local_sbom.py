"""`./dev sbom`: the bill of materials has all that the platform runs, and is CycloneDX."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.local.environment import DEVELOPMENT, ETL, JAVA, RUNTIME
from deploy.local.layout import REPOSITORY
from deploy.local.sbom import VENDORED, bill_of_materials

PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def text() -> str:
    return bill_of_materials(Path(sys.executable), REPOSITORY)


@pytest.fixture(scope="module")
def components(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["components"]
    return found


def pins(name: str) -> set[tuple[str, str]]:
    return set(PIN.findall((REPOSITORY / name).read_text()))


def test_it_is_cyclonedx(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_every_locked_package_is_in_it_once_with_its_hashes(components: list[dict[str, Any]]) -> None:
    packages = [one for one in components if one["purl"].startswith("pkg:pypi/")]
    named = [(one["name"], one["version"]) for one in packages]
    assert sorted(named) == sorted(pins(RUNTIME) | pins(ETL) | pins(JAVA))
    assert all(one["externalReferences"][0]["hashes"] for one in packages)


def test_what_only_tests_need_is_not_in_it(components: list[dict[str, Any]]) -> None:
    names = {one["name"] for one in components}
    assert "pytest" in {name for name, _ in pins(DEVELOPMENT)}
    assert "pytest" not in names


def test_vendored_scripts_are_in_it_with_their_hashes(components: list[dict[str, Any]]) -> None:
    manifest = json.loads((REPOSITORY / VENDORED).read_text())
    found = {
        (one["name"], one["version"]): {part["name"]: part["hashes"][0]["content"] for part in one["components"]}
        for one in components
        if one["purl"].startswith("pkg:npm/")
    }
    assert found == {(one["name"], one["version"]): one["files"] for one in manifest}


def test_the_same_checkout_gives_the_same_bill(text: str) -> None:
    assert bill_of_materials(Path(sys.executable), REPOSITORY) == text
