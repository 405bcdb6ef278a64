"""Dead letters of several frameworks name their records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.dead_letters import SPRING_NUMBERS, SPRING_TOPIC, TEXT_ORIGINS, dead_letter_origin


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


TOPIC_NAMES = (*(f"{prefix}.topic" for prefix in TEXT_ORIGINS), SPRING_TOPIC)
NUMBER_NAMES = (f"{prefix}.{name}" for prefix in TEXT_ORIGINS for name in ("partition", "offset"))
NAMES = (*TOPIC_NAMES, *NUMBER_NAMES, *SPRING_NUMBERS)


@given(st.dictionaries(st.sampled_from(NAMES), st.none() | st.binary(max_size=20)))
def test_any_headers_name_a_record_or_none(headers: dict[str, bytes | None]) -> None:
    origin = dead_letter_origin(list(headers.items()))
    if origin is not None:
        assert origin[0].encode() in [headers[name] or b"" for name in TOPIC_NAMES if name in headers]
        assert 0 <= origin[1] < 1 << 31
        assert 0 <= origin[2] < 1 << 63
