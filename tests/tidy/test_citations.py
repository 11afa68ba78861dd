"""Every citation of a document resolves: the file is in docs/, and has the section that is named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CITATION = re.compile(r"\b([a-z][a-z-]*)\.md(?:(?:,| section)? (?:section )?(\d+)|,\s+\"([^\"]+)\")?")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def python_files() -> list[Path]:
    rooms = ("brokerd", "namesrvd", "platform", "spark_etl", "deploy", "tests")
    return [path for room in rooms for path in (ROOT / room).rglob("*.py") if path != Path(__file__)]


def headings(document: Path) -> list[str]:
    """The titles of sections, and what a paragraph or an entry of a list begins with in bold."""
    text = document.read_text()
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE) + re.findall(r"^[- ]*\*\*([^*]+)\*\*", text, re.MULTILINE)


def test_each_document_that_the_code_cites_has_the_section() -> None:
    missing = []
    for path in python_files():
        for found in CITATION.finditer(" ".join(path.read_text().split())):
            document = DOCS / f"{found[1]}.md"
            if not document.exists():
                missing.append(f"{path.relative_to(ROOT)} cites {document.name}")
            elif found[2] and not any(heading.startswith(f"{found[2]}.") for heading in headings(document)):
                missing.append(f"{path.relative_to(ROOT)} cites {document.name} section {found[2]}")
            elif found[3] and not any(heading.lower().startswith(found[3].lower()) for heading in headings(document)):
                missing.append(f"{path.relative_to(ROOT)} cites {document.name}, {found[3]!r}")
    assert not missing, f"cite what is in docs/: {missing}"


def test_each_link_between_documents_leads_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(path for path in ROOT.glob("*/README.md"))]
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken, broken
