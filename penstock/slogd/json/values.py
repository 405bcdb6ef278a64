"""JSON, base64 and times as slogd's HTTP API accepts them.

The functions raise ValueError: with slogd's texts (which are Go's) as far as its recorded answers have them, otherwise
with the texts of the library that parses the value.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

_SPACE = " \t\r\n"
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_JSON_TYPES = {bool: "bool", str: "string", int: "number", float: "number", list: "array", dict: "object"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
_LAYOUT = "2006-01-02T15:04:05.999999999Z07:00"
"""Go's layout string for RFC 3339."""


def first_value(data: bytes) -> Any:
    """Return the first JSON value; anything after it is ignored."""
    return first_value_and_rest(data)[0]


def first_value_and_rest(data: bytes) -> tuple[Any, bool]:
    """Return the first JSON value, and whether anything but white space follows it."""
    text = data.decode(errors="replace").lstrip(_SPACE)
    if not text:
        raise ValueError("EOF")
    try:
        # slogd's gateway decodes a stream, so it ignores anything behind the first value.
        value, end = _DECODER.raw_decode(text)
        return value, bool(text[end:].strip(_SPACE))
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise ValueError(_syntax_error(error)) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _syntax_error(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :]
    if error.msg != "Expecting value" or not rest:
        line = f"line {error.lineno} " if error.lineno > 1 else ""
        return f"not valid JSON at {line}column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    word = _LITERALS.get(rest[0], "")
    # Go names the first character that differs from the literal.
    for actual, expected in zip(rest, word, strict=False):
        if actual != expected:
            return f"invalid character '{actual}' in literal {word} (expecting '{expected}')"
    return f"invalid character '{rest[0]}' looking for beginning of value"


def mismatch(node: Any, go_type: str) -> ValueError:
    """Return the error for a value that is not of ``go_type``."""
    return ValueError(f"json: cannot unmarshal {_JSON_TYPES.get(type(node), 'null')} into Go value of type {go_type}")


def from_base64(text: str) -> bytes:
    """Decode the standard alphabet with padding; line ends are ignored."""
    plain = text.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(plain, validate=True)
    except ValueError:
        valid_prefix = _BASE64.match(plain)
        raise ValueError(f"illegal base64 data at input byte {valid_prefix.end() if valid_prefix else 0}") from None


def parse_time(text: str) -> Timestamp:
    """Parse an RFC 3339 time with up to nine decimals, years 1 to 9999."""
    stamp = Timestamp()
    try:
        if not _RFC3339.fullmatch(text):
            raise ValueError(f'cannot parse {json.dumps(text)} as "2006"')
        stamp.FromJsonString(text)
    except ValueError as error:
        raise ValueError(f'bad Timestamp: parsing time {json.dumps(text)} as "{_LAYOUT}": {error}') from None
    return stamp
