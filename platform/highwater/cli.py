"""The command line: `highwater admin VERB -n host:port`, with the verbs and letters of RocketMQ's mqadmin, and
`highwater NOUN VERB`, the platform's REST API. Each call loads its own half only, and `--version` neither.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script. What the platform's API can do is known from its description alone, so typer knows nothing of it."""
    words = sys.argv[1:]
    if words == ["--version"]:
        from highwater._cli_output import version_line

        print(version_line())
        return
    if words and words[0] != "admin" and not words[0].startswith("-"):
        from highwater._cli_api import run

        sys.exit(run(words))
    from highwater._cli_admin import app

    app()


if __name__ == "__main__":
    main()
