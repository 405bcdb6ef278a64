"""JSON text kept as sent: values are cut out of a body, and a bad document does not affect its neighbours.

Invariant: stored text equals the sent text except blanks. A parser that writes what it read changes it: ``1.10``
becomes ``1.1``, digits beyond a double and all but one of repeated keys are lost, ``1e400`` becomes null.

Fast path: orjson reads every body first; ``is_unchanged`` shows whether it would write the same text. Only bodies that
it would change are scanned here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import orjson

from penstock.errors import PenstockError

MAX_DEPTH = 999
"""Limit of nesting: that of Spark's JSON parser."""
MAX_REREADS = 4
"""Limit of the text that is read again after bad documents, in sizes of the whole: a cut line may take the rest."""
MAX_COLUMN = 1 << 16
"""Limit: the column of an error is counted from the beginning of its line if that is not further away."""
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_BLANKS = re.compile(r"[ \t\n\r]*")
_BLANK = re.compile(r"[ \t\n\r]")
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\n\r]+', re.DOTALL)
_LEVELS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[{]|[\]}]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
_SLICE_BYTES = 1 << 20
"""Bytes whose values are counted at once, in about 3 ms."""
_BEGINS_VALUE = np.zeros(256, np.bool_)
_BEGINS_VALUE[list(b"[{,")] = True


class NotJson(PenstockError, ValueError):
    """A text that is not JSON by RFC 8259, or a part of one; the message says why."""


class Number(str):
    """A number in its written form."""

    __slots__ = ()


class Foreign(str):
    """A value that JSON lacks: ``NaN``, ``Infinity``, or the substitute of values that are nested too deep."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """Members of an object, in order; a repeated key occurs each time."""

    __slots__ = ()

    def get(self, *names: str) -> Any:
        """Return the value of the member with one of ``names``, or None. Raises NotJson if there are several."""
        values = [value for name, value in self if name in names and value is not None]
        if len(values) > 1:
            raise NotJson(f"{' or '.join(names)} occurs more than once")
        return values[0] if values else None


class _Body(str):
    """A text whose lines are not counted, and searched only near an error.

    Workaround: json.JSONDecodeError counts the lines before the error and searches for the beginning of its line, which
    makes many bad documents quadratic.
    """

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0

    def rfind(self, part: str, *bounds: Any) -> int:
        begin, end = bounds
        return super().rfind(part, max(begin, end - MAX_COLUMN), end)


class Span(NamedTuple):
    """A value at [begin, end) of a text; ``error`` says why it is not JSON, otherwise it is empty."""

    begin: int
    end: int
    value: Any = None
    error: str = ""


def count_values(data: bytes) -> int:
    """Return the number of brackets and commas outside of strings: about the number of values, without reading them."""
    count, is_inside, begin = 0, False, 0
    while begin < len(data):
        part = data[begin : begin + _SLICE_BYTES]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:
            part = data[begin : begin + len(part) + 1]  # the last backslash escapes the next character
        begin += len(part)
        octets = np.frombuffer(part.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
        if len(octets):
            inside = np.logical_xor.accumulate(octets == ord('"')) ^ is_inside
            count += int(np.count_nonzero(_BEGINS_VALUE[octets] & ~inside))
            is_inside = bool(inside[-1])
    return count


def is_unchanged(data: bytes, document: Any) -> bool:
    """Return whether orjson would write ``document`` exactly like ``data``, except blanks."""
    try:
        encoded = orjson.dumps(document)
    except TypeError:
        return False
    return encoded == data or encoded.replace(b" ", b"") == data.replace(b" ", b"")


def is_json(data: bytes) -> bool:
    """Return whether ``data`` is one JSON text, including numbers and strings that orjson refuses."""
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
    """Decode ``data`` with objects as Members, numbers as Number, and values that JSON lacks as Foreign. Raises
    NotJson.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotJson(describe_error(error)) from None
    # Functions of Python, although the classes would do: other threads can take the interpreter lock at each call, and
    # not while the decoder calls a class without Python code.
    decoder = json.JSONDecoder(
        object_pairs_hook=lambda pairs: Members(pairs),
        parse_int=lambda text: Number(text),
        parse_float=lambda text: Number(text),
        parse_constant=Foreign,
        strict=False,
    )
    try:
        try:
            # Fast path: few texts are nested deeper than Python's recursion limit; only these pay for the second
            # attempt.
            return decoder.decode(text)
        except RecursionError:
            with deep_recursion():
                return decoder.decode(_shallow(text))
    except ValueError as error:
        raise NotJson(describe_error(error)) from None


def describe_error(error: ValueError) -> str:
    """Return where and why a text is not JSON: ``not valid JSON at column 24: expecting ',' delimiter``."""
    if isinstance(error, json.JSONDecodeError):
        line = f"line {error.lineno} " if error.lineno > 1 else ""
        return f"not valid JSON at {line}column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    if isinstance(error, UnicodeDecodeError):
        return f"not valid JSON at byte {error.start + 1}: it is not UTF-8"
    return f"not valid JSON: {error}"


def is_unfinished(data: bytes) -> bool:
    """Return whether a text has more opening than closing brackets outside of strings: its last value does not end."""
    tokens = _LEVELS.finditer(data.decode("utf-8", "replace"))
    return sum(_STEP.get(token[0], 0) for token in tokens) > 0


