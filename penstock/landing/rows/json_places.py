"""Where values stand in a JSON text, without making anything of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from penstock.landing.rows.strict_json import NUMBERS_AS_TEXTS

_BLANKS = re.compile(r"[ \t\n\r]*")
scan = json.JSONDecoder(**NUMBERS_AS_TEXTS).raw_decode
"""The value that begins at a place, and where it ends."""


def inner(text: str, begin: int) -> Iterator[tuple[str | None, int]]:
    """The places of the values of an object by their keys, or of a list; of other values none."""
    if text[begin] not in "{[":
        return
    at = skip(text, begin + 1)
    while text[at] not in "}]":
        key = None
        if text[begin] == "{":
            key, at = scan(text, at)
            at = skip(text, skip(text, at) + 1)
        yield key, at
        at = skip(text, scan(text, at)[1])
        at = skip(text, at + 1) if text[at] == "," else at


def skip(text: str, at: int) -> int:
    """Behind the blanks at a place."""
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()
