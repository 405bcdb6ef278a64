"""The command ``penstock``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import typer

from penstock import __version__
from penstock.cli.completion import typed_words
from penstock.cli.options import Commands
from penstock.errors import PenstockError

COMMANDS = {
    "up": "penstock.cli.run.up",
    "serve": "penstock.cli.run.serve",
    "reload": "penstock.cli.run.reload",
    "send": "penstock.cli.listener.send",
    "ctl": "penstock.cli.listener.ctl",
    "stress": "penstock.cli.listener.stress",
    "doctor": "penstock.cli.run.doctor",
    "drill": "penstock.cli.run.drill",
    "clock": "penstock.cli.run.clock",
    "produce": "penstock.cli.log.entries",
    "consume": "penstock.cli.log.entries",
    "topics": "penstock.cli.log.topics",
    "topic": "penstock.cli.log.topics",
    "log": "penstock.cli.log.topic_files",
    "cleanup": "penstock.cli.log.topics",
    "pipeline": "penstock.cli.tables.pipeline",
    "promote": "penstock.cli.kafka.promote",
    "tables": "penstock.cli.tables.contents",
    "balance": "penstock.cli.balance",
    "trace": "penstock.cli.tables.trace",
    "inspect": "penstock.cli.listener.inspect",
    "kafka": "penstock.cli.kafka.broker",
    "config": "penstock.cli.run.config",
    "console": "penstock.cli.run.console",
}
"""The module of each command; its function, or group of commands, has the command's name."""
NEEDS_PANDAS = "pipeline"
COMPLETION = ("--install-completion", "--show-completion")


OTHERS = 0o027
"""What nobody else may do with files made here, nor with those of the processes that are started from here."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line. Only what ``arguments`` ask for is imported: some commands need libraries that are slow to."""
    app = Commands(
        name="penstock",
        help="Event and log messages from sockets to Spark tables, and what became of every one of them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("version")(_version)
    asked = arguments[0] if arguments else ""
    if asked != NEEDS_PANDAS:
        importlib.import_module("penstock.process.without_pandas")
    for name in [asked] if asked in COMMANDS else [] if asked in COMPLETION else COMMANDS:
        command = getattr(importlib.import_module(COMMANDS[name]), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command line."""
    os.umask(os.umask(0) | OTHERS)
    try:
        typed = typed_words()
        build(sys.argv[1:] if typed is None else typed)(prog_name="penstock")
    except PenstockError as error:
        from penstock.cli.common import fail

        fail(error)
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
