"""Names of files that browsers save: what tenants type breaks out of no header."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.http import HttpResponse

from controlplane.common.downloads import as_download


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("dead-letters-%DLQ%orders|eu", "dead-letters-DLQorderseu"),
        ('x"; filename="evil.html', "xfilenameevil.html"),
        ("../../etc/passwd", "....etcpasswd"),
        ("订单-1", "-1"),
    ],
)
def test_of_a_name_what_no_header_and_no_file_system_minds_is_kept(name: str, saved: str) -> None:
    answer = as_download(HttpResponse(), name, "csv")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{saved}.csv"'


def test_no_other_code_names_a_file_of_its_own() -> None:
    root = Path(settings.ROOT_DIR) / "platform" / "controlplane"
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if "Content-Disposition" in path.read_text("utf-8")
    }
    assert found == {"common/downloads.py", "common/description.py"}, "the API's description has one name"
