"""Headers of large messages: the bytes of the Java library, and its interpretation of other bytes."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import InvalidChunk
from penstock.kafka.large.headers import (
    LargeMessageHeader,
    decode_large_message_header,
    decode_long,
    drop_header,
    encode_large_message_header,
    encode_long,
    find_last,
    message_key,
)
from tests.kafka.kafka_vectors import KAFKA, unhex

FIELDS = ("segmentNumber", "numberOfSegments", "messageSizeInBytes")
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
HEADERS = st.builds(LargeMessageHeader, st.integers(-128, 127), st.uuids(), INTS, INTS, INTS)


def _header(recorded: dict[str, Any]) -> LargeMessageHeader:
    return LargeMessageHeader(recorded["type"], UUID(recorded["uuid"]), *(recorded[field] for field in FIELDS))


@pytest.mark.parametrize("case", [case for case in KAFKA["largeMessageHeaderValue"] if "type" in case])
def test_header_has_the_recorded_bytes_and_is_decoded_as_recorded(case: dict[str, Any]) -> None:
    data = unhex(case["bytes"]) or b""
    assert encode_large_message_header(_header(case)) == data
    assert decode_large_message_header(data) == _header(case["parsed"])


@pytest.mark.parametrize("case", [case for case in KAFKA["largeMessageHeaderValue"] if "type" not in case])
def test_other_bytes_are_decoded_as_recorded(case: dict[str, Any]) -> None:
    data = unhex(case["fromBytes"])
    if "exception" in case["parsed"]:
        with pytest.raises(InvalidChunk):
            decode_large_message_header(data)
    else:
        assert decode_large_message_header(data) == _header(case["parsed"])


@given(HEADERS)
def test_header_of_a_positive_type_is_read_back_unchanged(header: LargeMessageHeader) -> None:
    size = {True: header.message_size, False: 0}[header.type > 0] if header.type else -1
    expected = LargeMessageHeader(header.type, header.message_id, header.chunk, header.count, size)
    assert decode_large_message_header(encode_large_message_header(header)) == expected


@given(st.none() | st.text(max_size=40) | st.binary(max_size=40))
def test_any_value_is_decoded_or_refused(data: str | bytes | None) -> None:
    with contextlib.suppress(InvalidChunk):
        decode_large_message_header(data)


@pytest.mark.parametrize("case", [case for case in KAFKA["primitives"] if "long" in case])
def test_numbers_have_the_recorded_bytes(case: dict[str, Any]) -> None:
    """PrimitiveEncoderDecoderTest: encoding and decoding."""
    data = unhex(case["bytes"]) or b""
    assert encode_long(int(case["long"])) == data
    assert decode_long(data) == int(case["long"])


@pytest.mark.parametrize("data", [None, b"", b"1234567", b"123456789", "12345678901"])
def test_number_of_another_length_is_refused(data: Any) -> None:
    """PrimitiveEncoderDecoderTest: short and empty values."""
    with pytest.raises(ValueError, match="must be 8"):
        decode_long(data)


def test_number_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_long(1 << 63)


def test_key_of_a_message_is_its_id_with_the_high_half_first() -> None:
    assert message_key(UUID("00112233-4455-6677-8899-aabbccddeeff")).hex() == "00112233445566778899aabbccddeeff"


def test_last_header_of_a_name_counts() -> None:
    headers: list[Any] = [("a", b"1"), ("b", None), ("a", b"2")]
    assert find_last(headers, "a") == ("a", b"2")
    assert find_last(headers, "c") is None
    assert find_last(None, "a") is None
    assert drop_header(headers, "a") == [("b", None)]
    assert drop_header(None, "a") == []
