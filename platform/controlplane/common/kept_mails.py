"""Mails that no server took: where there is none, each lies in a file, and operators read them in the console."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.utils import parsedate_to_datetime
from pathlib import Path

# Django's file backend ends each message by this line.
_END = b"\n" + b"-" * 79 + b"\n"


@dataclass(frozen=True, slots=True)
class KeptMail:
    """One mail as its receivers would have got it."""

    sent_at: datetime
    receivers: str
    subject: str
    text: str


def mails_kept(folder: Path, most: int) -> list[KeptMail]:
    """Return the newest mails of a folder, newest first. A file that is gone or can't be read is left out."""
    found: list[KeptMail] = []
    for path in sorted(folder.glob("*.log"), key=lambda path: path.name, reverse=True):  # they are named by their time
        if len(found) >= most:
            break
        try:
            found.extend(reversed(list(_mails(path.read_bytes()))))
        except (OSError, ValueError, LookupError):
            continue
    return found[:most]


def _mails(written: bytes) -> Iterator[KeptMail]:
    for one in written.split(_END):
        if not one.strip():
            continue
        message = message_from_bytes(one, policy=policy.default)
        body = message.get_body(preferencelist=("plain",))
        yield KeptMail(
            parsedate_to_datetime(str(message["Date"])),
            str(message["To"] or ""),
            str(message["Subject"] or ""),
            "" if body is None else str(body.get_content()).strip(),
        )
