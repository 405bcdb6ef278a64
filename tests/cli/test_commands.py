"""Every command's help has examples, and each of them is a valid command line."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.cli.commands import SECTIONS, Command, examples_of

ROOT: Any = typer.main.get_command(build(None))


def leaf_commands(command: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from leaf_commands(inner, f"{words} {name}".strip())


def leaf_entries(entries: Mapping[str, Any], group: str = "") -> Iterator[str]:
    for name, entry in entries.items():
        examples = entry.examples if isinstance(entry, Command) else entry
        words = f"{group} {name}".strip()
        if isinstance(examples, dict):
            yield from leaf_entries(examples, words)
        else:
            yield words


COMMANDS = dict(leaf_commands(ROOT))


def test_each_command_has_examples() -> None:
    assert [words for words in ("", *COMMANDS) if not examples_of(words)] == []


def test_each_example_of_a_group_names_a_command() -> None:
    listed = [words for commands in SECTIONS.values() for words in leaf_entries(commands)]
    assert sorted(listed) == sorted(set(COMMANDS) - {"version"})


@pytest.mark.parametrize("words", COMMANDS)
def test_examples_can_be_parsed(words: str) -> None:
    for example in examples_of(words):
        command_line = example.rpartition(" | ")[2].partition(" < ")[0].partition(" > ")[0]
        parts = shlex.split(command_line)
        path = ["penstock", *words.split()]
        assert parts[: len(path)] == path
        COMMANDS[words].make_context(words, parts[len(path) :])  # raises an error for a wrong option or value


RECORDED = [
    *("reload", "restart", "users add", "users remove", "ctl kill", "promote", "log compact"),
    *(
        "tables delete",
        "tables fill",
        "tables refill",
        "tables register",
        "tables repair",
        "pipeline backfill",
        "pipeline compact",
        "pipeline replay",
    ),
    *("pipeline quarantine replay", "export rebuild"),
]
"""Commands that record in the change log what they changed."""
RECORDED_BY_THE_DAEMON = [
    *("topic create", "topic configure", "topic delete", "topic forget-cursor", "cleanup"),
    *("clock", "alarms ack", "alarms mute", "alarms unmute"),
]
NOT_RECORDED = [
    *("up", "serve", "console", "postgres", "drill", "kafka start", "pipeline run", "backup"),
    *("send", "stress", "produce", "tail", "kafka produce", "alarms test"),
    *("config init", "config add listener", "tls init"),
    *("config check", "config explain", "config reference", "doctor", "version", "users list", "changes"),
    *("alarms list", "audit", "balance", "events", "explain", "inspect", "log verify", "schema diff", "schema infer"),
    "schema violations",
    *(
        "consume",
        "kafka consume",
        "ctl envi",
        "ctl ping",
        "ctl stat",
        "senders",
        "sql",
        "topic show",
        "topics",
        "trace",
    ),
    *("tables certificate", "tables changes", "tables files", "tables rows", "tables spark-config"),
    *("export check", "export list", "export run", "pipeline query", "pipeline status", "pipeline wait"),
    *("pipeline quarantine groups", "pipeline quarantine list", "pipeline quarantine history"),
]
"""Commands that run processes, send messages, write files of configuration that a reload applies, or read."""


def test_each_command_that_changes_something_is_recorded() -> None:
    assert sorted([*RECORDED, *RECORDED_BY_THE_DAEMON, *NOT_RECORDED]) == sorted(COMMANDS)
    for words in RECORDED:
        assert "record_command(" in inspect.getsource(sys.modules[COMMANDS[words].callback.__module__]), words


def test_commands_in_transcripts_of_the_documentation_can_be_parsed() -> None:
    pages = (Path(__file__).parents[2] / "docs").glob("*.md")
    blocks = [block for page in pages for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)]
    lines = [line for block in blocks for line in re.findall(r"^\$ penstock (.*)", block, re.MULTILINE)]
    assert lines
    for line in lines:
        words = max((words for words in COMMANDS if f"{line} ".startswith(f"{words} ")), key=len)
        COMMANDS[words].make_context(words, shlex.split(line.removeprefix(words)))


def test_help_lists_each_command_once_with_its_whole_summary() -> None:
    lines = CliRunner().invoke(build(None), ["--help"], prog_name="penstock", terminal_width=80).output
    assert "..." not in lines.partition("Run:")[2]
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(set(ROOT.commands) - {"version"})
    assert all(len(line) <= 80 for line in lines.splitlines())
    for title in SECTIONS:
        assert f"\n{title}:\n" in lines


def test_help_of_a_command_ends_with_its_examples() -> None:
    output = CliRunner().invoke(build(None), ["topic", "create", "--help"], prog_name="penstock").output
    assert output.endswith("Example:\n  penstock topic create orders stale_after=30d compression=zstd\n")


def test_help_of_a_group_ends_with_an_example_of_each_command() -> None:
    output = CliRunner().invoke(build(None), ["config", "--help"], prog_name="penstock").output
    assert output.endswith(
        "Examples:\n  penstock config init\n  penstock config check --config /etc/penstock/penstock.toml\n"
        "  penstock config explain retention\n  penstock config reference http\n"
        "  penstock config add listener --name web --protocol http --port 4318\n"
    )
