"""Kafka's headers as annotations, and annotations as headers.

Annotations are texts. A value that is no UTF-8, or none at all, is kept under a name that says so: BASE64 or NONE
before the header's own; headers whose names begin so by themselves are kept in base64, too.
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

RESERVED = "kafka."
BASE64, NONE = "kafka.base64.", "kafka.none."
TYPE_URL = "type_url"
"""The header that tells the type of an entry which is a protobuf Any."""


def build_annotations(counts: Ints, names: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    """The headers of rows with so many each (binary ``names`` and ``values``) as a map of each. Raises BadRecords."""
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise BadRecords("the name of a header is no UTF-8") from None
    try:
        plain = not values.null_count and not _reserved(keys)
        texts = values.cast(pa.string()) if plain else None
    except pa.ArrowInvalid:
        texts = None
    if texts is None:
        keys, texts = _wrapped(keys, values)
    return annotation_maps(np.concatenate([[0], np.cumsum(counts)]), keys, texts)


def _reserved(names: pa.Array[Any]) -> bool:
    return bool(pc.any(pc.starts_with(names, RESERVED)).as_py())


def _wrapped(names: pa.Array[Any], values: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Names and values where some are no texts."""
    pairs = [_wrap(name, value) for name, value in zip(values_of(names), values_of(values), strict=True)]
    return pa.array([name for name, _ in pairs], pa.string()), pa.array([text for _, text in pairs], pa.string())


def _wrap(name: str, value: bytes | None) -> tuple[str, str]:
    if value is None:
        return NONE + name, ""
    if not name.startswith((BASE64, NONE)):
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            pass
    return BASE64 + name, base64.b64encode(value).decode()


def _unwrap(name: str, text: str | None) -> tuple[str, bytes | None]:
    if name.startswith(NONE) or text is None:
        return name.removeprefix(NONE), None
    if name.startswith(BASE64):
        try:
            return name.removeprefix(BASE64), base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):  # an annotation that came through another protocol
            pass
    return name, text.encode()


def headers_of(batch: pa.RecordBatch) -> tuple[pa.Array[Any], Ints] | None:
    """For each row its headers as Kafka writes them, their number first, and their sizes; None where no row has any."""
    annotations, urls = batch.column("annotations"), batch.column("type_url")
    if urls.null_count < len(urls):
        annotations = _with_urls(annotations, urls)
    if annotations.null_count == len(annotations):
        return None
    assert isinstance(annotations, pa.MapArray)
    places = bounds(annotations).astype(np.int64)
    begin, end = int(places[0]), int(places[-1])
    names, texts = (part.slice(begin, end - begin) for part in (annotations.keys, annotations.items))
    pairs = _pairs(*(_unwrapped(names, texts) if texts.null_count or _reserved(names) else (names, texts)))
    counts = np.diff(places) * annotations.is_valid().to_numpy(zero_copy_only=False)
    written = pa.BinaryArray.from_buffers(
        pa.binary(), len(annotations), [None, pa.py_buffer(bounds(pairs)[places - begin].tobytes()), pairs.buffers()[2]]
    )
    found = joined(varints.joined([counts]), written)
    return found, np.diff(bounds(found)).astype(np.int64)


def _unwrapped(names: pa.Array[Any], texts: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    pairs = [_unwrap(name, text) for name, text in zip(values_of(names), values_of(texts), strict=True)]
    return pa.array([name for name, _ in pairs], pa.string()), pa.array([value for _, value in pairs], pa.binary())


def _pairs(names: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
    """Each header as Kafka writes it."""
    names, values = names.cast(pa.binary()), values.cast(pa.binary())
    if not len(names):
        return names
    sizes = varints.joined([lengths(names)]), varints.joined([lengths(values)])
    return joined(sizes[0], names, sizes[1], values.fill_null(b""))


def joined(*parts: Any) -> pa.Array[Any]:
    """The bytes of each row one after the other; a part may be the same for all rows."""
    found: pa.Array[Any] = pc.binary_join_element_wise(*parts, b"")
    return found


def lengths(column: pa.Array[Any]) -> Ints:
    """The length of each value in bytes; -1 where there is none."""
    found: Ints = np.diff(bounds(column)).astype(np.int64)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _with_urls(annotations: pa.Array[Any], urls: pa.Array[Any]) -> pa.Array[Any]:
    """The annotations, with the URL of those rows that have one before them."""
    rows = [
        ([(TYPE_URL, url)] if url is not None else []) + (pairs or [])
        for url, pairs in zip(urls.to_pylist(), annotations.to_pylist(), strict=True)
    ]
    found: pa.Array[Any] = pa.array(rows, annotations.type)
    return found
