"""Segments have the bytes of the Java library, and no other bytes are read as a segment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.chunks import (
    CHUNK_HEADER_BYTES,
    Chunk,
    decode_chunk,
    deserialize_chunk,
    encode_chunk,
    serialize_chunk,
)
from tests.kafka.kafka_vectors import KAFKA, tohex, unhex

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize("case", [case for case in KAFKA["segmentSerializer"] if "payload" in case])
def test_chunk_has_the_recorded_bytes(case: dict[str, Any]) -> None:
    numbers = case["seq"], case["numSegments"], case["messageSize"]
    assert tohex(encode_chunk(UUID(case["uuid"]), *numbers, unhex(case["payload"]) or b"")) == case["bytes"]


def test_missing_payload_is_refused_as_recorded() -> None:
    (case,) = (case for case in KAFKA["segmentSerializer"] if "payload" not in case)
    assert case["bytes"]["exception"].endswith("NullPointerException")
    with pytest.raises(TypeError):
        encode_chunk(ID, 0, 1, 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", KAFKA["segmentDeserializer"], ids=lambda case: case["note"])
def test_bytes_are_decoded_as_recorded(case: dict[str, Any]) -> None:
    chunk = decode_chunk(unhex(case["bytes"]) or b"")
    decoded = chunk and {
        "uuid": str(chunk.message_id),
        "seq": chunk.sequence,
        "numSegments": chunk.count,
        "messageSize": chunk.message_size,
        "payload": tohex(chunk.payload),
    }
    assert decoded == case["result"]


def test_serde() -> None:
    """SerializerDeserializerTest.testSerde."""
    chunk = Chunk(ID, 3, 5, 100, b"x" * 20)
    data = serialize_chunk("topic", chunk)
    assert len(data) == CHUNK_HEADER_BYTES + 20
    assert deserialize_chunk("topic", data) == chunk


def test_zero_checksum() -> None:
    """DefaultSegmentDeserializerTest.testZeroChecksum: an id with checksum 0 is valid."""
    for message_id in (UUID(int=0), UUID(int=(1 << 64) * 5 + (1 << 64) - 5)):
        data = encode_chunk(message_id, 0, 1, 3, b"abc")
        assert data[1:5] == bytes(4)
        assert decode_chunk(data) == Chunk(message_id, 0, 1, 3, b"abc")


def test_zeros_are_not_a_chunk() -> None:
    assert decode_chunk(bytes(CHUNK_HEADER_BYTES)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_without_an_error(data: bytes) -> None:
    chunk = decode_chunk(data)
    assert chunk is None or len(chunk.payload) == len(data) - CHUNK_HEADER_BYTES


@given(st.uuids(), INTS, INTS, INTS, st.binary(max_size=50))
def test_consistent_chunk_is_read_back_unchanged(
    message_id: UUID, sequence: int, count: int, size: int, payload: bytes
) -> None:
    holds = 0 <= sequence < count and size >= len(payload)
    chunk = Chunk(message_id, sequence, count, size, payload)
    assert decode_chunk(encode_chunk(message_id, sequence, count, size, payload)) == (chunk if holds else None)


@given(st.uuids(), st.integers(), st.integers(), st.integers(), st.binary(max_size=9))
def test_inconsistent_chunk_is_refused_with_a_reason(
    message_id: UUID, sequence: int, count: int, size: int, payload: bytes
) -> None:
    chunk = Chunk(message_id, sequence, count, size, payload)
    if 0 <= sequence < count and size >= len(payload):
        chunk.check()
    else:
        with pytest.raises(InvalidChunk):
            chunk.check()


@pytest.mark.parametrize("numbers", [(1 << 31, 1, 1), (0, -(1 << 31) - 1, 1), (0, 1, 1 << 40)])
def test_numbers_beyond_32_bits_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidChunk):
        encode_chunk(ID, *numbers, b"")