def find_error(data: bytes) -> str:
    """Return where and why ``data`` is not JSON; "" if it is."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return describe_error(error)
    span = Scanner(text).span(skip(text, 0))
    end = skip(text, span.end)
    if span.error or end == len(text):
        return span.error
    return describe_error(json.JSONDecodeError("Extra data", text, end))


def text_of_exact(content: Any) -> str:
    """Encode a value of ``exact`` as an annotation: a string unchanged, others as JSON. Raises NotJson for Foreign."""
    if isinstance(content, str) and not isinstance(content, Foreign):
        return readable(content)
    with deep_recursion():
        return _encode(content)


def _encode(content: Any) -> str:
    if isinstance(content, Foreign):
        raise NotJson(f"{content} is not JSON" if content != _DEEP else f"a value is {TOO_DEEP}, or NaN")
    if isinstance(content, Number):
        return content
    if isinstance(content, Members):
        return "{" + ",".join(f"{_encode(name)}:{_encode(each)}" for name, each in content) + "}"
    if isinstance(content, list):
        return "[" + ",".join(map(_encode, content)) + "]"
    return json.dumps(readable(content) if isinstance(content, str) else content, ensure_ascii=False)


def readable(text: str) -> str:
    """Replace each unpaired surrogate, which UTF-8 cannot encode, by U+FFFD, as Go and Java do."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def without_blanks(text: str) -> str:
    """Remove the blanks between the values of JSON text."""
    if not _BLANK.search(text):
        return text
    if "\\" in text:
        return _TOKEN.sub(r"\1", text)
    parts = text.split('"')  # every second part is inside a string
    parts[::2] = ["".join(part.split()) for part in parts[::2]]
    return '"'.join(parts)


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise the recursion limit so that Python's parser accepts MAX_DEPTH levels."""
    # The limit is the interpreter's, not the thread's: other threads may use the extra depth too, which is harmless.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def skip(text: str, position: int) -> int:
    """Return the position after the blanks at ``position``."""
    match = _BLANKS.match(text, position)
    assert match is not None
    return match.end()


def _refuse(name: str) -> NoReturn:
    raise NotJson(name)


_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode
"""Return the value at a position, with numbers as text, and its end."""


class Scanner:
    """Scanner for the values of one text.

    Limit: text that is read again after bad documents is bounded by MAX_REREADS, so that a body of bad documents does
    not take quadratic time; beyond that the rest is one bad document.
    """

    def __init__(self, text: str) -> None:
        self.text, self.end = _Body(text), 0
        self._budget = MAX_REREADS * len(text)
        self._next_line = -1  # where the next line begins with a brace, once it is searched for

    def documents(self) -> Iterator[Span]:
        """Yield concatenated documents, with or without blanks between them; of an array its elements.

        After a bad document the next one begins at a line that begins with a brace, or after the bad one's closing
        bracket.
        """
        text, position = self.text, skip(self.text, 0)
        while position < len(text):
            if text[position] == "[":
                yield from self.elements(position)
                position = skip(text, self.end)
                continue
            span = self.span(position)
            if span.error:
                line = self._object_line(position)
                end = line if line < len(text) and self._budget > 0 else self._closed(position)[0]
                span = span._replace(end=max(end, position + 1))
            yield span
            position = skip(text, span.end)

    def _object_line(self, position: int) -> int:
        """Return the next line end whose next line begins with a brace, or the end of the text."""
        if self._next_line < position:
            # Limit: each byte is searched once, also if each of many bad documents asks for a line that is not there.
            line = self.text.find("\n{", position)
            self._next_line = line if line >= 0 else len(self.text)
        return self._next_line

    def elements(self, begin: int) -> Iterator[Span]:
        """Yield the elements of the array at ``begin``; the last one is bad if the array does not end.

        Afterwards ``end`` is the position after the array.
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
        """Yield the members of the well-formed object at ``begin``."""
        text, position = self.text, skip(self.text, begin + 1)
        while text[position] != "}":
            key, position = _decode(text, position)
            span = self.span(skip(text, skip(text, position) + 1))
            yield key, span
            position = skip(text, span.end)
            position = skip(text, position + 1) if text[position] == "," else position

    def span(self, position: int) -> Span:
        """Return the value at ``position``; a bad one has no end."""
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
            return Span(position, position, error=describe_error(error))
        return Span(position, end, value)

    def _closed(self, position: int) -> tuple[int, int]:
        """Return the position where the brackets that open at ``position`` are closed, and their greatest depth."""
        level = deepest = 0
        for token in _LEVELS.finditer(self.text, position):
            level += _STEP.get(token[0], 0)
            deepest = max(deepest, level)
            if level <= 0:
                return token.end(), deepest
        return len(self.text), deepest


def _plain_end(text: str, position: int) -> int:
    """Return the end of a value without brackets that is not JSON."""
    ends = [end for end in (text.find(delimiter, position) for delimiter in ",]") if end >= 0]
    return min(ends, default=len(text))


_DEEP = "NaN"


def _shallow(text: str) -> str:
    """Replace values nested deeper than MAX_DEPTH by ``NaN``, so that only their item is refused."""
    parts, level, copied = list[str](), 0, 0
    for token in _LEVELS.finditer(text):
        step = _STEP.get(token[0], 0)
        if step > 0 and level == MAX_DEPTH:
            parts += [text[copied : token.start()], _DEEP]
        level += step
        if step < 0 and level == MAX_DEPTH:
            copied = token.end()
    return "".join([*parts, text[copied:] if level <= MAX_DEPTH else ""])
