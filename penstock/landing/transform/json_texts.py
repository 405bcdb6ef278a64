"""Changes inside JSON texts that keep every other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

from penstock.landing.rows.data_text import inner_values, scan_value, skip_blanks
from penstock.wire.json_text import deep_recursion

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""A string or a number; other tokens have no content."""
Span = tuple[int, int]
Change = Callable[[str], str]


def with_contents(text: str, change: Callable[[Sequence[str]], Sequence[str]]) -> str:
    """Return a JSON text with changed contents of its strings, also of keys, and of its numbers.

    A changed content becomes a string. ``change`` receives all contents at once.
    """
    tokens = list(_TOKEN.finditer(text))
    before = [json.loads(token[0]) if token[0][0] == '"' else token[0] for token in tokens]
    after = change(before)
    changes = (
        (token.span(), json.dumps(new, ensure_ascii=False))
        for token, old, new in zip(tokens, before, after, strict=True)
        if old != new
    )
    return _replace_spans(text, changes)


def with_members(text: str, path: Sequence[str], change: Change) -> str:
    """Return a JSON text with changed values at a path of keys, also through lists. Null stays.

    If a key is there several times, all its values change.
    """
    # Limit: senders decide on the nesting; the stack is enlarged for it.
    with deep_recursion():
        spans = list(_find_spans(text, skip_blanks(text, 0), path))
    return _replace_spans(text, ((span, change(text[slice(*span)])) for span in spans if text[slice(*span)] != "null"))


def _replace_spans(text: str, changes: Iterator[tuple[Span, str]]) -> str:
    parts, copied = [], 0
    for (begin, end), new in changes:
        parts += [text[copied:begin], new]
        copied = end
    return "".join([*parts, text[copied:]])


def _find_spans(text: str, begin: int, path: Sequence[str]) -> Iterator[Span]:
    if not path:
        yield begin, scan_value(text, begin)[1]
        return
    for key, start in inner_values(text, begin):
        if key is None:
            yield from _find_spans(text, start, path) if text[start] in "{[" else ()
        elif key == path[0]:
            yield from _find_spans(text, start, path[1:])
