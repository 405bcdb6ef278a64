"""Annotations of whole batches, such as the sender's address."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.records import BODY, annotation_column, annotation_maps, from_numpy
from penstock.wire.datagrams import Ints

SOURCE_ADDRESS = "source_address"
"""Annotation with the sender's address; added after the annotations that a message has."""

CERTIFICATE_NAME = "certificate_name"
"""Annotation with the name in the sender's certificate."""


def annotate_sources(body: pa.RecordBatch, names: list[str], indices: Ints) -> pa.RecordBatch:
    """Return ``body`` (schema BODY) with ``names[indices[i]]`` as the address annotation of message i."""
    return annotate(body, SOURCE_ADDRESS, names, indices)


def annotate(body: pa.RecordBatch, name: str, texts: list[str], indices: Ints) -> pa.RecordBatch:
    """Return ``body`` (schema BODY) with annotation ``name`` = ``texts[indices[i]]`` appended to message i."""
    added, column = body.num_rows, annotation_column(body)
    has_annotations = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.asarray(column.offsets)
    counts = np.where(has_annotations, np.diff(ends), 0)
    offsets = np.concatenate([[0], np.cumsum(counts + 1)])
    # Fast path: existing and new entries are interleaved by one index array, without a statement per message.
    order = np.empty(offsets[-1], np.int64)
    is_new = np.zeros(offsets[-1], np.bool_)
    is_new[offsets[1:] - 1] = True
    order[~is_new] = _ranges(ends[:-1], counts)
    order[is_new] = len(column.keys) + np.arange(added)
    keys = pa.concat_arrays([column.keys, pa.array([name]).take(from_numpy(np.zeros(added, np.int64)))])
    values = pa.concat_arrays([column.items, pa.array(texts, pa.string()).take(from_numpy(indices))])
    rows = from_numpy(order)
    maps = annotation_maps(offsets, keys.take(rows), values.take(rows))
    return body.set_column(BODY.get_field_index("annotations"), BODY.field("annotations"), maps)


def _ranges(begins: Ints, counts: Ints) -> Ints:
    """Return ``counts`` consecutive numbers from each of ``begins``, concatenated."""
    shifts = np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(len(shifts))
