"""Files that others wrote: each is listed with its licence, and is byte for byte what the list says."""

import hashlib
import json
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders

VENDOR = Path(settings.ROOT_DIR) / "web" / "static" / "vendor"


def test_every_vendored_file_has_the_hash_that_the_manifest_says() -> None:
    listed = {
        name: digest
        for package in json.loads((VENDOR / "manifest.json").read_text())
        for name, digest in package["files"].items()
    }
    present = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert present == listed


def test_every_vendored_package_has_its_name_version_licence_and_licence_text() -> None:
    for package in json.loads((VENDOR / "manifest.json").read_text()):
        assert package["name"]
        assert package["version"]
        assert package["licence"]
        assert any(name.upper().endswith(("LICENSE.TXT", "LICENSE")) for name in package["files"])


def test_every_file_that_a_template_names_exists() -> None:
    import re

    templates = Path(settings.ROOT_DIR) / "web" / "templates"
    named = {
        name
        for template in templates.rglob("*.html")
        for name in re.findall(r"\{% static ['\"]([^'\"]+)['\"] %\}", template.read_text())
    }
    assert named
    assert all(finders.find(name) for name in named)  # of ours, or of a package


def test_every_icon_that_a_template_names_is_in_the_sprite() -> None:
    import re

    templates = Path(settings.ROOT_DIR) / "web" / "templates"
    sprite = (VENDOR.parent / "img" / "icons.svg").read_text()
    named = {
        name
        for template in templates.rglob("*.html")
        for name in re.findall(r"\{% icon \"([^\"]+)\"", template.read_text())
    }
    assert named
    assert all(f'id="{name}"' in sprite for name in named)


def test_no_script_of_ours_makes_markup_or_code_of_a_text_or_listens_to_other_windows() -> None:
    makers = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "srcdoc",
        '"message"',
    )
    scripts = sorted((Path(settings.ROOT_DIR) / "web" / "static" / "js").glob("*.js"))
    assert len(scripts) > 4
    found = [f"{script.name}: {maker}" for script in scripts for maker in makers if maker in script.read_text("utf-8")]
    assert found == []
