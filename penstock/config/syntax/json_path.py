"""Paths of fields in JSON: the one syntax for every key of the configuration that names a field.

A path is the keys from the outside in, separated by dots: ``user.id`` is the field ``id`` of the object ``user``. A key
with a dot, quote or bracket, and an empty one, is written in double quotes, as a string of JSON:
``attributes."http.method"``. A path has keys of objects only, so brackets, which look like an index, need quotes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from penstock.errors import PenstockError

_KEY = re.compile(r'(?P<quoted>"(?:[^"\\]|\\.)*")|[^."\[\]\x00-\x1f]+')
Path = tuple[str, ...]


class BadPath(PenstockError, ValueError):
    """A text that is not a path; ``message`` applies to the character at ``position`` (from 0) of ``text``."""

    def __init__(self, text: str, position: int, message: str) -> None:
        super().__init__(f"{text!r} is not the path of a field: {message} (character {position + 1})")
        self.position = position


@lru_cache(1024)
def parse_path(text: str) -> Path:
    """Return the keys of a path. Raises BadPath."""
    keys, position = [], 0
    while True:
        key, position = _parse_key(text, position)
        keys.append(key)
        if position == len(text):
            return tuple(keys)
        if text[position] != ".":
            raise BadPath(text, position, "a dot or the end is expected here; a key with a quote or bracket is quoted")
        position += 1


def check_path(text: str) -> str:
    """Return the text of a path unchanged. Raises BadPath."""
    parse_path(text)
    return text


def _parse_key(text: str, begin: int) -> tuple[str, int]:
    match = _KEY.match(text, begin)
    if match is None:
        if text[begin : begin + 1] in ("[", "]"):
            raise BadPath(text, begin, "elements of lists have no path; a key with a bracket is quoted")
        raise BadPath(text, begin, 'the key is empty, or a quote is not closed; a key with a dot is quoted: "a.b"')
    if match["quoted"] is None:
        if match[0] != match[0].strip():
            raise BadPath(text, begin, "a key that begins or ends with a blank is quoted")
        if match[0] == "$" and not begin:
            raise BadPath(text, begin, 'a path begins with a key: user.id, not $.user.id; the key itself is "$"')
        return match[0], match.end()
    try:
        key: str = json.loads(match[0])
        key.encode()
    except ValueError:
        raise BadPath(text, begin, "a quoted key is a string of JSON, with its escapes") from None
    return key, match.end()


def format_path(path: Path) -> str:
    """Return the text of a path, with quotes where a key needs them."""
    return ".".join(map(_format_key, path))


def _format_key(key: str) -> str:
    match = _KEY.fullmatch(key)
    is_plain = match is not None and match["quoted"] is None and key == key.strip() and key != "$"
    return key if is_plain else json.dumps(key, ensure_ascii=False)
