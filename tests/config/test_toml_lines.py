"""The line of a key in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.toml_lines import format_position, line_of

TEXT = '''a = 1
b.c = """
x = 1
"""

[d]  # d
"e.f" = [
  1,
]
[[g]]
h = 1
[[g]]
# h
h = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [(["a"], 1), (["b", "c"], 2), (["d"], 6), (["d", "e.f"], 7), (["g", 0, "h"], 11), (["g", 1, "h"], 14)],
)
def test_line_of_returns_the_first_line_of_a_value(path: list[str | int], line: int) -> None:
    assert line_of(TEXT, path) == line


def test_line_of_returns_the_group_of_a_missing_key() -> None:
    assert line_of(TEXT, ["g", 1, "missing"]) == 12
    assert line_of(TEXT, ["missing"]) is None


def test_long_file_is_searched_quickly() -> None:
    text = "".join(f"[t{number}]\nkey = 1\n" for number in range(2000))
    assert line_of(text, ["t1999", "key"]) == 4000


def test_missing_file_is_named_without_a_line(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    assert format_position(str(file), ["a"]) == f"{file}: "
    file.write_text("a = 1")
    assert format_position(str(file), ["a"]) == f"{file}:1: "
    assert format_position("", ["a"]) == ""
