"""Which topic a message's sender asks for: its last ``kt:`` tag (plog, "Tags with a meaning")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import concatenated, from_numpy, values_of
from penstock.wire.decoded import TAGS
from penstock.wire.source_annotations import annotate

TOPIC_REQUEST = "kt"
"""The annotation of a message whose request could not be granted."""
_TAG = "kt:"
_LAST = r"(?s)\A(?:.*\x00)?kt:(?P<topic>[^\x00]*)(?:\x00.*)?\z"


def requested_topics(batch: pa.RecordBatch) -> pa.Array[Any] | None:
    """The topic that each message asks for, null where it asks for none; None where none does."""
    annotations = batch.column("annotations")
    if annotations.null_count == len(annotations):
        return None
    tags = pc.map_lookup(annotations, TAGS, "first")
    if not pc.any(pc.match_substring(tags, _TAG)).as_py():
        return None
    found = pc.extract_regex(tags, _LAST)
    topics = pc.if_else(found.is_valid(), found.field("topic"), pa.scalar(None, pa.string()))
    return topics if topics.null_count < len(topics) else None


def with_refused_requests(batch: pa.RecordBatch, topics: pa.Array[Any]) -> pa.RecordBatch:
    """``batch`` with each request in ``topics`` (null for none) as a further annotation ``kt``."""
    requested = topics.is_valid()
    if not pc.any(requested).as_py():
        return batch
    names = topics.drop_null().dictionary_encode()
    which = names.indices.to_numpy().astype(np.int64)
    annotated = annotate(batch.filter(requested), TOPIC_REQUEST, values_of(names.dictionary), which)
    rows = np.arange(batch.num_rows)
    mask = requested.to_numpy(zero_copy_only=False)
    order = np.argsort(np.concatenate([rows[mask], rows[~mask]]))
    return concatenated([annotated, batch.filter(pc.invert(requested))]).take(from_numpy(order))
