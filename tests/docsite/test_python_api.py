"""The page of Python's names has all that is public, as the page on compatibility promises it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

from docsite.python_api import NAMES_OF_MODULES, ROOMS, names_of, python_page

PAGE = python_page()
PROMISES = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text().partition("\n## Python\n")[2]


def test_every_public_name_is_in_the_section_of_its_room() -> None:
    for room in ROOMS:
        section = PAGE.partition(f"\n## `{room}`\n")[2].partition("\n## `")[0]
        for name in names_of(room):
            if not isinstance(getattr(importlib.import_module(room), name), ModuleType):
                assert f"\n### `{name}`\n" in section, f"{room}.{name}"


def test_page_has_exactly_the_promised_rooms() -> None:
    promised = {
        name for row in re.findall(r"^\| (`penstock.*?) \|", PROMISES, re.MULTILINE) for name in row.split("`")[1::2]
    }
    assert promised <= set(ROOMS)
    assert set(ROOMS) - promised == {*NAMES_OF_MODULES, "penstock.spark"}


def test_signatures_are_printed_as_in_the_code() -> None:
    assert "class UdpSender(host: str, port: int, *, fragment_size: int = 1400," in PAGE
    assert "view: str = 'landed'" in PAGE
    assert " object at 0x" not in PAGE
    assert "ForwardRef" not in PAGE


def test_every_class_and_function_has_a_description() -> None:
    silent = re.findall(r"\n### `\w+`\n\n```py\n([^\n]*)\n```\n\n(?=\n|#)", PAGE)
    assert [line for line in silent if not re.match(r"penstock[\w.]* = ", line)] == []
