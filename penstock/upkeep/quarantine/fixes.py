"""What mends the payload of a message in quarantine: a function of the user's, or one of ours."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.files.json_values import parse_json

Fix = Callable[[bytes], bytes | None]
"""The mended payload, or None for one that is to stay."""


class BadFix(PenstockError, ValueError):
    """What is to mend payloads cannot be used, or failed on one."""


def as_it_is(payload: bytes) -> bytes:
    """The payload, for messages that are to be judged again."""
    return payload


def load_fix(named: str) -> Fix:
    """The function ``module:function``. Raises BadFix."""
    module, _, function = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadFix(f"--fix {named}: {error}") from None
    if not callable(found):
        raise BadFix(f"--fix {named}: is not a function")
    fix: Fix = found
    return fix


def replacing(old: str, new: str) -> Fix:
    """Puts a text in the place of another wherever that is; payloads without it stay. Raises BadFix."""
    if not old:
        raise BadFix("there is no text to replace")
    before, after = old.encode(), new.encode()
    return lambda payload: payload.replace(before, after) if before in payload else None


def setting(field: str, value: str) -> Fix:
    """Sets a field of JSON objects; other payloads stay.

    ``value`` is JSON, or else a text; ``{hash}`` in it becomes a hash of the payload, as a uuid for those without,
    ``{now}`` the time in milliseconds. Raises BadFix.
    """
    if not field:
        raise BadFix("there is no field to set")

    def fix(payload: bytes) -> bytes | None:
        try:
            document = json.loads(payload)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        filled = value.replace("{hash}", hashlib.sha256(payload).hexdigest()[:32])
        document[field] = _json_or_text(filled.replace("{now}", str(round(time.time() * 1000))))
        return json.dumps(document, ensure_ascii=False).encode()

    return fix


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def mended(fix: Fix, payload: bytes, place: str) -> bytes | None:
    """What a fix makes of a payload. Raises BadFix, which names the place, when the fix fails on it."""
    try:
        found: object = fix(payload)
    except Exception as error:  # noqa: BLE001  whatever a user's function raises
        raise BadFix(f"the fix failed on {place}: {type(error).__name__}: {error}") from None
    if found is not None and not isinstance(found, bytes):
        raise BadFix(f"the fix made {type(found).__name__} of {place}, not bytes")
    return found
