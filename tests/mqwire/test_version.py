"""The version by which a daemon that was started before an update is told from one that was started after it."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from mqwire.version import program_version


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `programd` of one module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "programd" / "__init__.py"
    module.parent.mkdir()
    module.write_text("raise AssertionError('it is not imported')\n")
    return module


def test_the_version_begins_with_the_release(program: Path) -> None:
    assert program_version("programd").startswith(importlib.metadata.version("highwater") + "+")
    assert "programd" not in sys.modules


def test_a_changed_source_is_another_version_and_the_same_source_the_same(program: Path) -> None:
    before = program_version("programd")
    assert program_version("programd") == before
    program.write_text("x = 1\n")
    assert program_version("programd") != before


def test_a_module_that_was_renamed_is_another_version(program: Path) -> None:
    other = program.with_name("other.py")
    other.write_text("x = 1\n")
    before = program_version("programd")
    other.rename(program.with_name("another.py"))
    assert program_version("programd") != before


def test_daemons_that_share_a_package_have_versions_of_their_own() -> None:
    assert program_version("brokerd") != program_version("namesrvd")


def test_a_program_that_is_not_installed_has_none() -> None:
    with pytest.raises(ModuleNotFoundError, match="nosuchd"):
        program_version("nosuchd")
