"""Segments: the bytes of the Java library, and nothing else is taken for one."""

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
def test_a_chunk_has_the_recorded_bytes(case: dict[str, Any]) -> None:
    numbers = case["seq"], case["numSegments"], case["messageSize"]
    assert tohex(encode_chunk(UUID(case["uuid"]), *numbers, unhex(case["payload"]) or b"")) == case["bytes"]


def test_a_payload_of_none_is_refused_as_recorded() -> None:
    (case,) = (case for case in KAFKA["segmentSerializer"] if "payload" not in case)
    assert case["bytes"]["exception"].endswith("NullPointerException")
    with pytest.raises(TypeError):
        encode_chunk(ID, 0, 1, 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", KAFKA["segmentDeserializer"], ids=lambda case: case["note"])
def test_bytes_are_a_chunk_or_none_as_recorded(case: dict[str, Any]) -> None:
    chunk = decode_chunk(unhex(case["bytes"]) or b"")
    told = chunk and {
        "uuid": str(chunk.message_id),
        "seq": chunk.sequence,
        "numSegments": chunk.count,
        "messageSize": chunk.message_size,
        "payload": tohex(chunk.payload),
    }
    assert told == case["result"]


def test_serde() -> None:
    """SerializerDeserializerTest.testSerde."""
    chunk = Chunk(ID, 3, 5, 100, b"x" * 20)
    data = serialize_chunk("topic", chunk)
    assert len(data) == CHUNK_HEADER_BYTES + 20
    assert deserialize_chunk("topic", data) == chunk


def test_zero_checksum() -> None:
    """DefaultSegmentDeserializerTest.testZeroChecksum: an id whose checksum is 0 is a segment's all the same."""
    for message_id in (UUID(int=0), UUID(int=(1 << 64) * 5 + (1 << 64) - 5)):
        data = encode_chunk(message_id, 0, 1, 3, b"abc")
        assert data[1:5] == bytes(4)
        assert decode_chunk(data) == Chunk(message_id, 0, 1, 3, b"abc")


def test_zeros_are_no_chunk() -> None:
    assert decode_chunk(bytes(CHUNK_HEADER_BYTES)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_chunk_or_not(data: bytes) -> None:
    chunk = decode_chunk(data)
    assert chunk is None or len(chunk.payload) == len(data) - CHUNK_HEADER_BYTES


@given(st.uuids(), INTS, INTS, INTS, st.binary(max_size=50))
def test_what_is_read_back_is_what_was_written_if_it_holds_together(
    message_id: UUID, sequence: int, count: int, size: int, payload: bytes
) -> None:
    holds = 0 <= sequence < count and size >= len(payload)
    chunk = Chunk(message_id, sequence, count, size, payload)
    assert decode_chunk(encode_chunk(message_id, sequence, count, size, payload)) == (chunk if holds else None)


@given(st.uuids(), st.integers(), st.integers(), st.integers(), st.binary(max_size=9))
def test_a_chunk_that_contradicts_itself_says_why(
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
