"""Dead letters of several frameworks name their records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.sources.dead_letters import SPRING_NUMBERS, SPRING_TOPIC, TEXT_ORIGINS, dead_letter_origin


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        (
            {
                "kafka_dlt-original-topic": b"orders",
                "kafka_dlt-original-partition": b"\0\0\0\3",
                "kafka_dlt-original-offset": b"\0\0\0\0\0\0\1\0",
            },
            ("orders", 3, 256),
        ),
        (
            {
                "__streams.errors.topic": b"orders",
                "__streams.errors.partition": b"3",
                "__streams.errors.offset": b"256",
            },
            ("orders", 3, 256),
        ),
        ({"__connect.errors.topic": b"orders", "__connect.errors.partition": b"x"}, None),
        (
            {
                "__connect.errors.topic": b"orders",
                "__connect.errors.partition": b"x",
                "__connect.errors.offset": b"1",
                "kafka_dlt-original-topic": b"orders",
                "kafka_dlt-original-partition": b"\0\0\0\3",
                "kafka_dlt-original-offset": b"\0\0\0\0\0\0\1\0",
            },
            ("orders", 3, 256),
        ),
        (
            {
                "__streams.errors.topic": b"orders",
                "__streams.errors.partition": b"3",
                "__streams.errors.offset": b"9" * 20,
            },
            None,
        ),
        ({}, None),
    ],
)
def test_headers_of_frameworks_name_the_record(headers: dict[str, bytes], origin: tuple[str, int, int] | None) -> None:
    assert dead_letter_origin(list(headers.items())) == origin


def spring(partition: bytes, offset: bytes) -> dict[str, bytes | None]:
    return dict(zip((SPRING_TOPIC, *SPRING_NUMBERS), (b"orders", partition, offset), strict=True))


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (b"\0\0\0\3", b"\1" + b"\0" * 8),
        (b"\0\0\0\3", b"\0" * 8 + b"\7"),
        (b"\0\0\0\3", b"\xff" * 8),
        (b"\xff" * 4, b"\0" * 8),
        (b"\0\0\0\3", b""),
        (b"", b"\0" * 8),
        (b"3", b"256"),
    ],
)
def test_spring_headers_of_another_length_or_sign_name_no_record(partition: bytes, offset: bytes) -> None:
    assert dead_letter_origin(list(spring(partition, offset).items())) is None


@given(
    st.sampled_from(TEXT_ORIGINS),
    st.sampled_from([0, 3, (1 << 31) - 1, 1 << 31, -1]) | st.integers(),
    st.sampled_from([0, 256, (1 << 63) - 1, 1 << 63, -1]) | st.integers(),
)
def test_texts_name_a_record_if_and_only_if_kafka_has_such_numbers(prefix: str, partition: int, offset: int) -> None:
    numbers = {f"{prefix}.partition": partition, f"{prefix}.offset": offset}
    headers = [(f"{prefix}.topic", b"orders"), *((name, str(number).encode()) for name, number in numbers.items())]
    is_record = 0 <= partition < 1 << 31 and 0 <= offset < 1 << 63
    assert dead_letter_origin(headers) == (("orders", partition, offset) if is_record else None)


@given(
    st.binary(min_size=4, max_size=4) | st.binary(max_size=9), st.binary(min_size=8, max_size=8) | st.binary(max_size=9)
)
def test_spring_bytes_name_a_record_if_and_only_if_java_writes_them(partition: bytes, offset: bytes) -> None:
    is_record = (len(partition), len(offset)) == (4, 8) and max(partition[0], offset[0]) < 128
    expected = ("orders", int.from_bytes(partition, "big"), int.from_bytes(offset, "big")) if is_record else None
    assert dead_letter_origin(list(spring(partition, offset).items())) == expected


NAMES = (
    *(f"{prefix}.{name}" for prefix in TEXT_ORIGINS for name in ("topic", "partition", "offset")),
    SPRING_TOPIC,
    *SPRING_NUMBERS,
)


@given(st.dictionaries(st.sampled_from(NAMES), st.none() | st.binary(max_size=20)))
def test_any_headers_name_a_record_or_none(headers: dict[str, bytes | None]) -> None:
    origin = dead_letter_origin(list(headers.items()))
    assert origin is None or (0 <= origin[1] < 1 << 31 and 0 <= origin[2] < 1 << 63)
