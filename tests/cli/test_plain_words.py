"""Words of the command line become what a command asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.testing import CliRunner

from penstock.cli.options import Commands

seen: dict[str, Any] = {}
app = Commands()


@app.command()
def take(
    texts: Annotated[list[str] | None, typer.Argument()] = None,
    file: Annotated[Path | None, typer.Option()] = None,
    files: Annotated[list[Path] | None, typer.Option()] = None,
    name: Annotated[str, typer.Option()] = "nobody",
    count: Annotated[int, typer.Option(min=1)] = 3,
    by: Annotated[Literal["topic", "type"], typer.Option()] = "topic",
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    seen.update(locals())


def given(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return seen


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    return result.stderr


def test_without_words_there_are_the_defaults() -> None:
    assert [one or None for one in given().values()] == [None, None, None, "nobody", 3, "topic", None]


def test_texts_and_paths_are_taken_as_they_are() -> None:
    found = given("a", "5", "--file", "-", "--files", "x", "--files", "y", "--name", "", "--loud")
    assert (found["texts"], found["file"], found["files"]) == (["a", "5"], Path("-"), [Path("x"), Path("y")])
    assert (found["name"], found["loud"]) == ("", True)


def test_other_words_are_checked() -> None:
    assert given("--count", "5", "--by", "type")["count"] == 5
    assert seen["by"] == "type"
    assert "--count" in refused("--count", "0")
    assert "--count" in refused("--count", "many")
    assert "--by" in refused("--by", "host")
