"""Redaction by configuration: texts by pattern, and fields of events as keyed hashes.

Invariant: all copies change alike: the payload, ``data``, and the columns derived from them. JSON stays JSON.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.event_rules import MAX_TYPE_BYTES, UNSAFE_IN_TYPE, MessageKind
from penstock.landing.rows.engine import as_mask, compute, json_pointer, pc, sql_literal
from penstock.landing.table_schema import FOREIGN_COLUMNS, SYSLOG_COLUMNS
from penstock.landing.transform.json_texts import with_contents, with_members
from penstock.records import annotation_maps, values_of
from penstock.wire.json_text import without_blanks

TEXT_COLUMNS = ("host", "message", "type_url", *SYSLOG_COLUMNS, *(FOREIGN_COLUMNS.keys() - SYSLOG_COLUMNS.keys()))
"""Columns of plain text that patterns apply to, in addition to payload, key, data and annotations."""
REDACTED_TYPE = "redacted"
"""Type of an event if the replacement leaves no valid one."""
HASH_LETTERS = 32
"""128 bits, so that different values have different hashes."""
_ANCHORED = re.compile(r"(?<!\[)\^|\$|\\[Az]")
_LITERAL = re.compile(r"[0-9.eE+-]*|-?(?i:nan|inf|infinity)|true|false|null")
"""Texts that JSON, or DuckDB, accepts without quotes; also the empty text."""
_BLOCK_BYTES = 64
"""Block size of SHA-256, for HMAC."""
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Replacement of text that matches one of several regular expressions (RE2).

    In JSON the patterns apply to the contents of strings and to numbers, after unescaping.
    """

    patterns: tuple[str, ...]
    replacement: str

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        is_json = _is_json(rows)
        changed = {name: self._replace(rows[name]) for name in (*TEXT_COLUMNS, "key")}
        changed["type"] = self._replace_types(rows["type"])
        changed["payload"] = self._replace_payloads(rows["payload"], is_json)
        changed["data"] = self._replace_json(rows["data"])
        changed["annotations"] = self._replace_annotations(rows["annotations"])
        return _with_columns(rows, changed)

    def _replace(self, column: pa.Array[Any]) -> pa.Array[Any]:
        for pattern in self.patterns:
            if pc.any(pc.match_substring_regex(column, pattern)).as_py():
                column = pc.replace_substring_regex(column, pattern, self.replacement)
        return column

    def _replace_types(self, column: pa.Array[Any]) -> pa.Array[Any]:
        replaced = self._replace(column)
        if replaced is column:
            return column
        # A replacement may be empty, long, or hold control characters, and a row without a type could not land.
        sizes = pc.binary_length(replaced)
        invalid = pc.or_(pc.equal(sizes, pa.scalar(0)), pc.greater(sizes, pa.scalar(MAX_TYPE_BYTES)))
        invalid = pc.or_(invalid, pc.match_substring_regex(replaced, UNSAFE_IN_TYPE))
        types: pa.Array[Any] = pc.if_else(pc.fill_null(invalid, False), pa.scalar(REDACTED_TYPE), replaced)
        return types

    def _replace_payloads(self, payloads: pa.Array[Any], is_json: Mask) -> pa.Array[Any]:
        if not is_json.any():
            return self._replace_plain(payloads)
        texts = self._replace_json(payloads.filter(pa.array(is_json)).cast(pa.string())).cast(pa.binary())
        plain = self._replace_plain(payloads.filter(pa.array(~is_json)))
        return _merge(is_json, texts, plain)

    def _replace_plain(self, texts: pa.Array[Any]) -> pa.Array[Any]:
        """Replace in texts, of which some are JSON of another protocol (GELF, a list in an event of HEC)."""
        replaced = self._replace(texts)
        doubtful = as_mask(pc.fill_null(pc.match_substring(texts, "\\"), False))
        if replaced is not texts:
            doubtful |= as_mask(pc.fill_null(pc.not_equal(texts, replaced), False))
        # Fast path: only doubtful texts are parsed.
        is_json = doubtful.copy()
        is_json[doubtful] = _are_json(texts.filter(pa.array(doubtful)).cast(pa.binary()))
        if not is_json.any():
            return replaced
        documents = texts.filter(pa.array(is_json)).cast(pa.string())
        changed = pa.array([self._replace_document(text) for text in values_of(documents)], pa.string())
        merged: pa.Array[Any] = pc.replace_with_mask(replaced, pa.array(is_json), changed.cast(texts.type))
        return merged

    def _replace_document(self, text: str) -> str:
        """Replace in JSON by each pattern: beyond contents in the whole text, otherwise in contents."""
        for alone in (Patterns((pattern,), self.replacement) for pattern in self.patterns):
            whole = alone._replace_text(text)
            # A match with a quote spans contents, and would be lost once one of them has changed.
            text = whole if whole.count('"') != text.count('"') else text
            if _is_document(text):
                text = alone._replace_contents(text)
            text = alone._replace_text(text)
        return text

    def _replace_text(self, text: str) -> str:
        return str(self._replace(pa.array([text], pa.string()))[0].as_py())

    def _replace_json(self, texts: pa.Array[Any]) -> pa.Array[Any]:
        """Replace in whole texts if the outcome is the same as for each content alone."""
        # Fast path: whole texts at once. Doubtful texts, with escapes or damaged by the replacement, are redone by
        # content.
        replaced = texts if self._needs_contents else self._replace(texts)
        doubtful = as_mask(pc.is_valid(texts))
        if not self._needs_contents:
            doubtful &= as_mask(pc.match_substring(texts, "\\"))
            changed = np.flatnonzero(as_mask(pc.not_equal(texts, replaced)))
            doubtful[changed] |= _is_beyond_contents(
                pc.take(texts, pa.array(changed)), pc.take(replaced, pa.array(changed))
            )
        return _change_rows(texts, replaced, doubtful, self._replace_contents)

    @property
    def _needs_contents(self) -> bool:
        """Whether a pattern refers to the begin or end of a content, or a number might not become a string."""
        return any(map(_ANCHORED.search, self.patterns)) or bool(_LITERAL.fullmatch(self.replacement))

    def _replace_contents(self, text: str) -> str:
        def change(contents: Sequence[str]) -> list[str]:
            replaced: list[Any] = self._replace(pa.array(contents, pa.string())).to_pylist()
            return replaced

        return with_contents(text, change)

    def _replace_annotations(self, column: Any) -> pa.Array[Any]:
        """Replace in names and texts; ``CheckedFunction`` joins names that become equal."""
        sent_names, sent_texts = column.keys, column.items
        names, texts = self._replace(sent_names), self._replace_plain(sent_texts)
        if names is sent_names and texts is sent_texts:
            unchanged: pa.Array[Any] = column
            return unchanged
        nulls = as_mask(pc.is_null(column))
        return annotation_maps(np.asarray(column.offsets), names, texts, nulls)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Replacement of fields (paths of keys in a JSON payload) by HMAC-SHA256 with ``salt``.

    A string is hashed by its unescaped value, other values by their text; equal values have equal hashes in all rows.
    """

    fields: tuple[tuple[str, ...], ...]
    salt: bytes = field(repr=False)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        is_json = _is_json(rows)
        texts = pc.if_else(pa.array(is_json), rows["payload"], pa.scalar(None, pa.binary())).cast(pa.string())
        hashed = self._hash_fields(texts, self.fields).cast(pa.binary())
        changed = {"payload": pc.if_else(pa.array(is_json), hashed, rows["payload"])}
        changed["data"] = self._hash_fields(rows["data"], [path[1:] for path in self.fields if path[0] == "data"])
        if ("host",) in self.fields:
            host = compute({"hash": self._hash_sql("text")}, text=rows["host"])["hash"]
            changed["host"] = pc.if_else(pa.array(is_json), host, rows["host"])
        return _with_columns(rows, changed)

    def _hash_fields(self, texts: pa.Array[Any], fields: Iterable[tuple[str, ...]]) -> pa.Array[Any]:
        for path in fields:
            hashed = compute(*self._hash_sql_of_path(path), text=texts)["hashed"]
            doubtful = as_mask(pc.is_null(hashed)) & as_mask(pc.is_valid(texts))
            texts = _change_rows(texts, hashed, doubtful, partial(with_members, path=path, change=self._hash_value))
        return texts

    def _hash_sql_of_path(self, path: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """Return SQL for common texts, and null for others.

        Common is: the key is absent, or there once with a string or a whole number.
        """
        key = json.dumps(path[-1], ensure_ascii=False)
        repeated_key = sql_literal(f"(?s){re.escape(key)}.*{re.escape(key)}")
        cases = [f"contains(text, '\\') OR regexp_matches(text, {repeated_key}) THEN NULL"]
        cases.append(f"NOT contains(text, {sql_literal(key)}) THEN text")
        for colon, (quote, end) in product((":", ": "), (('"', '"'), ("", ","), ("", "}"))):
            old = f"{sql_literal(key + colon + quote)} || value || '{end}'"
            new = f"""{sql_literal(key + colon)} || '"' || hash || '"{end.strip('"')}'"""
            is_hashable = "true" if quote else "regexp_full_match(value, '-?[0-9]+')"
            cases.append(f"{is_hashable} AND contains(text, {old}) THEN replace(text, {old}, {new})")
        value = f"json_extract_string(text, {json_pointer(*path)})"
        return {"hashed": f"CASE WHEN {' WHEN '.join(cases)} END"}, {"value": value, "hash": self._hash_sql(value)}

    def _hash_sql(self, value: str) -> str:
        """Return SQL of the hash of an SQL expression."""
        # HMAC by its definition (RFC 2104): DuckDB has SHA-256 but no HMAC.
        key = (self.salt if len(self.salt) <= _BLOCK_BYTES else sha256(self.salt).digest()).ljust(_BLOCK_BYTES, b"\0")
        inner, outer = (f"unhex('{bytes(byte ^ pad for byte in key).hex()}')" for pad in (0x36, 0x5C))
        return f"left(sha256({outer} || unhex(sha256({inner} || encode({value})))), {HASH_LETTERS})"

    def _hash_value(self, text: str) -> str:
        content = json.loads(text) if text.startswith('"') else without_blanks(text)
        return f'"{hmac.digest(self.salt, content.encode(), "sha256").hex()[:HASH_LETTERS]}"'


