"""Commands of manage.py on a running platform, one after another in one process: each start of one takes seconds of a processor.

python -m tests.support.commands    # lines of JSON: the words of a command in, what it printed or why it failed out
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

from deploy.local.terminal import DevError, tail


class Commands:
    """The process, started with its first command, and again after one that ended."""

    def __init__(self, variables: Mapping[str, str], log: Path) -> None:
        """`variables` are the whole environment; `log` gets what it writes to stderr."""
        self._variables = variables
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, *words: str) -> str:
        """Returns what the command printed. Raises DevError when it fails."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer = json.loads(line) if line else {"error": tail(self._log.read_text(errors="replace"))}
        if "error" in answer:
            raise DevError(f"manage.py {words[0]} failed:\n{answer['error']}", "correct what it names and try again.")
        printed: str = answer["printed"]
        return printed

    def end(self) -> None:
        """Kills it: no command is under way."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.commands"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=self._variables,
                    start_new_session=True,
                )
        return self._process


def _answer(words: list[str]) -> dict[str, str]:
    from django.core.management import CommandError, call_command
    from django.db import connections

    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            call_command(*words)
    except CommandError as error:
        return {"error": f"CommandError: {error}"}
    finally:
        connections.close_all()  # tests restart the server in between
    return {"printed": printed.getvalue()}


def main() -> None:
    """Runs until the end of standard input."""
    import django

    django.setup()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
