"""The dashboard's file is what Grafana's own types read: no Grafana is installed here, its published schema stands for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.local.layout import REPOSITORY
from tests.interop.go_toolchain import build_go

DASHBOARD = REPOSITORY / "web" / "static" / "grafana" / "highwater.json"


@pytest.fixture(scope="module")
def reader() -> Path:
    """A program on grafana-foundation-sdk, which Grafana generates of its schemas."""
    return build_go(Path(__file__).parent / "grafana", "grafana")


def read(reader: Path, dashboard: Any) -> tuple[int, str]:
    done = subprocess.run([reader], input=json.dumps(dashboard), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_grafanas_types_read_the_dashboard_to_the_last_member(reader: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    assert read(reader, dashboard) == (0, f"{len(dashboard['panels'])} panels\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pannels": []}, "unexpected field 'pannels'"),
        ({"annotations": None}, "annotations: required field is null"),
        ({"time": {"from": 6}}, "cannot unmarshal number"),
        ({"panels": [{"type": "timeseries", "targetz": []}]}, "unexpected field 'targetz'"),
    ],
    ids=["unknown", "missing", "type", "panel"],
)
def test_what_grafana_would_not_read_is_found(reader: Path, change: dict[str, Any], problem: str) -> None:
    dashboard = {**json.loads(DASHBOARD.read_text("utf-8")), **change}
    code, text = read(reader, dashboard)
    assert code == 1
    assert problem in text
