"""What a decoder gives back for a round, and how the pieces of a round become one batch."""

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
"""The annotation that carries a message's tags, joined by ``\\0``."""
KEY_TAG = "pk:"
_NULS = r"\x00+"
_EDGES = r"\A\x00|\x00\z"
_KEY = r"(?s)\A(?:.*\x00)?pk:(?P<key>[^\x00]*)(?:\x00.*)?\z"
NO_ROWS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages in order of arrival (schema ``records.BODY``), the round's counts, and its commands.

    ``rows``: int64, one entry a message, the datagram that brought it, or completed it. ``taken``: how many of the
    datagrams this is all of, where it is not the whole round: the others are to be handed over once more.
    """

    body: pa.RecordBatch
    counts: Counts
    commands: list[Command] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: NO_ROWS)
    taken: int | None = None


class Piece(NamedTuple):
    """Messages of one kind: ``rows`` of the datagrams that brought them, payloads, and their tags as received.

    ``tags`` is binary with null where a message has none; None where none of them has any.
    """

    rows: Ints
    payloads: pa.Array[Any]
    tags: pa.Array[Any] | None = None


def join(pieces: Sequence[Piece]) -> tuple[pa.RecordBatch, Ints]:
    """One batch of all pieces in order of arrival, and the rows of its messages."""
    # Those that begin first come first: mostly they lie one behind the other, and nothing is to be put in order.
    pieces = sorted((piece for piece in pieces if len(piece.rows)), key=lambda piece: int(piece.rows[0]))
    if not pieces:
        return EMPTY_BODY, NO_ROWS
    rows = pieces[0].rows if len(pieces) == 1 else np.concatenate([piece.rows for piece in pieces])
    payloads = _concatenated([piece.payloads for piece in pieces])
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
    """Keys (the last ``pk:`` tag of each) and annotations (``tags``, without empty ones); null where there are none."""
    names, keys = _without_empty(tags), pa.nulls(len(tags), pa.binary())
    if pc.any(pc.match_substring(names, KEY_TAG)).as_py():
        found = pc.extract_regex(names, _KEY)
        keys = pc.if_else(found.is_valid(), found.field("key"), keys)
    sizes: pa.Array[Any] = pc.binary_length(names)  # type: ignore[call-overload]  # the stub: no Array[Any]
    given: pa.Array[Any] = pc.greater(sizes, pa.scalar(0)).fill_null(False)
    offsets = np.concatenate([[0], np.cumsum(given.to_numpy(zero_copy_only=False))])
    texts = strings(names.filter(given))
    labels = pa.array([TAGS]).take(from_numpy(np.zeros(len(texts), np.int64)))
    maps = annotation_maps(offsets, labels, texts)
    return keys, pc.if_else(given, maps, pa.scalar(None, ANNOTATIONS))


def _without_empty(tags: pa.Array[Any]) -> pa.Array[Any]:
    """Joined tags without empty ones among them: plog leaves them out."""
    edges = pc.or_(pc.starts_with(tags, "\0"), pc.ends_with(tags, "\0"))
    if not pc.any(pc.or_(edges, pc.match_substring(tags, "\0\0"))).as_py():
        return tags
    return pc.replace_substring_regex(pc.replace_substring_regex(tags, _NULS, "\0"), _EDGES, "")


def _all_tags(pieces: Sequence[Piece]) -> pa.Array[Any] | None:
    if all(piece.tags is None for piece in pieces):
        return None
    return _concatenated([pa.nulls(len(p.rows), pa.binary()) if p.tags is None else p.tags for p in pieces])


def _concatenated(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
