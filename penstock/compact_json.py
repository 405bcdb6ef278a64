"""Compact JSON, for documents that are written once per batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def compact_json(document: Mapping[str, Any]) -> bytes:
    """Return ``document`` as UTF-8 without spaces; lone surrogates, which UTF-8 cannot encode, are escaped."""
    try:
        return orjson.dumps(document)
    except TypeError:
        # Limit: orjson refuses lone surrogates and integers of more than 64 bits; both come from outside.
        return _ENCODE(document).encode()
