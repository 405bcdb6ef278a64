"""JSON without spaces, for what is written once for each batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def compact_json(document: Mapping[str, Any]) -> bytes:
    """``document`` as UTF-8; halves of surrogate pairs, which UTF-8 has not, are escaped."""
    try:
        return orjson.dumps(document)
    except TypeError:  # such a half, or a number of more than 64 bits
        return _ENCODE(document).encode()
