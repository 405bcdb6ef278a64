"""Corrections of the payloads of messages in quarantine: a function of the user, or a built-in one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.files.json_values import parse_json
from penstock.landing.transform.rules import import_function

Fix = Callable[[bytes], bytes | None]
"""Return the corrected payload, or None if the row stays in quarantine."""


class BadFix(PenstockError, ValueError):
    """The correction cannot be loaded, or it failed on a payload."""


def keep_payload(payload: bytes) -> bytes:
    """Return the payload unchanged, for messages that only have to be judged again."""
    return payload


def load_fix(reference: str) -> Fix:
    """Load the function ``module:function``, also from the working folder. Raises BadFix."""
    fix: Fix = import_function(reference, f"--fix {reference}", BadFix)
    return fix


def replace_text(old: str, new: str) -> Fix:
    """Return a correction that replaces a text everywhere; payloads without it stay. Raises BadFix."""
    if not old:
        raise BadFix("the text to replace is empty")
    before, after = old.encode(), new.encode()
    return lambda payload: payload.replace(before, after) if before in payload else None


def set_field(field: str, template: str) -> Fix:
    """Return a correction that sets a field of JSON objects; other payloads stay.

    ``template`` is JSON or a text; ``{hash}`` in it becomes a hash of the payload, usable as a uuid, and ``{now}`` the
    time in milliseconds. Raises BadFix.
    """
    if not field:
        raise BadFix("the name of the field is empty")

    def fix(payload: bytes) -> bytes | None:
        try:
            document = json.loads(payload)
        # Limit: Python's parser raises RecursionError for deep nesting; such a payload stays in quarantine.
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        filled = template.replace("{hash}", hashlib.sha256(payload).hexdigest()[:32])
        document[field] = _json_or_text(filled.replace("{now}", str(round(time.time() * 1000))))
        return json.dumps(document, ensure_ascii=False).encode()

    return fix


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def describe_fix(
    function: str = "", replaced: tuple[str, str] | None = None, field: tuple[str, str] | None = None
) -> str:
    """Return a correction in words; without arguments, that the payload is sent unchanged."""
    if function:
        return f"fix {function}"
    if replaced:
        return f"replaced {replaced[0]!r} by {replaced[1]!r}"
    return f"set {field[0]} to {field[1]}" if field else "unchanged"


def apply_fix(fix: Fix, payload: bytes, position: str) -> bytes | None:
    """Return the corrected payload. Raises BadFix with the position of the row if the correction fails."""
    try:
        corrected: object = fix(payload)
    except Exception as error:  # noqa: BLE001  a user's function may raise anything
        raise BadFix(f"the fix failed on {position}: {type(error).__name__}: {error}") from None
    if corrected is not None and not isinstance(corrected, bytes):
        raise BadFix(f"the fix returned {type(corrected).__name__} for {position}, not bytes")
    return corrected
