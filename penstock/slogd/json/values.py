"""JSON, base64 and times as slogd's HTTP API takes them.

Functions return the value or raise ValueError: with slogd's words (which are Go's) where its recorded answers have
them, else with those of the library that reads the value.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

_SPACE = " \t\r\n"
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_KINDS = {bool: "bool", str: "string", int: "number", float: "number", list: "array", dict: "object"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
_LAYOUT = "2006-01-02T15:04:05.999999999Z07:00"
"""How Go names the form of RFC 3339."""


def first_value(data: bytes) -> Any:
    """Returns the first JSON value; what follows it is passed over."""
    text = data.decode(errors="replace").lstrip(_SPACE)
    if not text:
        raise ValueError("EOF")
    try:
        return _DECODER.raw_decode(text)[0]
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise ValueError(_not_json(error)) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _not_json(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :]
    if error.msg != "Expecting value" or not rest:
        return str(error)
    word = _LITERALS.get(rest[0], "")
    for given, expected in zip(rest, word, strict=False):
        if given != expected:
            return f"invalid character '{given}' in literal {word} (expecting '{expected}')"
    return f"invalid character '{rest[0]}' looking for beginning of value"


def mismatch(value: Any, wanted: str) -> ValueError:
    """Returns the error for a value of another kind than ``wanted``, one of Go's types."""
    return ValueError(f"json: cannot unmarshal {_KINDS.get(type(value), 'null')} into Go value of type {wanted}")


def from_base64(text: str) -> bytes:
    """Reads the standard alphabet with padding; line ends are passed over."""
    plain = text.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(plain, validate=True)
    except ValueError:
        good = _BASE64.match(plain)
        raise ValueError(f"illegal base64 data at input byte {good.end() if good else 0}") from None


def parse_time(text: str) -> Timestamp:
    """Reads an RFC 3339 time with up to nine decimals, of the years 1 to 9999."""
    stamp = Timestamp()
    try:
        if not _RFC3339.fullmatch(text):
            raise ValueError(f'cannot parse {json.dumps(text)} as "2006"')
        stamp.FromJsonString(text)
    except ValueError as error:
        raise ValueError(f'bad Timestamp: parsing time {json.dumps(text)} as "{_LAYOUT}": {error}') from None
    return stamp
