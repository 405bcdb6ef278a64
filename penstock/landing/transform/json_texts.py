"""Changes inside JSON texts that leave everything else as it is, letter by letter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from penstock.landing.rows.json_places import inner, scan, skip
from penstock.wire.json_text import deep_recursion

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string or a number; what else there is has no content."""
Span = tuple[int, int]
Change = Callable[[str], str]


def with_contents(text: str, change: Callable[[Sequence[str]], Sequence[str]]) -> str:
    """A JSON text with the contents of its strings (keys too) and numbers changed; what was changed is a string.

    ``change``: is given all contents at once.
    """
    found = list(_TOKEN.finditer(text))
    before = [json.loads(one[0]) if one[0][0] == '"' else one[0] for one in found]
    after = change(before)
    made = (
        (one.span(), json.dumps(new, ensure_ascii=False))
        for one, old, new in zip(found, before, after, strict=True)
        if old != new
    )
    return _replaced(text, made)


def with_members(text: str, path: Sequence[str], change: Change) -> str:
    """A JSON text with the values at a path of keys, through lists too, changed by their text. Null stays.

    Of a key that stands there several times all are changed.
    """
    with deep_recursion():
        found = list(_at_path(text, skip(text, 0), path))
    return _replaced(text, ((span, change(text[slice(*span)])) for span in found if text[slice(*span)] != "null"))


def _replaced(text: str, made: Iterator[tuple[Span, str]]) -> str:
    parts, at = [], 0
    for (begin, end), new in made:
        parts += [text[at:begin], new]
        at = end
    return "".join([*parts, text[at:]])


def _at_path(text: str, begin: int, path: Sequence[str]) -> Iterator[Span]:
    if not path:
        yield begin, scan(text, begin)[1]
        return
    for key, at in inner(text, begin):
        if key is None:
            yield from _at_path(text, at, path) if text[at] in "{[" else ()
        elif key == path[0]:
            yield from _at_path(text, at, path[1:])
