"""Annotations for whole batches, such as the address that a message came from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.records import BODY, annotation_column, annotation_maps, from_numpy
from penstock.wire.datagrams import Ints

SOURCE_ADDRESS = "source_address"
"""Name of the annotation; added behind those that a message has."""

CERTIFICATE_NAME = "certificate_name"
"""Name of the annotation with the name of the sender's certificate."""


def annotate_sources(body: pa.RecordBatch, names: list[str], which: Ints) -> pa.RecordBatch:
    """``body`` (schema BODY) with the address ``names[which[i]]`` in the annotations of message i."""
    return annotate(body, SOURCE_ADDRESS, names, which)


def annotate(body: pa.RecordBatch, name: str, texts: list[str], which: Ints) -> pa.RecordBatch:
    """``body`` (schema BODY) with annotation ``name``, ``texts[which[i]]`` for message i, behind those it has."""
    added, column = body.num_rows, annotation_column(body)
    known = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.asarray(column.offsets)
    counts = np.where(known, np.diff(ends), 0)
    offsets = np.concatenate([[0], np.cumsum(counts + 1)])
    order = np.empty(offsets[-1], np.int64)
    is_new = np.zeros(offsets[-1], np.bool_)
    is_new[offsets[1:] - 1] = True
    order[~is_new] = _ranges(ends[:-1], counts)
    order[is_new] = len(column.keys) + np.arange(added)
    keys = pa.concat_arrays([column.keys, pa.array([name]).take(from_numpy(np.zeros(added, np.int64)))])
    values = pa.concat_arrays([column.items, pa.array(texts, pa.string()).take(from_numpy(which))])
    rows = from_numpy(order)
    maps = annotation_maps(offsets, keys.take(rows), values.take(rows))
    return body.set_column(BODY.get_field_index("annotations"), BODY.field("annotations"), maps)


def _ranges(begins: Ints, counts: Ints) -> Ints:
    """begin, begin + 1, ... for each begin, ``counts`` of them, one after the other."""
    shifts = np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(len(shifts))
