"""Conversion of words of the command line to parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.testing import CliRunner

from penstock.cli.options import Commands

seen: dict[str, Any] = {}
app = Commands()


@app.command()
def record(
    texts: Annotated[list[str] | None, typer.Argument()] = None,
    file: Annotated[Path | None, typer.Option()] = None,
    files: Annotated[list[Path] | None, typer.Option()] = None,
    name: Annotated[str, typer.Option()] = "nobody",
    count: Annotated[int, typer.Option(min=1)] = 3,
    by: Annotated[Literal["topic", "type"], typer.Option()] = "topic",
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    seen.update(locals())


def parse(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return seen


def refusal(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    return result.stderr


def test_parameters_without_words_have_defaults() -> None:
    assert [entry or None for entry in parse().values()] == [None, None, None, "nobody", 3, "topic", None]


def test_texts_and_paths_are_unchanged() -> None:
    rows = parse("a", "5", "--file", "-", "--files", "x", "--files", "y", "--name", "", "--loud")
    assert (rows["texts"], rows["file"], rows["files"]) == (["a", "5"], Path("-"), [Path("x"), Path("y")])
    assert (rows["name"], rows["loud"]) == ("", True)


def test_invalid_words_are_rejected() -> None:
    assert parse("--count", "5", "--by", "type")["count"] == 5
    assert seen["by"] == "type"
    assert "--count" in refusal("--count", "0")
    assert "--count" in refusal("--count", "many")
    assert "--by" in refusal("--by", "host")
