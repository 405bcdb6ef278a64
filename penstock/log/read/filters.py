r"""Filters on annotations, evaluated on whole batches: ``(k:userid v:vip\-[0-9]+) OR (k:important)``.

The grammar is in ``penstock.log.read.filter_syntax``. No Python statement runs per row: Arrow matches the patterns on
the keys and values of all annotations of a batch at once, and the matches are gathered by row.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.read.filter_syntax import And, BadFilter, Clause, Node, Not, Or, anchored, parse
from penstock.records import annotation_column, from_numpy

__all__ = ["BadFilter", "Filter", "contains_text"]

Mask = npt.NDArray[np.bool_]
_LITERAL_PATTERN = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*", re.ASCII)
"""Patterns that match exactly one text; a backslash before ASCII punctuation only escapes it."""
_ESCAPE = re.compile(r"\\(.)")
_SIGN_ESCAPES = [
    str.maketrans({"/": r"\/"}),
    *(str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in signs}) for signs in ("<>&", "<>&='")),
]
"""Signs that the writers of PHP, of Go, and Gson escape in addition."""
_DOTNET_ESCAPES = {r"\"": r"\u0022", **{sign: f"\\u{ord(sign):04X}" for sign in "<>&'+`\x7f"}}
"""Signs that .NET's writer escapes in addition to all that is not ASCII."""
_DOTNET_SIGN = re.compile(r"\\.|[<>&'+`\x7f]")
_UNICODE_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. Immutable: any thread may apply it to any number of batches."""

    text: str
    root: Node

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse a filter. Raises BadFilter, with the position, for an invalid or empty text."""
        return cls(text, parse(text))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return a Boolean per row (never null) of a batch with the column ``annotations``: whether the row matches.

        A row without annotations matches no clause; a null value counts as an empty value.
        """
        return pa.array(_match_rows(self.root, _Pairs(batch)))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match; the batch itself if all do."""
        mask = self.mask(batch)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)


def contains_text(batch: pa.RecordBatch, text: str) -> pa.BooleanArray:
    """Return a Boolean per row (never null): whether its payload, also as JSON, or an annotation contains ``text``.

    ``batch`` has the schema SCHEMA.
    """
    pairs = _Pairs(batch)
    mask = pairs.rows_with_match(_contains(pairs.keys, text) | _contains(pairs.values, text))
    for written in written_forms(text):
        mask = mask | _contains(batch.column("payload"), written)
    return pa.array(mask)


def written_forms(text: str) -> set[str]:
    """Return a text as payloads may have it: unchanged, and in JSON, whose writers escape letters in two cases or not.

    Most texts have one form, so that they are searched once.
    """
    escaped = json.dumps(text)[1:-1]
    upper = _UNICODE_ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), escaped)
    forms = {text, json.dumps(text, ensure_ascii=False)[1:-1], escaped, upper}
    with_signs = {form.translate(signs) for signs in _SIGN_ESCAPES for form in forms}
    return forms | with_signs | {_DOTNET_SIGN.sub(lambda match: _DOTNET_ESCAPES.get(match[0], match[0]), upper)}


def _contains(texts: pa.Array[pa.StringScalar] | pa.Array[pa.BinaryScalar], text: str) -> Mask:
    matches: pa.BooleanArray = pc.match_substring(texts, text)
    mask: Mask = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


class _Pairs:
    """The annotations of all rows in sequence: ``keys``, ``values``, and the ``bounds`` of each row in them."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        column = annotation_column(batch)
        self.count = len(column)
        offsets = column.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        self.bounds = offsets - first
        self.keys = column.keys[first:last]
        self.values = column.items[first:last]
        self.absent = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        self.one_per_row = last - first == self.count and bool((np.diff(offsets) == 1).all())

    def rows_with_match(self, matches: Mask) -> Mask:
        """Return which rows have a matching annotation."""
        # Fast path: with exactly one annotation per row, the matches are the rows already.
        if not self.one_per_row:
            running = np.zeros(len(matches) + 1, np.int32)
            np.cumsum(matches, out=running[1:])
            matches = np.diff(running[self.bounds]) > 0
        return matches if self.absent is None else matches & ~self.absent


def _match_rows(node: Node, pairs: _Pairs) -> Mask:
    if isinstance(node, Clause):
        return pairs.rows_with_match(_match_clause(node, pairs))
    if isinstance(node, Not):
        return ~_match_rows(node.operand, pairs)
    return _match_all(node, pairs) if isinstance(node, And) else _match_any(node, pairs)


def _match_all(node: And, pairs: _Pairs) -> Mask:
    mask = np.ones(pairs.count, np.bool_)
    for operand in node.operands:
        # The remaining operands cannot change the mask; each would cost a pass over the annotations.
        if not mask.any():
            break
        mask = mask & _match_rows(operand, pairs)
    return mask


def _match_any(node: Or, pairs: _Pairs) -> Mask:
    mask = np.zeros(pairs.count, np.bool_)
    for operand in node.operands:
        if mask.all():
            break
        mask = mask | _match_rows(operand, pairs)
    return mask


def _match_clause(clause: Clause, pairs: _Pairs) -> Mask:
    """Return which annotations match; values are compared only if the key matches."""
    if clause.key is None:
        return _match_texts(pairs.values, clause.value)
    matches = _match_texts(pairs.keys, clause.key)
    if clause.value is None:
        return matches
    # Fast path: all keys match, as in a topic with a single key; copying the values would gain nothing.
    if matches.all():
        return _match_texts(pairs.values, clause.value)
    key_matches = np.flatnonzero(matches)
    matches[key_matches] = _match_texts(pairs.values.take(from_numpy(key_matches)), clause.value)
    return matches


def _match_texts(texts: pa.Array[pa.StringScalar], pattern: str | None) -> Mask:
    """Return which texts ``pattern`` matches as a whole, as a writable array."""
    if pattern is None:
        return np.ones(len(texts), np.bool_)
    if texts.null_count:
        texts = texts.fill_null("")  # type: ignore[assignment]  # pyarrow's stub widens the type
    # Fast path: a plain comparison needs no regular expression.
    if _LITERAL_PATTERN.fullmatch(pattern):
        matched = pc.equal(texts, pa.scalar(_ESCAPE.sub(r"\1", pattern), texts.type))
    else:
        matched = pc.match_substring_regex(texts, pattern=anchored(pattern))
    mask: Mask = matched.to_numpy(zero_copy_only=False)
    return mask
