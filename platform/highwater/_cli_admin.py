"""`highwater admin VERB -n host:port`, and what `highwater --help` shows."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from highwater import _cli_brokers, _cli_groups, _cli_messages, _cli_quorum, _cli_replay, _cli_replicas, _cli_topics
from highwater._cli_output import version_line

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
for part in (_cli_brokers, _cli_topics, _cli_groups, _cli_messages, _cli_replay, _cli_replicas, _cli_quorum):
    admin.registered_commands.extend(part.app.registered_commands)
app.add_typer(admin, name="admin")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version_line())
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
