"""JSON as it was sent: what a body says is cut out of its text, and one bad document does not take the others with it.

A parser that writes again what it read changes it: ``1.10`` becomes ``1.1``, digits beyond a double's go, of a repeated
key one value stays, ``1e400`` becomes null. orjson is still asked first, for it is the fastest: ``is_unchanged`` says
whether what it would write is what was sent. Only what is not is scanned here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import orjson

from penstock.errors import PenstockError

MAX_DEPTH = 999
"""Levels of nesting; Spark's parser ends there."""
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_BLANKS = re.compile(r"[ \t\n\r]*")
_BLANK = re.compile(r"[ \t\n\r]")
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\n\r]+', re.DOTALL)
_LEVELS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[{]|[\]}]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class NotJson(PenstockError, ValueError):
    """A text, or a part of it, is no JSON by RFC 8259; the text says why."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Foreign(str):
    """A value that JSON has not: ``NaN``, ``Infinity``, or one in the place of what is nested too deep."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """The members of an object, in order; a repeated key is there each time."""

    __slots__ = ()

    def get(self, *names: str) -> Any:
        """The value of the last member with one of these names; None where there is none."""
        return next((value for name, value in reversed(self) if name in names), None)


class _Body(str):
    """A text whose lines are not counted.

    Workaround: json.JSONDecodeError counts the lines before the error, which makes many bad documents quadratic.
    """

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0


class Span(NamedTuple):
    """A value [begin, end) of a text; ``error`` says why it is no JSON, "" where it is."""

    begin: int
    end: int
    value: Any = None
    error: str = ""


def is_unchanged(data: bytes, document: Any) -> bool:
    """Whether orjson writes what it made of ``data`` as it was sent, but for spaces."""
    try:
        written = orjson.dumps(document)
    except TypeError:
        return False
    return written == data or written.replace(b" ", b"") == data.replace(b" ", b"")


def is_json(data: bytes) -> bool:
    """Whether ``data`` is one JSON text by the letter, also with numbers and texts that orjson does not take."""
    try:
        orjson.loads(data)
    except ValueError:
        try:
            text = data.decode().strip(" \t\n\r")
        except UnicodeDecodeError:
            return False
        span = Scanner(text).span(0) if text else None
        return span is not None and not span.error and span.end == len(text)
    return True


def exact(data: bytes) -> Any:
    """``data`` with objects as Members and numbers as Number; Foreign where a value is none. Raises NotJson."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotJson(str(error)) from None
    decoder = json.JSONDecoder(
        object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=Foreign, strict=False
    )
    try:
        try:
            return decoder.decode(text)
        except RecursionError:
            with deep_recursion():
                return decoder.decode(_shallow(text))
    except ValueError as error:
        raise NotJson(str(error)) from None


def text_of_exact(value: Any) -> str:
    """A value of ``exact`` as an annotation: texts as they are, others as JSON. Raises NotJson for Foreign."""
    if isinstance(value, str) and not isinstance(value, Foreign):
        return readable(value)
    with deep_recursion():
        return _written(value)


