"""A terminal session is recorded as it comes, and draw_session with its colours."""

from __future__ import annotations

import os
import subprocess
from xml.etree import ElementTree

import pytest

from docsite.terminal import READING_S, Line, draw_session, plain, record_session


def test_commands_and_output_are_recorded_in_order() -> None:
    lines = record_session(["echo one; echo two", "echo $COLUMNS"], os.environ)
    assert [(line.text, line.typed) for line in lines] == [
        ("echo one; echo two", True),
        ("one", False),
        ("two", False),
        ("echo $COLUMNS", True),
        ("100", False),
    ]
    assert [line.time_s for line in lines] == sorted(line.time_s for line in lines)
    assert lines[3].time_s - lines[2].time_s >= READING_S


def test_command_runs_translated_and_is_shown_as_written() -> None:
    typed, output = record_session(["echo 8844"], os.environ, lambda command: command.replace("8844", "9999"))
    assert (typed.text, output.text) == ("echo 8844", "9999")


def test_command_sees_a_terminal_and_overwritten_output_is_hidden() -> None:
    (_, output) = record_session([r"test -t 1 && printf 'working\r\033[1;32mdone\033[0m\n'"], os.environ)
    assert plain(output.text) == "done"


def test_failing_command_ends_the_recording() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        record_session(["exit 3"], os.environ)


def test_picture_has_every_line_with_its_colors_and_time() -> None:
    picture = draw_session([Line(0.5, "x < y", True), Line(1.25, "\x1b[1;32mgood\x1b[0m & well")], "a <title>")
    root = ElementTree.fromstring(picture)
    texts = [element for element in root.iter() if element.tag.endswith("text") and element.get("class") == "line"]
    assert ["".join(element.itertext()) for element in texts] == ["$ x < y", "good & well"]
    assert [element.get("style") for element in texts] == ["animation-delay: 0.50s", "animation-delay: 1.25s"]
    assert texts[1][0].get("class") == "b g"
    assert root.get("aria-label") == "a <title>"
