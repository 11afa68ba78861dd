"""The command line: `highwater admin VERB -n host:port`, with the verbs and letters of RocketMQ's mqadmin."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from highwater import _cli_brokers, _cli_groups, _cli_messages, _cli_quorum, _cli_replicas, _cli_topics

app = typer.Typer(
    name="highwater",
    help="Highwater's command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
admin = typer.Typer(help="Administration of clusters; verbs and letters are mqadmin's.", no_args_is_help=True)
for part in (_cli_brokers, _cli_topics, _cli_groups, _cli_messages, _cli_replicas, _cli_quorum):
    admin.registered_commands.extend(part.app.registered_commands)
app.add_typer(admin, name="admin")


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens to standard error.")] = False,
) -> None:
    """Highwater's command line."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