def _is_beyond_contents(texts: pa.Array[Any], replaced: pa.Array[Any]) -> Mask:
    """Report for each text whether more than contents was replaced: it is invalid JSON, or has fewer strings."""
    if not len(texts):
        return np.zeros(0, bool)
    is_valid = as_mask(compute({"valid": "json_valid(text)"}, text=replaced)["valid"])
    return ~is_valid | as_mask(pc.not_equal(pc.count_substring(texts, '"'), pc.count_substring(replaced, '"')))


def _is_json(rows: pa.RecordBatch) -> Mask:
    """Report for each row whether its payload is a JSON object: events, and quarantined rows with another fault."""
    kinds = rows["kind"]
    events = as_mask(pc.equal(kinds, pa.scalar(MessageKind.EVENT.value)))
    quarantined = as_mask(pc.equal(kinds, pa.scalar(MessageKind.QUARANTINE.value)))
    quarantined &= as_mask(pc.not_equal(rows["reason"], pa.scalar("bad_json")))
    quarantined &= as_mask(pc.starts_with(rows["payload"], "{"))
    return (events | quarantined) & as_mask(pc.is_valid(rows["payload"]))


def _are_json(texts: pa.Array[Any]) -> Mask:
    """Report for each text (type binary) whether it is a JSON object, list or string."""
    may_be_json = as_mask(pc.match_substring_regex(texts, r'\A[ \t\r\n]*[\[{"]'))
    if not may_be_json.any():
        return may_be_json
    candidates = texts.filter(pa.array(may_be_json))
    try:
        strings = candidates.cast(pa.string())
    except pa.ArrowInvalid:  # JSON is UTF-8
        strings = pa.array([_decode_utf8(text) for text in values_of(candidates)], pa.string())
    may_be_json[may_be_json] = as_mask(compute({"valid": "json_valid(text)"}, text=strings)["valid"])
    return may_be_json


def _is_document(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _decode_utf8(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _change_rows(texts: pa.Array[Any], column: pa.Array[Any], mask: Mask, change: Any) -> pa.Array[Any]:
    """Return ``column`` with the rows of a mask (none of them null) replaced by their changed texts."""
    if not mask.any():
        return column
    changed_texts = [change(text) for text in texts.filter(pa.array(mask)).to_pylist()]
    replaced: pa.Array[Any] = pc.replace_with_mask(column, pa.array(mask), pa.array(changed_texts, pa.string()))
    return replaced


def _merge(mask: Mask, first_values: pa.Array[Any], other_values: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values of two columns, in the order of a mask."""
    positions = np.where(mask, np.cumsum(mask) - 1, len(first_values) + np.cumsum(~mask) - 1)
    merged: pa.Array[Any] = pc.take(pa.concat_arrays([first_values, other_values]), pa.array(positions))
    return merged


def _with_columns(rows: pa.RecordBatch, changed: dict[str, pa.Array[Any]]) -> pa.RecordBatch:
    columns = [changed.get(name, rows[name]) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
