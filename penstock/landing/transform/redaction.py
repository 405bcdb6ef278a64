"""Redaction that is configured and not programmed: texts by pattern, and fields of events as keyed hashes.

Whatever says it is changed: the payload, ``data`` in the same way, and the columns made of them. JSON stays JSON.
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

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import as_mask, compute, json_pointer, pc, quoted
from penstock.landing.table_schema import FOREIGN_COLUMNS, SYSLOG_COLUMNS
from penstock.landing.transform.json_texts import with_contents, with_members
from penstock.records import annotation_maps
from penstock.wire.json_text import without_blanks

TEXTS = ("host", "message", "type_url", *SYSLOG_COLUMNS, *(FOREIGN_COLUMNS.keys() - SYSLOG_COLUMNS.keys()))
"""Columns of plain text that patterns are looked for in, besides payload, key, data and annotations."""
HASH_LETTERS = 32
"""128 bits: enough to tell values apart."""
_ANCHORED = re.compile(r"(?<!\[)\^|\$|\\[Az]")
_LITERAL = re.compile(r"[0-9.eE+-]*|-?(?i:nan|inf|infinity)|true|false|null")
"""What stands in JSON without quotes, or DuckDB takes there; nothing at all, too."""
_BLOCK = 64
"""Bytes of SHA-256's."""
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Replaces what matches one of several regular expressions (RE2). In JSON it is looked for in the contents of
    strings and in numbers, as they are meant: an escaped letter is that letter.
    """

    patterns: tuple[str, ...]
    replacement: str

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        is_json = _is_json(rows)
        changed = {name: self._replaced(rows[name]) for name in (*TEXTS, "key")}
        changed["payload"] = self._mixed(rows["payload"], is_json)
        changed["data"] = self._in_json(rows["data"])
        changed["annotations"] = self._in_annotations(rows["annotations"])
        return _with(rows, changed)

    def _replaced(self, column: pa.Array[Any]) -> pa.Array[Any]:
        for pattern in self.patterns:
            if pc.any(pc.match_substring_regex(column, pattern)).as_py():
                column = pc.replace_substring_regex(column, pattern, self.replacement)
        return column

    def _mixed(self, payloads: pa.Array[Any], is_json: Mask) -> pa.Array[Any]:
        if not is_json.any():
            return self._replaced(payloads)
        texts = self._in_json(payloads.filter(pa.array(is_json)).cast(pa.string())).cast(pa.binary())
        plain = self._replaced(payloads.filter(pa.array(~is_json)))
        return _merged(is_json, texts, plain)

    def _in_json(self, texts: pa.Array[Any]) -> pa.Array[Any]:
        """Whole texts at once, where that is the same as to look at their contents one by one."""
        made = texts if self._by_content else self._replaced(texts)
        doubtful = as_mask(pc.is_valid(texts))
        if not self._by_content:
            doubtful &= as_mask(pc.match_substring(texts, "\\"))
            changed = np.flatnonzero(as_mask(pc.not_equal(texts, made)))
            doubtful[changed] |= _reaches_beyond(pc.take(texts, pa.array(changed)), pc.take(made, pa.array(changed)))
        return _changed(texts, made, doubtful, self._contents)

    @property
    def _by_content(self) -> bool:
        """Whether a pattern asks where a content begins or ends, or a number might not become a string."""
        return any(map(_ANCHORED.search, self.patterns)) or bool(_LITERAL.fullmatch(self.replacement))

    def _contents(self, text: str) -> str:
        def change(contents: Sequence[str]) -> list[str]:
            found: list[Any] = self._replaced(pa.array(contents, pa.string())).to_pylist()
            return found

        return with_contents(text, change)

    def _in_annotations(self, column: Any) -> pa.Array[Any]:
        """Names and texts. Names that become the same are joined by ``Checked``."""
        sent_names, sent_texts = column.keys, column.items
        names, texts = self._replaced(sent_names), self._replaced(sent_texts)
        if names is sent_names and texts is sent_texts:
            unchanged: pa.Array[Any] = column
            return unchanged
        nulls = as_mask(pc.is_null(column))
        return annotation_maps(np.asarray(column.offsets), names, texts, nulls)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Replaces values of fields (paths of keys into the payload of JSON) by HMAC-SHA256 with ``salt``: of a string what
    it means, of anything else its text, the same in all rows.
    """

    fields: tuple[tuple[str, ...], ...]
    salt: bytes = field(repr=False)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        is_json = _is_json(rows)
        texts = pc.if_else(pa.array(is_json), rows["payload"], pa.scalar(None, pa.binary())).cast(pa.string())
        hashed = self._in(texts, self.fields).cast(pa.binary())
        changed = {"payload": pc.if_else(pa.array(is_json), hashed, rows["payload"])}
        changed["data"] = self._in(rows["data"], [path[1:] for path in self.fields if path[0] == "data"])
        if ("host",) in self.fields:
            host = compute({"hash": self._sql("text")}, text=rows["host"])["hash"]
            changed["host"] = pc.if_else(pa.array(is_json), host, rows["host"])
        return _with(rows, changed)

    def _in(self, texts: pa.Array[Any], fields: Iterable[tuple[str, ...]]) -> pa.Array[Any]:
        for path in fields:
            made = compute(*self._replacing(path), text=texts)["made"]
            doubtful = as_mask(pc.is_null(made)) & as_mask(pc.is_valid(texts))
            texts = _changed(texts, made, doubtful, partial(with_members, path=path, change=self._value))
        return texts

    def _replacing(self, path: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """SQL for the usual: no such key, or one, with a string or a whole number. What is not usual becomes null."""
        key = json.dumps(path[-1], ensure_ascii=False)
        twice = quoted(f"(?s){re.escape(key)}.*{re.escape(key)}")
        cases = [f"contains(text, '\\') OR regexp_matches(text, {twice}) THEN NULL"]
        cases.append(f"NOT contains(text, {quoted(key)}) THEN text")
        for colon, (quote, end) in product((":", ": "), (('"', '"'), ("", ","), ("", "}"))):
            old = f"{quoted(key + colon + quote)} || value || '{end}'"
            new = f"""{quoted(key + colon)} || '"' || hash || '"{end.strip('"')}'"""
            whole = "true" if quote else "regexp_full_match(value, '-?[0-9]+')"
            cases.append(f"{whole} AND contains(text, {old}) THEN replace(text, {old}, {new})")
        value = f"json_extract_string(text, {json_pointer(*path)})"
        return {"made": f"CASE WHEN {' WHEN '.join(cases)} END"}, {"value": value, "hash": self._sql(value)}

    def _sql(self, value: str) -> str:
        """The hash of an expression of SQL."""
        key = (self.salt if len(self.salt) <= _BLOCK else sha256(self.salt).digest()).ljust(_BLOCK, b"\0")
        inner, outer = (f"unhex('{bytes(byte ^ pad for byte in key).hex()}')" for pad in (0x36, 0x5C))
        return f"left(sha256({outer} || unhex(sha256({inner} || encode({value})))), {HASH_LETTERS})"

    def _value(self, text: str) -> str:
        meant = json.loads(text) if text.startswith('"') else without_blanks(text)
        return f'"{hmac.digest(self.salt, meant.encode(), "sha256").hex()[:HASH_LETTERS]}"'


def _reaches_beyond(texts: pa.Array[Any], made: pa.Array[Any]) -> Mask:
    """Where something was replaced that is no content: it is no JSON any more, or there are fewer strings."""
    if not len(texts):
        return np.zeros(0, bool)
    whole = as_mask(compute({"valid": "json_valid(text)"}, text=made)["valid"])
    return ~whole | as_mask(pc.not_equal(pc.count_substring(texts, '"'), pc.count_substring(made, '"')))


def _is_json(rows: pa.RecordBatch) -> Mask:
    """Which payloads are objects of JSON: events, and those of quarantine that have another fault."""
    kinds = rows["kind"]
    events = as_mask(pc.equal(kinds, pa.scalar(MessageKind.EVENT.value)))
    others = as_mask(pc.equal(kinds, pa.scalar(MessageKind.QUARANTINE.value)))
    others &= as_mask(pc.not_equal(rows["reason"], pa.scalar("bad_json")))
    others &= as_mask(pc.starts_with(rows["payload"], "{"))
    return (events | others) & as_mask(pc.is_valid(rows["payload"]))


def _changed(texts: pa.Array[Any], made: pa.Array[Any], which: Mask, change: Any) -> pa.Array[Any]:
    """``made``, but for some rows (none of them null), whose texts are changed one by one."""
    if not which.any():
        return made
    found = [change(text) for text in texts.filter(pa.array(which)).to_pylist()]
    replaced: pa.Array[Any] = pc.replace_with_mask(made, pa.array(which), pa.array(found, pa.string()))
    return replaced


def _merged(first: Mask, ones: pa.Array[Any], others: pa.Array[Any]) -> pa.Array[Any]:
    """The values of two columns, in the order that a mask says."""
    places = np.where(first, np.cumsum(first) - 1, len(ones) + np.cumsum(~first) - 1)
    merged: pa.Array[Any] = pc.take(pa.concat_arrays([ones, others]), pa.array(places))
    return merged


def _with(rows: pa.RecordBatch, changed: dict[str, pa.Array[Any]]) -> pa.RecordBatch:
    columns = [changed.get(name, rows[name]) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
