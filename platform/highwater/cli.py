"""The command line: `highwater admin VERB -n host:port`, with the verbs and letters of RocketMQ's mqadmin, and
`highwater NOUN VERB`, the platform's REST API.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from highwater import _cli_brokers, _cli_groups, _cli_messages, _cli_quorum, _cli_replicas, _cli_topics

app = typer.Typer(
    name="highwater",
    help="Highwater's command line: `highwater admin VERB` speaks with a cluster, `highwater NOUN VERB` with the platform"
    " (`highwater api` lists nouns and verbs).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich's markup costs every call a third of its start.
    rich_markup_mode=None,
)
admin = typer.Typer(
    help="Administration of clusters; verbs and letters are mqadmin's.", no_args_is_help=True, rich_markup_mode=None
)
for part in (_cli_brokers, _cli_topics, _cli_groups, _cli_messages, _cli_replicas, _cli_quorum):
    admin.registered_commands.extend(part.app.registered_commands)
app.add_typer(admin, name="admin")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"highwater {version_of('highwater')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens to standard error.")] = False,
) -> None:
    """Highwater's command line."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def main() -> None:
    """The console script. What the platform's API can do is known from its description alone, so typer knows nothing of it."""
    words = sys.argv[1:]
    if words and words[0] != "admin" and not words[0].startswith("-"):
        from highwater._cli_api import run  # what speaks with brokers does not wait for it

        sys.exit(run(words))
    app()


if __name__ == "__main__":
    main()
