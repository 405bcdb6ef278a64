"""The command ``penstock``: the list of commands, and the errors that all of them share.

Only the command that is called is imported, as some need libraries that take seconds to import; within a group, too,
only the called command's module. Lists of commands are made without importing any: ``read_summary`` takes each summary
from the source.
"""

from __future__ import annotations

import copy
import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock import __version__
from penstock.cli.commands import COMMANDS, Command
from penstock.cli.completion import typed_words
from penstock.cli.options import Commands
from penstock.errors import PenstockError
from penstock.process.terminal import tolerate_encoding

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
"""The extra of the package that installs a library."""
COMMANDS_WITH_PANDAS = (
    ["pipeline", "run"],
    ["pipeline", "query"],
    ["pipeline", "backfill"],
    ["pipeline", "replay"],
    ["pipeline", "quarantine", "replay"],
)
"""Commands in which Spark or a user's function may use pandas; in all others ``tune`` keeps PyArrow from importing it.
"""

LINUX_COMMANDS = ("up", "serve", "drill")
"""Commands that start receivers and the log daemon: they need Linux on x86-64 or arm64 with glibc."""

MAX_SHOWN_TEXT = 200
UMASK = 0o027
"""Files of the command and of the processes that it starts are writable by the user and readable by the group."""


def build(arguments: Sequence[str] | None) -> typer.Typer:
    """Return the command line for ``arguments``; None imports all commands."""
    app = Commands(
        name="penstock",
        help="Get events and log messages from sockets into Spark tables, and account for every one of them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("version")(_version)
    words = None if arguments is None else [word for word in arguments if not word.startswith("-")]
    if not any((words or [])[: len(command)] == command for command in COMMANDS_WITH_PANDAS):
        importlib.import_module("penstock.process.tuning").tune("command")
    _add_commands(app, COMMANDS, words)
    return app


def _add_commands(group: typer.Typer, commands: Mapping[str, list[str] | Command], words: Sequence[str] | None) -> None:
    """Add the command that ``words`` calls, or list all commands if it calls none; None imports and adds all."""
    called = next((name for name in commands if words and words[0] == name), None)
    for name, command in commands.items():
        # The module of the group itself registers a command without a module of its own.
        if not isinstance(command, Command) or called not in (None, name):
            continue
        if words is not None and called is None:
            group.command(name, help=read_summary(name, command.module))(_version)
            continue
        imported = getattr(importlib.import_module(f"penstock.cli.{command.module}"), name)
        if not isinstance(imported, typer.Typer):
            group.command(name)(imported)
            continue
        # A copy, because the commands that are added depend on `words`.
        inner = copy.copy(imported)
        inner.registered_commands, inner.registered_groups = [*imported.registered_commands], []
        if isinstance(command.examples, dict):
            _add_commands(inner, command.examples, None if words is None else words[1:])
        group.add_typer(inner, name=name)


def read_summary(name: str, module: str) -> str:
    """Return the first sentence of a command's help, from the source of its module."""
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text()
    function = rf'^def {name}\(.*?"""(.*?)(?:\n\n|""")'
    group = rf'^{name} = Commands\([^"]*help="(.*?)"'
    match = re.search(f"{function}|{group}", source, re.DOTALL | re.MULTILINE)
    assert match
    return " ".join((match[1] or match[2]).split())


def _version() -> None:
    """Print the version."""
    print(__version__)


def _print_version(value: bool) -> None:
    if value:
        _version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options before a command."""


def exit_with_error(message: object) -> NoReturn:
    """Print an error and exit."""
    # Imports rich.
    from penstock.cli.common import fail

    fail(message)


def platform_problem(command: str, platform: str, machine: str, libc: str) -> str:
    """Return why ``command`` cannot run on this platform, and which commands can; "" if it can.

    ``platform`` as ``sys.platform``, ``machine`` as ``os.uname`` has it, ``libc``: name and version, or "".
    """
    if platform in ("win32", "cygwin"):
        return "penstock needs a POSIX system: on Windows run it in WSL 2"
    is_supported = platform == "linux" and machine in ("x86_64", "aarch64") and libc.startswith("glibc")
    if command not in LINUX_COMMANDS or is_supported:
        return ""
    system = "macOS" if platform == "darwin" else f"{platform} on {machine} with {libc or 'another C library'}"
    return (
        f"penstock {command} needs Linux on x86-64 or arm64 with glibc, and this is {system}; "
        "send, produce, consume, topics, balance, sql and audit can use a Penstock elsewhere from here"
    )


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl, macOS
        return ""


def _is_utf8(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def run_command_line() -> None:
    """Run the command that ``sys.argv`` calls. Raises KeyboardInterrupt."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if reason := platform_problem(command, sys.platform, machine, _libc()):
        sys.exit(f"penstock: {reason}")
    os.umask(os.umask(0) | UMASK)
    tolerate_encoding()
    try:
        typed = typed_words()
        app = build(sys.argv[1:] if typed is None else typed)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # by `main`, during the imports
            signal.signal(signal.SIGINT, signal.default_int_handler)
        app(prog_name="penstock")
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python would report a second error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in EXTRAS:
            raise
        exit_with_error(f"this needs {missing}: pip install 'penstock-pipe[{EXTRAS[missing]}]'")
    except UnicodeEncodeError as error:
        # A name is sent or stored as UTF-8; in arguments and paths Python keeps all other bytes as lone surrogates.
        if (encoding := sys.getfilesystemencoding()) != "utf-8":
            exit_with_error(f"names are {encoding} in this environment: set LC_ALL=C.UTF-8, or PYTHONUTF8=1")
        words = [word for word in [*sys.argv[1:], error.object[:MAX_SHOWN_TEXT]] if not _is_utf8(word)]
        if not words:
            raise
        exit_with_error(f"{os.fsencode(words[0])!r} is not UTF-8: use another name")
    except (PenstockError, OSError) as error:
        # No Java, a folder without write permission, a daemon that stopped.
        exit_with_error(error)
