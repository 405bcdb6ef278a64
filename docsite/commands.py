"""The page of all commands, from what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from penstock.cli.main import COMMANDS, build, read_summary

INTRODUCTION = """# Commands

Every command, with what it says of itself: `penstock COMMAND --help` prints the same. Exit statuses: 0, 1 where
something is wrong with what was found (`penstock balance`: something is unaccounted for; `penstock doctor`: there is
a finding), 2 where the command line or the configuration cannot be. A command that needs an extra of the package
which is not there names it. `--json` is for programs, and stays as [compatibility](compatibility.md) says; text for
people may change.

Options that many have: `--config FILE` and `-o KEY=VALUE` are the [configuration](configuration.md), `--rpc`,
`--token-file` and `--ca` say how the log daemon is reached."""


def commands_page() -> str:
    """The page, as Markdown."""
    tree = typer.main.get_command(build(None))
    listed = ["| command | what it does |", "| --- | --- |"]
    listed += [f"| [`penstock {name}`](#penstock-{name}) | {read_summary(name)} |" for name in COMMANDS]
    sections = [line for name, command in walked(tree, "penstock") for line in _section(name, command)]
    return "\n".join([INTRODUCTION, "", *listed, *sections, ""])


def walked(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each command below ``command`` with its whole name, in the order of the list of commands."""
    for word, inner in getattr(command, "commands", {}).items():
        yield f"{name} {word}", inner
        yield from walked(inner, f"{name} {word}")


def _section(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    yield f"\n{'#' * min(name.count(' ') + 1, 3)} `{name}`\n"
    yield _marked(command.help or "")
    if getattr(command, "commands", None):
        return
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"\n```text\n{' '.join([name, *pieces, '[OPTIONS]'])}\n```"
    records = [record for one in command.params if (record := one.get_help_record(context))]
    if rows := [f"| `{_cell(names)}` | {_cell(_marked(told))} |" for names, told in records]:
        yield from ("\n| option | meaning |", "| --- | --- |", *rows)


def _cell(text: str) -> str:
    text = re.sub(r"<list\[(.*?)\]>|<(\w+) range>", r"<\1\2>", text)
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _marked(text: str) -> str:
    """Plain words as Markdown: what looks like a tag or an emphasis is taken as it is."""
    return re.sub(r"([<>*])", r"\\\1", text.replace("``", "`").replace("\b", "").strip())
