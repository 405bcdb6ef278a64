"""A terminal session is recorded as it comes, and drawn with its colours."""

from __future__ import annotations

import os
import subprocess
from xml.etree import ElementTree

import pytest

from docsite.terminal import READING, Line, drawn, plain, recorded


def test_commands_and_what_they_say_come_in_their_order() -> None:
    lines = recorded(["echo one; echo two", "echo $COLUMNS"], os.environ)
    assert [(line.text, line.typed) for line in lines] == [
        ("echo one; echo two", True),
        ("one", False),
        ("two", False),
        ("echo $COLUMNS", True),
        ("100", False),
    ]
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert lines[3].at - lines[2].at >= READING


def test_a_command_runs_as_it_is_meant_and_is_shown_as_it_is_written() -> None:
    typed, said = recorded(["echo 8844"], os.environ, lambda command: command.replace("8844", "9999"))
    assert (typed.text, said.text) == ("echo 8844", "9999")


def test_a_command_sees_a_terminal_and_what_it_wiped_away_is_not_shown() -> None:
    (_, said) = recorded([r"test -t 1 && printf 'working\r\033[1;32mdone\033[0m\n'"], os.environ)
    assert plain(said.text) == "done"


def test_a_command_that_fails_ends_the_recording() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        recorded(["exit 3"], os.environ)


def test_the_picture_has_every_line_with_its_colours_and_time() -> None:
    picture = drawn([Line(0.5, "x < y", True), Line(1.25, "\x1b[1;32mgood\x1b[0m & well")], "a <title>")
    root = ElementTree.fromstring(picture)
    texts = [one for one in root.iter() if one.tag.endswith("text") and one.get("class") == "line"]
    assert ["".join(one.itertext()) for one in texts] == ["$ x < y", "good & well"]
    assert [one.get("style") for one in texts] == ["animation-delay: 0.50s", "animation-delay: 1.25s"]
    assert texts[1][0].get("class") == "b g"
    assert root.get("aria-label") == "a <title>"
