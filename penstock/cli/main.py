"""The command ``penstock``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

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
    "tail": "penstock.cli.log.tail",
    "topics": "penstock.cli.log.topic_list",
    "topic": "penstock.cli.log.topics",
    "log": "penstock.cli.log.topic_files",
    "cleanup": "penstock.cli.log.topics",
    "pipeline": "penstock.cli.tables.pipeline",
    "promote": "penstock.cli.kafka.promote",
    "tables": "penstock.cli.tables.contents",
    "balance": "penstock.cli.balance",
    "events": "penstock.cli.events",
    "trace": "penstock.cli.tables.trace",
    "schema": "penstock.cli.tables.schema",
    "sql": "penstock.cli.tables.sql",
    "inspect": "penstock.cli.listener.inspect",
    "kafka": "penstock.cli.kafka.broker",
    "config": "penstock.cli.run.config",
    "console": "penstock.cli.run.console",
}
"""The module of each command; its function, or group of commands, has the command's name."""
SUMMARIES = {
    "up": "Run listeners, log daemon, Spark pipeline and web console together.",
    "serve": "Run the listeners and the log daemon until Ctrl-C.",
    "reload": "Have the running penstock read its configuration anew.",
    "send": "Send each line as one message.",
    "ctl": "Ask a listener, or end its receiver.",
    "stress": "Send random messages in fragments.",
    "doctor": "Look for what is wrong.",
    "drill": "Run a copy of this configuration in a temporary folder.",
    "clock": "Say whether the clock is believed.",
    "produce": "Append the lines of standard input.",
    "consume": "Print the messages of a topic.",
    "tail": "Follow log files: append each of their lines once, through rotations, restarts and kills.",
    "topics": "List the topics: what they hold, and how far their readers are.",
    "topic": "Create, configure, show and delete topics.",
    "log": "Check and rewrite the files of the log.",
    "cleanup": "Drop what retention allows, now.",
    "pipeline": "Topics to tables on Spark.",
    "promote": "Copy a topic to Kafka.",
    "tables": "The tables, looked at without Spark.",
    "balance": "Print the receipt: what became of every message.",
    "events": "Print the timeline: restarts with their cause, reloads, losses, full disk, retention, clock.",
    "trace": "Show where a message has been.",
    "schema": "Typed tables: what they could be, and how configuration, table and events differ.",
    "sql": "Ask the tables, and what of the log is not in them yet, with SQL and without Spark.",
    "inspect": "Print a log buffer as Aeron's LogInspector does.",
    "kafka": "Kafka: a broker for trying out, large messages in and out.",
    "config": "What is configured, and whether it can be.",
    "console": "Serve the web console until Ctrl-C.",
}
"""What each command does, as the list of them says: how its own help begins."""
EXTRAS = {
    "pyspark": "spark",
    "pandas": "spark",
    "duckdb": "sql",
    "deltalake": "sql",
    "confluent_kafka": "kafka",
    "cryptography": "kafka",
    "nicegui": "console",
    "opentelemetry": "otel",
}
"""Libraries that come with an extra of the package."""
NEEDS_PANDAS = "pipeline"

OTHERS = 0o027
"""What nobody else may do with files made here, nor with those of the processes that are started from here."""


def build(arguments: Sequence[str] | None) -> typer.Typer:
    """The command line. Only the command that ``arguments`` ask for is imported, the others are but listed; None: all.

    Some commands need libraries that are slow to import.
    """
    app = Commands(
        name="penstock",
        help="Event and log messages from sockets to Spark tables, and what became of every one of them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("version")(_version)
    asked = next((word for word in arguments or () if not word.startswith("-")), "")
    if asked != NEEDS_PANDAS:
        importlib.import_module("penstock.process.tuning").tune("command")
    for name in COMMANDS:
        if arguments is None or name == asked:
            _add(app, name)
        else:
            app.command(name, help=SUMMARIES[name])(_version)
    return app


def _add(app: typer.Typer, name: str) -> None:
    command = getattr(importlib.import_module(COMMANDS[name]), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _version() -> None:
    """Print the version."""
    print(__version__)


def _print_version(asked: bool) -> None:
    if asked:
        _version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """What goes before a command."""


def end(message: object) -> NoReturn:
    """Show an error line and end."""
    from penstock.cli.common import fail  # brings rich

    fail(message)


def main() -> None:
    """Run the command line."""
    os.umask(os.umask(0) | OTHERS)
    try:
        typed = typed_words()
        build(sys.argv[1:] if typed is None else typed)(prog_name="penstock")
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in EXTRAS:
            raise
        end(f"this needs {missing}: pip install 'penstock-pipe[{EXTRAS[missing]}]'")
    except (PenstockError, OSError) as error:  # no Java, a folder that cannot be written, a daemon that went away
        end(error)


if __name__ == "__main__":
    main()
