"""Filters on annotations, evaluated on whole batches: ``(k:userid v:vip\\-[0-9]+) OR (k:important)``.

The grammar is that of ``penstock.log.read.filter_syntax``. No Python runs for a single row: patterns are matched by
Arrow on the keys and values of all annotations of a batch at once, and what they found is gathered by row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.read.filter_syntax import All, Any, BadFilter, Clause, Node, Not, parse, whole
from penstock.records import annotation_column, from_numpy

__all__ = ["BadFilter", "Filter", "having"]

Mask = npt.NDArray[np.bool_]
_PLAIN = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*", re.ASCII)
"""Patterns that can only match one text: ASCII punctuation with a backslash before it stands for itself."""
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that can be applied to any number of batches, from any thread."""

    text: str
    root: Node

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Raises BadFilter, which points at the place, for a text that is none (an empty one, too)."""
        return cls(text, parse(text))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """One value a row (never null) of a batch with the column ``annotations``: whether it matches.

        A row without annotations matches no clause; a null value counts as an empty one.
        """
        return pa.array(_rows(self.root, _Pairs(batch)))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match; the batch itself when all do."""
        mask = self.mask(batch)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)


def having(batch: pa.RecordBatch, text: str) -> pa.BooleanArray:
    """One value a row (never null) of a SCHEMA batch: whether its payload, or an annotation, has ``text`` in it."""
    pairs = _Pairs(batch)
    annotated = pairs.rows(_contain(pairs.keys, text) | _contain(pairs.values, text))
    return pa.array(_contain(batch.column("payload"), text) | annotated)


def _contain(texts: pa.Array[pa.StringScalar] | pa.Array[pa.BinaryScalar], text: str) -> Mask:
    found: pa.BooleanArray = pc.match_substring(texts, text)
    mask: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


class _Pairs:
    """The annotations of all rows one behind the other: ``keys``, ``values``, ``bounds`` of each row in them."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        column = annotation_column(batch)
        self.count = len(column)
        offsets = column.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        self.bounds = offsets - first
        self.keys = column.keys[first:last]
        self.values = column.items[first:last]
        self.absent = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        self.one_each = last - first == self.count and bool((np.diff(offsets) == 1).all())

    def rows(self, found: Mask) -> Mask:
        """Which rows have one of the annotations that were found."""
        if not self.one_each:
            running = np.zeros(len(found) + 1, np.int32)
            np.cumsum(found, out=running[1:])
            found = np.diff(running[self.bounds]) > 0
        return found if self.absent is None else found & ~self.absent


def _rows(node: Node, pairs: _Pairs) -> Mask:
    if isinstance(node, Clause):
        return pairs.rows(_found(node, pairs))
    if isinstance(node, Not):
        return ~_rows(node.operand, pairs)
    return _all(node, pairs) if isinstance(node, All) else _any(node, pairs)


def _all(node: All, pairs: _Pairs) -> Mask:
    mask = np.ones(pairs.count, np.bool_)
    for operand in node.operands:
        if not mask.any():
            break
        mask = mask & _rows(operand, pairs)
    return mask


def _any(node: Any, pairs: _Pairs) -> Mask:
    mask = np.zeros(pairs.count, np.bool_)
    for operand in node.operands:
        if mask.all():
            break
        mask = mask | _rows(operand, pairs)
    return mask


def _found(clause: Clause, pairs: _Pairs) -> Mask:
    """Which annotations match; values are looked at only where the key does."""
    if clause.key is None:
        return _matches(pairs.values, clause.value)
    found = _matches(pairs.keys, clause.key)
    if clause.value is None:
        return found
    if found.all():
        return _matches(pairs.values, clause.value)
    at = np.flatnonzero(found)
    found[at] = _matches(pairs.values.take(from_numpy(at)), clause.value)
    return found


def _matches(texts: pa.Array[pa.StringScalar], pattern: str | None) -> Mask:
    """Which texts the pattern matches as a whole; writable."""
    if pattern is None:
        return np.ones(len(texts), np.bool_)
    if texts.null_count:
        texts = texts.fill_null("")  # type: ignore[assignment]  # the stub forgets the type
    if _PLAIN.fullmatch(pattern):
        matched = pc.equal(texts, pa.scalar(_ESCAPE.sub(r"\1", pattern), texts.type))
    else:
        matched = pc.match_substring_regex(texts, pattern=whole(pattern))
    mask: Mask = matched.to_numpy(zero_copy_only=False)
    return mask
