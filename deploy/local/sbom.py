"""The bill of materials: everything of others that the platform runs, as CycloneDX 1.6 in JSON.

It is made from the locked requirements, with their hashes, and from the manifest of the console's vendored scripts. What only tests
and checks need is left out. The same checkout gives the same file.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from deploy.local.environment import ETL, JAVA, RUNTIME
from deploy.local.terminal import DevError

VENDORED = Path("web/static/vendor/manifest.json")


def bill_of_materials(python: Path, repository: Path) -> str:
    """The bill as text; raises DevError when the generator fails."""
    pins = "".join(f"{pin}\n" for pin in sorted(_pins(repository)))
    options = ["--pyproject", "pyproject.toml", "--spec-version", "1.6", "--output-reproducible", "--validate"]
    result = subprocess.run(
        [str(python), "-W", "ignore", "-m", "cyclonedx_py", "requirements", "-", *options],
        cwd=repository,
        input=pins,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise DevError(f"The bill of materials was not made: {result.stderr.strip()}", "./dev setup, then once more")
    bill: dict[str, Any] = json.loads(result.stdout)
    bill["components"] += _vendored(repository)
    return json.dumps(bill, indent=2) + "\n"


def _pins(repository: Path) -> set[str]:
    """The lines of the requirements files, each with its hashes; what two of them have counts once."""
    pins = set()
    for name in (RUNTIME, ETL, JAVA):
        joined = (repository / name).read_text().replace("\\\n", "")
        pins |= {" ".join(line.split()) for line in joined.splitlines() if line.strip() and not line.startswith("#")}
    return pins


def _vendored(repository: Path) -> list[dict[str, Any]]:
    components = []
    for package in json.loads((repository / VENDORED).read_text()):
        purl = f"pkg:npm/{package['name']}@{package['version']}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": package["name"],
                "version": package["version"],
                "purl": purl,
                "licenses": [{"license": {"id": package["licence"]}}],
                "components": [
                    {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
                    for name, digest in package["files"].items()
                ],
            }
        )
    return components
