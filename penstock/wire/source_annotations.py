"""Annotations of whole batches, such as the sender's address."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import BODY, annotation_column, annotation_maps, from_numpy, values_of
from penstock.wire.datagrams import Ints
from penstock.wire.growth import FIELDS

SOURCE_ADDRESS = "source_address"
"""Annotation with the sender's address; added after the annotations that a message has."""

CREDENTIALS = ("source_pid", "source_uid", "source_gid")
"""Annotations with process, user and group of a local sender, as the kernel states them."""

CERTIFICATE_NAME = "certificate_name"
"""Annotation with the name in the sender's certificate."""
NO_HOST = "(no host)"
MAX_HOST_CHARS = 64
"""Limit: senders choose their names, and each is held for a while."""


def messages_by_host(messages: pa.RecordBatch) -> dict[str, int]:
    """Return the number of messages by the header's host; those without one under NO_HOST."""
    annotations = annotation_column(messages)
    hosts = annotations.items.filter(pc.equal(annotations.keys, pa.scalar(FIELDS[1])))
    # A parameter of structured data may have the same name: it is counted, too, and nothing is lost by that.
    counted = pc.value_counts(pc.utf8_slice_codeunits(hosts, 0, MAX_HOST_CHARS))
    names, numbers = values_of(counted.field("values")), values_of(counted.field("counts"))
    amounts: dict[str, int] = dict(zip(names, numbers, strict=True))
    if (without := messages.num_rows - sum(amounts.values())) > 0:
        amounts[NO_HOST] = without
    return amounts


def annotate_sources(body: pa.RecordBatch, names: list[str], indices: Ints) -> pa.RecordBatch:
    """Return ``body`` (schema BODY) with ``names[indices[i]]`` as the address annotation of message i."""
    return annotate(body, SOURCE_ADDRESS, names, indices)


def annotate_credentials(body: pa.RecordBatch, credentials: Ints) -> pa.RecordBatch:
    """Return ``body`` (schema BODY) with the CREDENTIALS of each message, of shape (messages, 3)."""
    # Two passes over integers, because numpy sorts rows of three much slower: users and groups, then processes.
    owners, owner_indices = np.unique(credentials[:, 1] << 32 | credentials[:, 2], return_inverse=True)
    senders, indices = np.unique(credentials[:, 0] * len(owners) + owner_indices, return_inverse=True)
    pids, owner_of_sender = np.divmod(senders, max(len(owners), 1))
    # Users from 2^31 on make the joined integer negative: the mask removes the sign that the shift extends.
    columns = (pids, owners[owner_of_sender] >> 32 & 0xFFFF_FFFF, owners[owner_of_sender] & 0xFFFF_FFFF)
    texts = {name: [str(number) for number in column] for name, column in zip(CREDENTIALS, columns, strict=True)}
    return annotate_columns(body, texts, indices)


def annotate(body: pa.RecordBatch, name: str, texts: list[str], indices: Ints) -> pa.RecordBatch:
    """Return ``body`` (schema BODY) with annotation ``name`` = ``texts[indices[i]]`` appended to message i."""
    return annotate_columns(body, {name: texts}, indices)


def annotate_columns(body: pa.RecordBatch, texts: Mapping[str, list[str]], indices: Ints) -> pa.RecordBatch:
    """Return ``body`` with the annotations ``name`` = ``texts[name][indices[i]]`` appended to message i."""
    width, messages, column = len(texts), body.num_rows, annotation_column(body)
    added = width * messages
    has_annotations = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.asarray(column.offsets)
    counts = np.where(has_annotations, np.diff(ends), 0)
    offsets = np.concatenate([[0], np.cumsum(counts + width)])
    # Fast path: existing and new entries are interleaved by one index array, without a statement per message.
    order = np.empty(offsets[-1], np.int64)
    is_new = np.zeros(offsets[-1], np.bool_)
    is_new[(offsets[1:, None] - np.arange(width, 0, -1)).ravel()] = True
    order[~is_new] = _ranges(ends[:-1], counts)
    order[is_new] = len(column.keys) + np.arange(added)
    all_texts = pa.array([text for texts_of_name in texts.values() for text in texts_of_name], pa.string())
    begins = np.cumsum([0, *(len(texts_of_name) for texts_of_name in texts.values())])[:width]
    keys = pa.concat_arrays([column.keys, pa.array(list(texts)).take(from_numpy(np.tile(np.arange(width), messages)))])
    values = pa.concat_arrays([column.items, all_texts.take(from_numpy((indices[:, None] + begins).ravel()))])
    rows = from_numpy(order)
    maps = annotation_maps(offsets, keys.take(rows), values.take(rows))
    return body.set_column(BODY.get_field_index("annotations"), BODY.field("annotations"), maps)


def _ranges(begins: Ints, counts: Ints) -> Ints:
    """Return ``counts`` consecutive numbers from each of ``begins``, concatenated."""
    shifts = np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(len(shifts))
