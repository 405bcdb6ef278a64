"""RFC 5424's structured data, parsed as whole columns: each parameter under the name ``SD-ID.NAME``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds, from_numpy
from penstock.wire.datagrams import Ints, joined_runs
from penstock.wire.growth import MAX_GROWTH_BYTES
from penstock.wire.sender_text import strings
from penstock.wire.syslog.octets import LOOKAHEAD, Bools, Octets, Spans

MAX_PARAMETERS = 32
"""Limit: parameters per message; structured data with more, or with too long names, stays one text."""
SLACK_BYTES = 512
"""Limit: bytes by which parameters may exceed their text, because each repeats its element's name."""
_BACKSLASH, _QUOTE = b"\xff1", b"\xff2"  # placeholders of escaped characters; never valid UTF-8
OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by row: row i has [offsets[i], offsets[i + 1]) of ``names`` and ``values`` (type string).

    ``is_unsplit``: rows whose structured data stays one text.
    """

    offsets: Ints
    names: pa.Array[Any]
    values: pa.Array[Any]
    is_unsplit: Bools


def read_parameters(octets: Octets, ranges: Spans) -> Parameters | None:
    r"""Return the parameters in ``ranges`` (well-formed, empty if missing); None if no row has any.

    Values of a repeated name are joined by ``\\0``, like tags.
    """
    if not ranges.filled.any():
        return None
    texts = octets.texts(ranges.begins, ranges.ends)
    if escaped := bool((octets.next(b"\\", ranges.begins, ranges.ends) < ranges.ends).any()):
        texts = _mask_escapes(texts)
    counts, names, values = _join_repeated(*_parameters(Octets(texts), escaped))
    lengths = ranges.ends - ranges.begins
    # Limit: the size of a message must bound the size of its annotations, or a frame could overflow.
    fits = (counts <= MAX_PARAMETERS) & (
        _sizes(counts, names, values) <= lengths + np.minimum(lengths, MAX_GROWTH_BYTES) + SLACK_BYTES
    )
    if not fits.all():
        fitting = from_numpy(np.repeat(fits, counts))
        counts, names, values = counts * fits, names.filter(fitting), values.filter(fitting)
    return Parameters(np.concatenate([[0], np.cumsum(counts)]), names, values, ranges.filled & (counts == 0))


def _mask_escapes(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Replace escaped characters by placeholders, so that each remaining quote begins or ends a value."""
    for escaped, instead in ((b"\\\\", _BACKSLASH), (b'\\"', _QUOTE), (b"\\]", b"]")):
        texts = pc.replace_substring(texts, escaped, instead)
    return texts


def _parameters(octets: Octets, escaped: bool) -> tuple[Ints, pa.Array[Any], pa.Array[Any]]:
    """Return the number of parameters per row, their names and their values."""
    quotes = octets.positions(b'"')[:-LOOKAHEAD]
    opens, closes = quotes[0::2], quotes[1::2]
    counts = np.searchsorted(opens, octets.stops) - np.searchsorted(opens, octets.starts)
    spaces, brackets = octets.positions(b" "), octets.positions(b"[")
    begins = spaces[np.searchsorted(spaces, opens) - 1] + 1
    bracket = brackets[np.searchsorted(brackets, opens) - 1]
    is_first = bracket > np.concatenate([[-1], closes[:-1]])  # the others belong to the element that began last
    elements = bracket[is_first] + 1
    ids = octets.texts(elements, octets.next(b" ", elements, octets.stops[-1:]))
    ids = ids.take(from_numpy(np.cumsum(is_first) - 1))
    keys = octets.texts(begins, opens - 1)
    names = strings(pc.binary_join_element_wise(ids, keys, b"."))  # type: ignore[call-overload]  # the stub: no scalar
    values = octets.texts(opens + 1, closes)
    if escaped:
        values = pc.replace_substring(pc.replace_substring(values, _BACKSLASH, b"\\"), _QUOTE, b'"')
    return counts, names, strings(values)


def _join_repeated(
    counts: Ints, names: pa.Array[Any], values: pa.Array[Any]
) -> tuple[Ints, pa.Array[Any], pa.Array[Any]]:
    """Return the parameters with each name once per row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first, group = np.unique(rows * (len(names) + 1) + codes, return_index=True, return_inverse=True)
    if len(first) == len(names):
        return counts, names, values
    begins = np.concatenate([[0], np.cumsum(np.bincount(group))[:-1]])
    joined = joined_runs(values.take(from_numpy(np.argsort(group, kind="stable"))), begins, "\0")
    order = np.argsort(first)
    remaining_counts = np.bincount(rows[first], minlength=len(counts)).astype(np.int64)
    return remaining_counts, names.take(from_numpy(first[order])), joined.take(from_numpy(order))


def _sizes(counts: Ints, names: pa.Array[Any], values: pa.Array[Any]) -> Ints:
    """Return the bytes of each row's parameters, including their offsets."""
    sizes = np.concatenate([[0], np.cumsum(np.diff(bounds(names)) + np.diff(bounds(values)) + OFFSET_BYTES)])
    ends = np.cumsum(counts)
    row_sizes: Ints = sizes[ends] - sizes[ends - counts]
    return row_sizes
