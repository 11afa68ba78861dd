"""The console's translations: reads the `.po` files in `web/locale/` and makes of them the one `.mo` that gettext loads.

A process does it when it starts, so a clean clone needs neither GNU gettext nor a step of set-up.
"""

import ast
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+)?(".*")')
_MAGIC = 0x950412DE


def _entries(text: str, name: str) -> Iterator[dict[str, str]]:
    """Yield each entry of a .po file as its keywords and their strings. ValueError: names the line that is no .po."""
    entry: dict[str, str] = {}
    keyword = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or not (match[1] or keyword):
            raise ValueError(f"{name}:{number}: not a line of a .po file: {line}")
        if match[1] == "msgctxt" or (match[1] == "msgid" and "msgid" in entry):
            if entry:
                yield entry
            entry = {}
        if match[1]:
            keyword = match[1]
        entry[keyword] = entry.get(keyword, "") + ast.literal_eval(match[2])
    if entry:
        yield entry


def read_catalogue(folder: Path) -> dict[str, str]:
    """Return what the .po files of a folder translate: message to translation, as a .mo file has them.

    ValueError where two files translate one message differently, or a line can't be read.
    """
    catalogue: dict[str, str] = {}
    for path in sorted(folder.glob("*.po")):
        for entry in _entries(path.read_text("utf-8"), path.name):
            message = entry["msgid"]
            translation = entry.get("msgstr", "")
            if "msgid_plural" in entry:
                message += "\0" + entry["msgid_plural"]
                forms = sorted(key for key in entry if key.startswith("msgstr["))
                translation = "\0".join(entry[key] for key in forms)
            if "msgctxt" in entry:
                message = entry["msgctxt"] + "\x04" + message
            if catalogue.get(message, translation) != translation:
                raise ValueError(f"{path.name}: {message!r} is translated differently in another file")
            if translation:
                catalogue[message] = translation
    return catalogue


def mo_bytes(catalogue: dict[str, str]) -> bytes:
    """Return a catalogue in the format of a .mo file."""
    pairs = sorted((message.encode(), translation.encode()) for message, translation in catalogue.items())
    start = 28 + 16 * len(pairs)
    tables = [b"", b""]
    texts = b""
    for side in (0, 1):
        for pair in pairs:
            tables[side] += struct.pack("<2I", len(pair[side]), start + len(texts))
            texts += pair[side] + b"\0"
    head = struct.pack("<7I", _MAGIC, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, start)
    return head + tables[0] + tables[1] + texts


def compile_catalogues(source: Path, target: Path) -> None:
    """Write `target/<language>/LC_MESSAGES/django.mo` for each folder of `source`, where it is not so already.

    Other processes may do the same at once: each file is replaced in one step. OSError where `target` can't be written.
    """
    target.mkdir(mode=0o700, parents=True, exist_ok=True)  # in a folder of state, which is no one else's to read
    for folder in sorted(path for path in source.iterdir() if path.is_dir()):
        wanted = mo_bytes(read_catalogue(folder))
        path = target / folder.name / "LC_MESSAGES" / "django.mo"
        if path.exists() and path.read_bytes() == wanted:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(wanted)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