def _written(value: Any) -> str:
    if isinstance(value, Foreign):
        raise NotJson(f"{value} is not JSON" if value != _DEEP else f"a value is {TOO_DEEP}, or NaN")
    if isinstance(value, Number):
        return value
    if isinstance(value, Members):
        return "{" + ",".join(f"{_written(name)}:{_written(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(readable(value) if isinstance(value, str) else value, ensure_ascii=False)


def readable(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair, which UTF-8 has not; as Go and Java read it."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def without_blanks(text: str) -> str:
    """JSON without the blanks between its values."""
    if not _BLANK.search(text):
        return text
    if "\\" in text:
        return _TOKEN.sub(r"\1", text)
    parts = text.split('"')  # every other one is inside of a string
    parts[::2] = ["".join(part.split()) for part in parts[::2]]
    return '"'.join(parts)


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Let Python's parser take what is nested MAX_DEPTH levels deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def skip(text: str, position: int) -> int:
    """The position behind the blanks at ``position``."""
    match = _BLANKS.match(text, position)
    assert match is not None
    return match.end()


def _refuse(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode
"""The value that begins at a position, and where it ends; numbers as they are written."""


class Scanner:
    """Finds values in one text.

    Limit: what is read again behind bad documents is at most as much as the text itself, so that a text of bad ones
    does not take quadratic time; after that the rest is one bad document.
    """

    def __init__(self, text: str) -> None:
        self.text, self.end = _Body(text), 0
        self._budget = len(text)

    def documents(self) -> Iterator[Span]:
        """Documents one behind the other, with or without blanks between them; of a list its elements.

        Behind a bad one the next begins where a line begins with a brace, or behind its closing bracket.
        """
        text, position = self.text, skip(self.text, 0)
        while position < len(text):
            if text[position] == "[":
                yield from self.elements(position)
                position = skip(text, self.end)
                continue
            span = self.span(position)
            if span.error:
                line = text.find("\n{", position)
                end = line if line >= 0 and self._budget > 0 else self._closed(position)[0]
                span = span._replace(end=max(end, position + 1))
            yield span
            position = skip(text, span.end)

    def elements(self, begin: int) -> Iterator[Span]:
        """The elements of the list at ``begin``; the last one is bad where the list does not end.

        Afterwards ``end`` is the position behind the list.
        """
        text, position = self.text, skip(self.text, begin + 1)
        self.end = position + 1
        if text[position : position + 1] == "]":
            return
        while True:
            span = self.span(position)
            if span.error:
                nested = text[position : position + 1] in ("{", "[")
                end = self._closed(position)[0] if nested else _plain_end(text, position)
                span = span._replace(end=max(end, position))
            yield span
            position = skip(text, span.end)
            if text[position : position + 1] != ",":
                self.end = position + 1
                if text[position : position + 1] != "]":
                    self.end = len(text)
                    yield Span(position, len(text), error="a list does not end")
                return
            position = skip(text, position + 1)

    def members(self, begin: int) -> Iterator[tuple[str, Span]]:
        """The members of the well-formed object at ``begin``."""
        text, position = self.text, skip(self.text, begin + 1)
        while text[position] != "}":
            key, position = _decode(text, position)
            span = self.span(skip(text, skip(text, position) + 1))
            yield key, span
            position = skip(text, span.end)
            position = skip(text, position + 1) if text[position] == "," else position

    def span(self, position: int) -> Span:
        """The value at ``position``; a bad one has no end."""
        try:
            value, end = _decode(self.text, position)
        except RecursionError:
            end, depth = self._closed(position)
            if depth > MAX_DEPTH:
                self._budget -= end - position
                return Span(position, end, error=TOO_DEEP)
            with deep_recursion():
                return self.span(position)
        except ValueError as error:
            self._budget -= getattr(error, "pos", position) - position
            return Span(position, position, error=str(error))
        return Span(position, end, value)

    def _closed(self, position: int) -> tuple[int, int]:
        """Where the brackets that open at ``position`` are all closed, and how deep they are nested."""
        level = deepest = 0
        for token in _LEVELS.finditer(self.text, position):
            level += _STEP.get(token[0], 0)
            deepest = max(deepest, level)
            if level <= 0:
                return token.end(), deepest
        return len(self.text), deepest


def _plain_end(text: str, position: int) -> int:
    """Where a value without brackets that is no JSON ends."""
    ends = [end for end in (text.find(sign, position) for sign in ",]") if end >= 0]
    return min(ends, default=len(text))


_DEEP = "NaN"


def _shallow(text: str) -> str:
    """``text`` with ``NaN`` for what is nested deeper than MAX_DEPTH, so that its item is refused by itself."""
    parts, level, copied = list[str](), 0, 0
    for token in _LEVELS.finditer(text):
        step = _STEP.get(token[0], 0)
        if step > 0 and level == MAX_DEPTH:
            parts += [text[copied : token.start()], _DEEP]
        level += step
        if step < 0 and level == MAX_DEPTH:
            copied = token.end()
    return "".join([*parts, text[copied:] if level <= MAX_DEPTH else ""])
