"""The page of commands has all of them, with all of their options."""

from __future__ import annotations

import typer

from docsite.commands import commands_page, walk_commands
from penstock.cli.command_line import build

PAGE = commands_page()
ALL = dict(walk_commands(typer.main.get_command(build(None)), "penstock"))


def section_of(name: str) -> str:
    """Return the text about a command, up to the next heading."""
    for hashes in ("##", "###"):
        _, heading, rest = PAGE.partition(f"\n{hashes} `{name}`\n")
        if heading:
            return rest.partition("\n## `")[0].partition("\n### `")[0]
    raise AssertionError(f"{name} is not on the page")


def test_every_command_has_a_section() -> None:
    assert len(ALL) > 40
    for name, command in ALL.items():
        assert str(command.help).split("\n")[0].split("`")[0][:30] in section_of(name).replace("\\", "")


def test_section_names_every_option_and_argument() -> None:
    for name, command in ALL.items():
        for parameter in command.params:
            words = (
                parameter.opts
                if any(word.startswith("-") for word in parameter.opts)
                else [parameter.name, parameter.metavar]
            )
            if not getattr(parameter, "hidden", False):
                assert any(word and word in section_of(name) for word in words), (name, words)


def test_help_texts_are_escaped_for_html() -> None:
    for line in PAGE.splitlines():
        outside = "".join(line.split("`")[::2])
        assert "<" not in outside.replace("\\<", ""), line
