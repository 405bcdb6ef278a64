"""RFC 5424's structured data, whole columns at a time: each parameter by its name, ``SD-ID.NAME``."""

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

MOST_PARAMETERS = 32
"""Parameters of a message; structured data of more, or of too long names, stays a text as it is."""
SLACK = 512
"""Bytes by which a message's parameters may outgrow their text: each repeats its element's name."""
_BACKSLASH, _QUOTE = b"\xff1", b"\xff2"  # stand for what was escaped: no bytes of UTF-8
_OFFSETS = 8


@dataclass(frozen=True, slots=True)
class Parameters:
    """Row i has the parameters [offsets[i], offsets[i + 1]) of ``names`` and ``values`` (type string).

    ``whole``: the rows whose structured data stays one text.
    """

    offsets: Ints
    names: pa.Array[Any]
    values: pa.Array[Any]
    whole: Bools


def read_parameters(octets: Octets, places: Spans) -> Parameters | None:
    """The parameters of what stands at ``places`` (well-formed, empty where there is none); None where no row has any.

    Where a name is given twice, its values are joined by ``\\0``, as tags are.
    """
    if not places.filled.any():
        return None
    texts = octets.texts(places.begins, places.ends)
    if escaped := bool((octets.next(b"\\", places.begins, places.ends) < places.ends).any()):
        texts = _without_escapes(texts)
    counts, names, values = _joined(*_parameters(Octets(texts), escaped))
    lengths = places.ends - places.begins
    fits = (counts <= MOST_PARAMETERS) & (
        _sizes(counts, names, values) <= lengths + np.minimum(lengths, MAX_GROWTH_BYTES) + SLACK
    )
    if not fits.all():
        kept = from_numpy(np.repeat(fits, counts))
        counts, names, values = counts * fits, names.filter(kept), values.filter(kept)
    return Parameters(np.concatenate([[0], np.cumsum(counts)]), names, values, places.filled & (counts == 0))


def _without_escapes(texts: pa.Array[Any]) -> pa.Array[Any]:
    """``texts`` with what is escaped replaced, so that each quote that is left begins or ends a value."""
    for escaped, instead in ((b"\\\\", _BACKSLASH), (b'\\"', _QUOTE), (b"\\]", b"]")):
        texts = pc.replace_substring(texts, escaped, instead)
    return texts


def _parameters(octets: Octets, escaped: bool) -> tuple[Ints, pa.Array[Any], pa.Array[Any]]:
    """How many parameters each row has, their names and their values."""
    quotes = octets.places(b'"')[:-LOOKAHEAD]
    opens, closes = quotes[0::2], quotes[1::2]
    counts = np.searchsorted(opens, octets.stops) - np.searchsorted(opens, octets.starts)
    spaces, brackets = octets.places(b" "), octets.places(b"[")
    begins = spaces[np.searchsorted(spaces, opens) - 1] + 1
    bracket = brackets[np.searchsorted(brackets, opens) - 1]
    is_first = bracket > np.concatenate([[-1], closes[:-1]])  # the others are of the element that began last
    elements = bracket[is_first] + 1
    ids = octets.texts(elements, octets.next(b" ", elements, octets.stops[-1:]))
    ids = ids.take(from_numpy(np.cumsum(is_first) - 1))
    keys = octets.texts(begins, opens - 1)
    names = strings(pc.binary_join_element_wise(ids, keys, b"."))  # type: ignore[call-overload]  # the stub: no scalar
    values = octets.texts(opens + 1, closes)
    if escaped:
        values = pc.replace_substring(pc.replace_substring(values, _BACKSLASH, b"\\"), _QUOTE, b'"')
    return counts, names, strings(values)


def _joined(counts: Ints, names: pa.Array[Any], values: pa.Array[Any]) -> tuple[Ints, pa.Array[Any], pa.Array[Any]]:
    """The parameters with each name once a row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first, group = np.unique(rows * (len(names) + 1) + codes, return_index=True, return_inverse=True)
    if len(first) == len(names):
        return counts, names, values
    begins = np.concatenate([[0], np.cumsum(np.bincount(group))[:-1]])
    joined = joined_runs(values.take(from_numpy(np.argsort(group, kind="stable"))), begins, "\0")
    order = np.argsort(first)
    left = np.bincount(rows[first], minlength=len(counts)).astype(np.int64)
    return left, names.take(from_numpy(first[order])), joined.take(from_numpy(order))


def _sizes(counts: Ints, names: pa.Array[Any], values: pa.Array[Any]) -> Ints:
    """Bytes that each row's parameters take, their offsets included."""
    sizes = np.concatenate([[0], np.cumsum(np.diff(bounds(names)) + np.diff(bounds(values)) + _OFFSETS)])
    ends = np.cumsum(counts)
    taken: Ints = sizes[ends] - sizes[ends - counts]
    return taken
