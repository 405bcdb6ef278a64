"""JSON as Go's decoder reads it: one value, what follows it is passed over; and its words for what is no JSON."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_SPACE = " \t\r\n"
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPES = frozenset('bfnrt\\/"')
_HEX = frozenset("0123456789abcdefABCDEF")


def first_value(data: bytes) -> Any:
    """The first JSON value. Raises ValueError with Go's text."""
    text = data.decode(errors="replace").lstrip(_SPACE)
    if not text:
        raise ValueError("EOF")
    try:
        return _DECODER.raw_decode(text)[0]
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    except ValueError as error:
        # Only now looked at character by character, which are bytes to Go: for its text.
        _scan(data.decode("latin-1"))
        raise ValueError(str(error)) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _scan(text: str) -> None:
    """Raises ValueError where Go's scanner does; returns behind the first value."""
    scanner = _Scanner(text)
    opened: list[str] = []
    while True:
        if inner := scanner.value():
            opened.append(inner)
            continue
        while opened and scanner.closes(opened[-1]):
            opened.pop()
        if not opened:
            return
        scanner.goes_on(opened[-1])


class _Scanner:
    """Reads JSON without keeping it."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def _peek(self, skip: bool = True) -> str:
        while skip and self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        if self._at >= len(self._text):
            raise ValueError("unexpected EOF")
        return self._text[self._at]

    def _wrong(self, context: str) -> NoReturn:
        raise ValueError(f"invalid character {quote_char(self._text[self._at])} {context}")

    def value(self) -> str:
        """Read a value; of an object or array that is not empty only the beginning, which is returned."""
        char = self._peek()
        if char not in "[{":
            self._scalar(char)
            return ""
        self._at += 1
        if self.closes(char):
            return ""
        if char == "{":
            self._key()
        return char

    def _scalar(self, char: str) -> None:
        if char == '"':
            self._string()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        elif char in "-0123456789":
            self._number()
        else:
            self._wrong("looking for beginning of value")

    def closes(self, opened: str) -> bool:
        """Whether the object or array that was ``opened`` ends here."""
        if self._peek() != ("]" if opened == "[" else "}"):
            return False
        self._at += 1
        return True

    def goes_on(self, opened: str) -> None:
        """Read the comma, and of an object the next key."""
        if self._peek() != ",":
            self._wrong("after array element" if opened == "[" else "after object key:value pair")
        self._at += 1
        if opened == "{":
            self._key()

    def _key(self) -> None:
        if self._peek() != '"':
            self._wrong("looking for beginning of object key string")
        self._string()
        if self._peek() != ":":
            self._wrong("after object key")
        self._at += 1

    def _string(self) -> None:
        self._at += 1
        while (char := self._peek(skip=False)) != '"':
            if char < " ":
                self._wrong("in string literal")
            self._at += 1
            if char == "\\":
                self._escape()
        self._at += 1

    def _escape(self) -> None:
        char = self._peek(skip=False)
        if char != "u" and char not in _ESCAPES:
            self._wrong("in string escape code")
        self._at += 1
        for _ in range(4 if char == "u" else 0):
            if self._peek(skip=False) not in _HEX:
                self._wrong("in \\u hexadecimal character escape")
            self._at += 1

    def _literal(self, word: str) -> None:
        for expected in word:
            if self._peek(skip=False) != expected:
                self._wrong(f"in literal {word} (expecting {quote_char(expected)})")
            self._at += 1

    def _number(self) -> None:
        match = _NUMBER.match(self._text, self._at)
        if match is None:  # a minus alone
            self._at += 1
            self._peek(skip=False)
            self._wrong("in numeric literal")
        self._at = match.end()
        rest = self._text[self._at : self._at + 2]
        if rest[:1] == "." and "." not in match[0] and "e" not in match[0].lower():
            self._at += 1
            self._peek(skip=False)
            self._wrong("after decimal point in numeric literal")
        if rest[:1] in ("e", "E") and "e" not in match[0].lower():
            self._at += 2 if rest[1:] in ("+", "-") else 1
            self._peek(skip=False)
            self._wrong("in exponent of numeric literal")


def quote_char(char: str) -> str:
    """A character as Go's JSON errors show it."""
    if char == "'":
        return r"'\''"
    if char == '"':
        return "'\"'"
    shown = json.dumps(char, ensure_ascii=False)[1:-1]
    return f"'{shown}'"


def kind_of(value: Any) -> str:
    """What Go calls the kind of a JSON value."""
    if isinstance(value, bool):
        return "bool"
    for kind, name in ((str, "string"), (int, "number"), (float, "number"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "null"


def mismatch(value: Any, wanted: str, shown: str = "") -> ValueError:
    """Go's error for a value of another kind than ``wanted``, one of its types."""
    return ValueError(f"json: cannot unmarshal {kind_of(value)}{shown} into Go value of type {wanted}")
