"""The command ``penstock``."""

from __future__ import annotations

import typer

from penstock import __version__
from penstock.cli.balance import balance
from penstock.cli.common import console
from penstock.cli.inspect import inspect
from penstock.cli.log import consume, produce, topics
from penstock.cli.pipeline import pipeline
from penstock.cli.send import send
from penstock.cli.serve import serve
from penstock.cli.up import up

app = typer.Typer(
    name="penstock",
    help="Event and log messages from sockets to Spark tables, and what became of every one of them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (up, serve, send, produce, consume, topics, balance, inspect):
    app.command()(command)
app.add_typer(pipeline, name="pipeline")


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
