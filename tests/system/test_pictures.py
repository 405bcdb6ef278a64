"""The pictures of the documentation show real runs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docsite.pictures import IMAGES, PAGES, SESSION, running_pipe, session
from docsite.terminal import plain

LARGEST = 150_000


def masked(text: str) -> str:
    """Remove the parts that differ from run to run: times, positions, names of buffers, line breaks."""
    text = re.sub(r"[0-9a-f]{16}", "0", plain(text))
    return " ".join(re.sub(r"\d[\d,.:]*", "0", text).split())


def lines_of_picture() -> list[str]:
    root = ElementTree.parse(IMAGES / "session.svg").getroot()
    return ["".join(element.itertext()) for element in root.iter() if element.get("class") == "line"]


def test_terminal_of_the_home_page_shows_the_output_of_the_commands(tmp_path: Path) -> None:
    with running_pipe(tmp_path) as pipe:
        recorded = [f"$ {line.text}" if line.typed else line.text for line in session(pipe)]
    # A query on a busy machine says how long it took.
    lines = [line for line in recorded if not plain(line).startswith("that took ")]
    assert [line for line in lines if line.startswith("$ ")] == [f"$ {command}" for command in SESSION]
    assert list(map(masked, lines)) == list(map(masked, lines_of_picture()))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_screenshot_exists_in_each_theme(name: str, theme: str) -> None:
    path: Path = IMAGES / f"{name}-{theme}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < LARGEST
