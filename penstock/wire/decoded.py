"""Output of a decoder for one round, and the merge of its pieces into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts
from penstock.records import ANNOTATIONS, EMPTY_BODY, annotation_maps, body, from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.plog.commands import Command
from penstock.wire.sender_text import strings

TAGS = "tags"
"""Annotation that carries a message's tags, joined by ``\\0``."""
KEY_TAG = "pk:"
_NULS = r"\x00+"
_EDGES = r"\A\x00|\x00\z"
_KEY = r"(?s)\A(?:.*\x00)?pk:(?P<key>[^\x00]*)(?:\x00.*)?\z"
NO_ROWS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages in order of arrival (schema ``records.BODY``), the round's counts, and its commands.

    ``rows``: int64, one entry per message: the datagram that contained or completed it. ``consumed``: number of
    leading datagrams that were decoded, None for all; the caller passes the remaining ones to ``decode`` again.
    ``refused``: int64, rows of datagrams or lines whose message was refused.
    """

    body: pa.RecordBatch
    counts: Counts
    commands: list[Command] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: NO_ROWS)
    consumed: int | None = None
    refused: Ints = field(default_factory=lambda: NO_ROWS)


class Piece(NamedTuple):
    """Messages of one kind: ``rows`` of their datagrams, payloads, and tags as received.

    ``tags`` is binary with null for a message without tags; None if no message has tags.
    """

    rows: Ints
    payloads: pa.Array[Any]
    tags: pa.Array[Any] | None = None


def join(pieces: Sequence[Piece]) -> tuple[pa.RecordBatch, Ints]:
    """Merge the pieces into one batch in order of arrival; return it with the rows of its messages."""
    # Fast path: sorted by their first row, pieces usually follow one another, so their rows need no sort.
    pieces = sorted((piece for piece in pieces if len(piece.rows)), key=lambda piece: int(piece.rows[0]))
    if not pieces:
        return EMPTY_BODY, NO_ROWS
    rows = pieces[0].rows if len(pieces) == 1 else np.concatenate([piece.rows for piece in pieces])
    payloads = _concatenate([piece.payloads for piece in pieces])
    tags = _all_tags(pieces)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows)
        rows, payloads = rows[order], payloads.take(from_numpy(order))
        tags = tags if tags is None else tags.take(from_numpy(order))
    if tags is None:
        return body(payloads), rows
    keys, annotations = tag_columns(tags)
    return body(payloads, keys=keys, annotations=annotations), rows


def tag_columns(tags: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return keys (the last ``pk:`` tag of each message) and annotations (``tags`` without empty ones), or null."""
    names, keys = _drop_empty_tags(tags), pa.nulls(len(tags), pa.binary())
    # Fast path: the regular expression runs only if some tag may be a key.
    if pc.any(pc.match_substring(names, KEY_TAG)).as_py():
        matches = pc.extract_regex(names, _KEY)
        keys = pc.if_else(matches.is_valid(), matches.field("key"), keys)
    sizes: pa.Array[Any] = pc.binary_length(names)  # type: ignore[call-overload]  # the stub: no Array[Any]
    has_tags: pa.Array[Any] = pc.greater(sizes, pa.scalar(0)).fill_null(False)
    offsets = np.concatenate([[0], np.cumsum(has_tags.to_numpy(zero_copy_only=False))])
    texts = strings(names.filter(has_tags))
    labels = pa.array([TAGS]).take(from_numpy(np.zeros(len(texts), np.int64)))
    maps = annotation_maps(offsets, labels, texts)
    return keys, pc.if_else(has_tags, maps, pa.scalar(None, ANNOTATIONS))


def _drop_empty_tags(tags: pa.Array[Any]) -> pa.Array[Any]:
    """Remove empty tags from joined tags, as plog does."""
    edges = pc.or_(pc.starts_with(tags, "\0"), pc.ends_with(tags, "\0"))
    if not pc.any(pc.or_(edges, pc.match_substring(tags, "\0\0"))).as_py():
        return tags
    return pc.replace_substring_regex(pc.replace_substring_regex(tags, _NULS, "\0"), _EDGES, "")


def _all_tags(pieces: Sequence[Piece]) -> pa.Array[Any] | None:
    if all(piece.tags is None for piece in pieces):
        return None
    return _concatenate([pa.nulls(len(p.rows), pa.binary()) if p.tags is None else p.tags for p in pieces])


def _concatenate(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
