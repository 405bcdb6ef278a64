"""Compression is seen before Arrow decompresses a message."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns.ipc_message import is_uncompressed

TEXTS = pa.record_batch({"a": ["x" * 1000], "b": pa.array(["y" * 1000, "z"]).dictionary_encode().slice(0, 1)})


def messages(batch: pa.RecordBatch, **options: object) -> list[bytes]:
    """Return schema, dictionaries and batch as encapsulated messages."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:  # type: ignore[arg-type]
        writer.write_batch(batch)
    return [message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(sink.getvalue())]


def test_plain_messages_are_uncompressed() -> None:
    assert [is_uncompressed(message) for message in messages(TEXTS)] == [True, True, True]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_dictionaries_and_batches_are_seen(codec: str) -> None:
    assert [is_uncompressed(message) for message in messages(TEXTS, compression=codec)] == [True, False, False]


def test_messages_of_earlier_formats_are_not_read() -> None:
    """They name their compression elsewhere, or begin four bytes earlier."""
    earlier = messages(TEXTS, metadata_version=pa.ipc.MetadataVersion.V4)
    assert not any(is_uncompressed(message) for message in earlier)
    without_mark = messages(TEXTS, compression="zstd", use_legacy_format=True)
    assert not any(is_uncompressed(message[4:] if message[:4] == b"\xff" * 4 else message) for message in without_mark)


@given(st.binary(max_size=60) | st.builds(lambda rest: b"\xff" * 4 + struct.pack("<i", 48) + rest, st.binary()))
def test_any_bytes_are_a_message_or_none(message: bytes) -> None:
    assert is_uncompressed(message) in (True, False)
