"""Find why a payload is in quarantine: a text for people, and the span of the payload at fault.

The rules are in ``json_events``, which judges whole columns. This file searches single payloads, and only those shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.landing.event_rules import MAX_TYPE_BYTES, MAX_UUID_BYTES, Reason
from penstock.landing.rows.data_text import inner_values, scan_value
from penstock.landing.rows.strict_json import loads
from penstock.landing.rows.type_schemas import Schema, first_misfit, is_of_contract
from penstock.wire.json_text import MAX_DEPTH, deep_recursion

_NON_JSON_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)
_LONE_SURROGATE = re.compile(r"(?i)(?<!\\)(?:\\\\)*(\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|\\ud[c-f][0-9a-f]{2})")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_TYPE_NAMES = {'"': "text", "t": "boolean", "f": "boolean", "n": "null", "[": "list", "{": "object"}
MAX_SHOWN_CHARS = 40
"""Limit for the characters of a value that a fault shows."""
_FIELD_COMPLAINTS = {
    Reason.BAD_TYPE: ("type", f"is not a string of 1 to {MAX_TYPE_BYTES} bytes without control characters"),
    Reason.MISSING_TYPE: ("type", "is missing"),
    Reason.MISSING_UUID: ("uuid", "is missing"),
    Reason.BAD_UUID: ("uuid", f"is not a string of 1 to {MAX_UUID_BYTES} bytes"),
    Reason.BAD_TIMESTAMP: ("timestamp", "is not a number of milliseconds within the years 1 to 9999"),
    Reason.TYPE_NOT_ALLOWED: ("type", "is not in pipeline.event_types"),
    Reason.SCHEMA_NOT_MET: ("data", "does not meet the schema of its type (pipeline.schemas, or a strict typed table)"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a payload is in quarantine, in words, and the span [begin, end) at fault in bytes; None without one.

    ``character`` is where the span begins, counted from 1 in characters, or in bytes if the payload is not UTF-8.
    """

    text: str
    begin: int | None = None
    end: int | None = None
    character: int | None = None

    def details(self, reason: str) -> str:
        """Return what the text says beyond ``reason``; empty if it only repeats it."""
        return "" if self.text == _fault_without_position(reason).text else self.text

    def document(self) -> dict[str, Any]:
        """Return the fault as a JSON document."""
        return {"text": self.text, "byte": None if self.begin is None else self.begin + 1, "character": self.character}


def find_fault(reason: str, payload: bytes, schemas: Sequence[Schema] = ()) -> Fault:
    """Return the fault of a quarantined payload.

    ``schemas`` are needed for payloads that violate the schema of their type. A reason that a transformation gave is
    returned as text, without a position.
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        if reason != Reason.BAD_JSON:
            return _fault_without_position(reason)
        return Fault(f"not UTF-8 at byte {error.start + 1}", error.start, error.end, error.start + 1)
    if reason == Reason.BAD_JSON:
        return _find_bad_json(text)
    is_of_schema = reason == Reason.SCHEMA_NOT_MET or is_of_contract(reason)
    if reason not in _FIELD_COMPLAINTS and not is_of_schema:
        return _fault_without_position(reason)
    field, complaint = _FIELD_COMPLAINTS[Reason.SCHEMA_NOT_MET if is_of_schema else Reason(reason)]
    begin, end = _find_field(text, field)
    if begin is None or end is None:
        return Fault(f"{field} is missing")
    if is_of_schema and (misfit := _find_misfit(reason, text, begin, schemas)):
        return misfit
    if text[begin:end] == "null":
        complaint = "is null"
    return _fault_at(text, begin, end, f"{field} {complaint}")


def _fault_without_position(reason: str) -> Fault:
    return Fault(reason.replace("_", " "))


def _fault_at(text: str, begin: int, end: int, complaint: str) -> Fault:
    begin_byte = len(text[:begin].encode())
    end_byte = begin_byte + len(text[begin:end].encode(errors="replace"))
    return Fault(f"{complaint}, at character {begin + 1}", begin_byte, end_byte, begin + 1)


def _find_bad_json(text: str) -> Fault:
    try:
        # Order: the parser's own complaint first, then the few faults that the parser accepts.
        with deep_recursion():
            loads(text)
    except json.JSONDecodeError as error:
        complaint = f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}".removesuffix(" at")
        return _fault_at(text, error.pos, error.pos + 1, complaint)
    except ValueError:
        word = next(match for match in _NON_JSON_NUMBER.finditer(text) if match[1])
        return _fault_at(text, *word.span(1), f"not valid JSON: {word[1]}")
    level = 0
    for token in _BRACKETS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if level > MAX_DEPTH:
            return _fault_at(text, *token.span(), f"nested deeper than {MAX_DEPTH} levels")
    if surrogate := _LONE_SURROGATE.search(text):
        return _fault_at(text, *surrogate.span(1), "not valid JSON: half of a surrogate pair")
    return Fault("not valid JSON")


def _find_misfit(reason: str, text: str, begin: int, schemas: Sequence[Schema]) -> Fault | None:
    """Return the first field of the data at ``begin`` that violates a rule with this reason.

    Returns None if no field does: the schema may have changed since the payload was quarantined.
    """
    type_begin, _ = _find_field(text, "type")
    if type_begin is None:
        return None
    end = scan_value(text, begin)[1]
    if (rule := first_misfit(scan_value(text, type_begin)[0], text[begin:end], schemas, reason)) is None:
        return None
    name = ".".join(("data", *rule.path))
    for key in rule.path:
        inner_begin, inner_end = _find_field(text, key, begin)
        if inner_begin is None or inner_end is None:
            return Fault(f"{name} is missing, it must be {rule.needs}")
        begin, end = inner_begin, inner_end
    kind, word = _TYPE_NAMES.get(text[begin], "number"), text[begin:end]
    shown = f" {word}" if kind in ("text", "number", "boolean") and len(word) <= MAX_SHOWN_CHARS else ""
    return _fault_at(text, begin, end, f"{name} is {kind}{shown}, it must be {rule.needs}")


def _find_field(text: str, field: str, within: int = 0) -> tuple[int | None, int | None]:
    """Return begin and end of the value of a field of the object at ``within``."""
    with deep_recursion():
        for key, begin in inner_values(text, within):
            if key == field:
                return begin, scan_value(text, begin)[1]
    return None, None
