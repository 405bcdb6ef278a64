"""What a decoder gives back for a round, and how the pieces of a round become one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.counts import Counts
from penstock.records import EMPTY_BODY, body
from penstock.wire.commands import Command
from penstock.wire.datagrams import Ints
from penstock.wire.text import text

KEY_TAG = b"pk:"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages in order of arrival (schema ``records.BODY``), the round's counts, and its commands."""

    body: pa.RecordBatch
    counts: Counts
    commands: list[Command] = field(default_factory=list)


class Piece(NamedTuple):
    """Messages of one kind: ``rows`` of the datagrams that brought them, payloads, tags by row."""

    rows: Ints
    payloads: pa.Array
    tags: Mapping[int, bytes]


def join(pieces: Sequence[Piece]) -> pa.RecordBatch:
    """One batch of all pieces in order of arrival."""
    pieces = [piece for piece in pieces if len(piece.rows)]
    if not pieces:
        return EMPTY_BODY
    rows = np.concatenate([piece.rows for piece in pieces])
    payloads = pieces[0].payloads if len(pieces) == 1 else pa.concat_arrays([piece.payloads for piece in pieces])
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows)
        rows, payloads = rows[order], payloads.take(pa.array(order))
    tags = {row: tags for piece in pieces for row, tags in piece.tags.items()}
    if not tags:
        return body(payloads)
    keys, annotations = _tag_columns(rows, tags)
    return body(payloads, keys=keys, annotations=annotations)


def _tag_columns(rows: Ints, tags: Mapping[int, bytes]) -> tuple[pa.Array, pa.Array]:
    """Keys (the last ``pk:`` tag of each) and annotations (``tags``, joined by ``\\0``); null where there are none."""
    keys: list[bytes | None] = [None] * len(rows)
    annotations: list[list[tuple[str, str]] | None] = [None] * len(rows)
    for row, joined in tags.items():
        names = [name for name in joined.split(b"\0") if name]
        at = int(np.searchsorted(rows, row))
        if names:
            annotations[at] = [("tags", text(b"\0".join(names)))]
        keys[at] = next((name[len(KEY_TAG) :] for name in reversed(names) if name.startswith(KEY_TAG)), None)
    return pa.array(keys, pa.binary()), pa.array(annotations, pa.map_(pa.string(), pa.string()))
