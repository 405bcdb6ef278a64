"""The page of all commands, from their own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from penstock.cli.command_line import build, read_summary
from penstock.cli.commands import COMMANDS

INTRODUCTION = """# Commands

Every command with its help; `penstock COMMAND --help` prints the same. Exit statuses: 0; 1 for a problem that the
command found (`penstock balance`: unaccounted messages; `penstock doctor`: a finding); 2 for a wrong command line or
configuration. A command that needs a missing extra of the package names it. `--json` is for programs and is stable, see
[compatibility](compatibility.md); text for people may change.

Common options: `--config FILE` and `-o KEY=VALUE` set the [configuration](configuration.md); `--rpc`, `--token-file`
and `--ca` set the connection to the log daemon."""


def commands_page() -> str:
    """Return the page as Markdown."""
    tree = typer.main.get_command(build(None))
    listed = ["| command | what it does |", "| --- | --- |"]
    for name, command in COMMANDS.items():
        listed.append(f"| [`penstock {name}`](#penstock-{name}) | {read_summary(name, command.module)} |")
    sections = [line for name, command in walk_commands(tree, "penstock") for line in _section(name, command)]
    return "\n".join([INTRODUCTION, "", *listed, *sections, ""])


def walk_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command below ``command`` with its full name, in the order of the list of commands."""
    for word, inner in getattr(command, "commands", {}).items():
        yield f"{name} {word}", inner
        yield from walk_commands(inner, f"{name} {word}")


def _section(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    yield f"\n{'#' * min(name.count(' ') + 1, 3)} `{name}`\n"
    yield _to_markdown(command.help or "")
    if getattr(command, "commands", None):
        return
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"\n```text\n{' '.join([name, *pieces, '[OPTIONS]'])}\n```"
    records = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    if rows := [f"| `{_cell(names)}` | {_cell(_to_markdown(meaning))} |" for names, meaning in records]:
        yield from ("\n| option | meaning |", "| --- | --- |", *rows)


def _cell(text: str) -> str:
    text = re.sub(r"<list\[(.*?)\]>|<(\w+) range>", r"<\1\2>", text)
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _to_markdown(text: str) -> str:
    """Escape text for Markdown: characters of tags and emphasis are literal."""
    return re.sub(r"([<>*])", r"\\\1", text.replace("``", "`").replace("\b", "").strip())
