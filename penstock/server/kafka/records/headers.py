"""Kafka headers as annotations, and annotations as headers.

Annotations are text. A header value that is not UTF-8, or null, is stored under a prefix: BASE64 or NONE before the
header's name. Headers whose own names begin with a prefix are stored in base64 as well, so that every header is
restored exactly.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kafka.errors import BadRecords
from penstock.kafka.records import varints
from penstock.kafka.records.varints import Ints
from penstock.records import annotation_maps, bounds, values_of
from penstock.server.kafka.records.creation_times import CREATION_TIME

RESERVED = "kafka."
BASE64, NONE = "kafka.base64.", "kafka.none."
TYPE_URL = "type_url"
"""Header with the type of an entry that is a protobuf Any."""


def build_annotations(counts: Ints, names: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    """Return one map per row from ``counts`` headers each, with binary ``names`` and ``values``. Raises BadRecords."""
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise BadRecords("the name of a header is not UTF-8") from None
    try:
        is_text = not values.null_count and not _has_reserved(keys)
        # Fast path: text headers stay columns; only others need a Python statement per header.
        texts = values.cast(pa.string()) if is_text else None
    except pa.ArrowInvalid:
        texts = None
    if texts is None:
        keys, texts = _wrap_all(keys, values)
    return annotation_maps(np.concatenate([[0], np.cumsum(counts)]), keys, texts)


def _has_reserved(names: pa.Array[Any]) -> bool:
    return bool(pc.any(pc.starts_with(names, RESERVED)).as_py())


def _wrap_all(names: pa.Array[Any], values: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    pairs = [_wrap(name, value) for name, value in zip(values_of(names), values_of(values), strict=True)]
    return pa.array([name for name, _ in pairs], pa.string()), pa.array([text for _, text in pairs], pa.string())


def _wrap(name: str, value: bytes | None) -> tuple[str, str]:
    if value is None:
        return NONE + name, ""
    if not name.startswith((BASE64, NONE)) and name != CREATION_TIME:
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            pass
    return BASE64 + name, base64.b64encode(value).decode()


def unwrap(name: str, text: str | None) -> tuple[str, bytes | None]:
    """Return the header from which an annotation was made."""
    if name.startswith(NONE) or text is None:
        return name.removeprefix(NONE), None
    if name.startswith(BASE64):
        try:
            return name.removeprefix(BASE64), base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):  # an annotation that came through another protocol
            pass
    return name, text.encode()


def headers_of(batch: pa.RecordBatch, annotations: pa.Array[Any]) -> tuple[pa.Array[Any], Ints] | None:
    """Return each row's ``annotations`` as encoded headers, their number first, and their sizes; None without any."""
    urls = batch.column("type_url")
    if urls.null_count < len(urls):
        annotations = _prepend_urls(annotations, urls)
    if annotations.null_count == len(annotations):
        return None
    assert isinstance(annotations, pa.MapArray)
    positions = bounds(annotations).astype(np.int64)
    begin, end = int(positions[0]), int(positions[-1])
    names, texts = (part.slice(begin, end - begin) for part in (annotations.keys, annotations.items))
    pairs = _encode_headers(
        *(_unwrap_all(names, texts) if texts.null_count or _has_reserved(names) else (names, texts))
    )
    counts = np.diff(positions) * annotations.is_valid().to_numpy(zero_copy_only=False)
    written = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(annotations),
        [None, pa.py_buffer(bounds(pairs)[positions - begin].tobytes()), pairs.buffers()[2]],
    )
    encoded = joined(varints.joined([counts]), written)
    return encoded, np.diff(bounds(encoded)).astype(np.int64)


def _unwrap_all(names: pa.Array[Any], texts: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    pairs = [unwrap(name, text) for name, text in zip(values_of(names), values_of(texts), strict=True)]
    return pa.array([name for name, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())


def _encode_headers(names: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    names, values = names.cast(pa.binary()), values.cast(pa.binary())
    if not len(names):
        return names
    sizes = varints.joined([lengths(names)]), varints.joined([lengths(values)])
    return joined(sizes[0], names, sizes[1], values.fill_null(b""))


def joined(*parts: Any) -> pa.Array[Any]:
    """Concatenate the bytes of each row; a part may be the same for all rows."""
    column: pa.Array[Any] = pc.binary_join_element_wise(*parts, b"")
    return column


def lengths(column: pa.Array[Any]) -> Ints:
    """Return the length of each value in bytes; -1 for null."""
    sizes: Ints = np.diff(bounds(column)).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _prepend_urls(annotations: pa.Array[Any], urls: pa.Array[Any]) -> pa.Array[Any]:
    """Return the annotations with the type URL first, in rows that have one."""
    rows = [
        ([(TYPE_URL, url)] if url is not None else []) + (pairs or [])
        for url, pairs in zip(urls.to_pylist(), annotations.to_pylist(), strict=True)
    ]
    column: pa.Array[Any] = pa.array(rows, annotations.type)
    return column
