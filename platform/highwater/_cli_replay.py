"""The verb that sends the messages of a file: looked at whole before the first is sent, then paced, with a rule to stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from highwater._cli_session import Session, verb
from highwater._file_messages import FileLine, read_lines
from highwater._models import SendStatus
from highwater._sync_producer import Producer
from highwater._validation import MAX_MESSAGE_BYTES
from highwater.errors import ConfigurationError, HighwaterError
from highwater.printable import visible

app = typer.Typer()

SEND_GROUP = "HIGHWATER_CLI"
RATE_MAX = 1_000
_PROBLEMS_SHOWN = 5


@verb(app, "sendFile")
def send_file(
    session: Session,
    file: Annotated[Path, typer.Option("-f", "--file", help="A JSON object a line, as dead letters are exported.")],
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Send all there, instead of where each says.")
    ] = None,
    rate: Annotated[int, typer.Option("-r", "--rate", min=1, max=RATE_MAX, help="Messages a second.")] = 10,
    stop_after: Annotated[
        int, typer.Option("--stop-after-failures", min=0, help="Stop after so many failed sends; 0: never.")
    ] = 1,
    from_line: Annotated[
        int, typer.Option("--from-line", min=1, help="Begin at this line: to go on after a stop.")
    ] = 1,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out lines that are no whole message.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
) -> None:
    """Send the messages of a file, each at most once: as new messages, paced, after a look at the whole file."""
    try:
        with file.open(encoding="utf-8") as lines:
            found = list(read_lines(lines, topic=topic, max_message_size=MAX_MESSAGE_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}") from None
    found = [line for line in found if line.number >= from_line]
    bad = [line for line in found if line.message is None]
    if bad and not skip:
        shown = "; ".join(f"line {line.number}: {line.problem}" for line in bad[:_PROBLEMS_SHOWN])
        raise ConfigurationError(
            f"{len(bad)} of {len(found)} lines are no whole message, and nothing was sent: {shown}. Mend them, or leave them out"
            " with --skip"
        )
    good = [line for line in found if line.message is not None]
    if dry_run:
        session.values({"would_send": len(good), "left_out": len(bad), "topics": _topics(good)})
        return
    sent, failed, last, stopped = 0, 0, from_line - 1, False
    began = time.monotonic()
    with session.producer(SEND_GROUP, retries=0) as producer:
        for position, line in enumerate(good):
            time.sleep(max(0.0, began + position / rate - time.monotonic()))
            problem = _send(producer, line)
            last = line.number
            sent, failed = sent + (not problem), failed + bool(problem)
            if problem:
                typer.echo(visible(f"line {line.number}: {problem}"), err=True)
            if stop_after and failed >= stop_after:
                stopped = position + 1 < len(good)
                break
    facts = {"sent": sent, "failed": failed, "left_out": len(bad), "last_line": last, "stopped": stopped}
    session.values(facts)
    if failed:
        raise typer.Exit(1)


def _topics(lines: list[FileLine]) -> str:
    return ", ".join(sorted({line.message.topic for line in lines if line.message is not None}))


def _send(producer: Producer, line: FileLine) -> str:
    """Why it is not known to be stored; empty when it is."""
    assert line.message is not None, "only whole messages are sent"
    try:
        result = producer.send(line.message)
    except HighwaterError as error:
        return f"it was not stored, or no one knows: {error}"
    if result.status is not SendStatus.SEND_OK:
        return f"it is stored as {result.message_id}, and not proven safe: {result.status.value}"
    return ""
