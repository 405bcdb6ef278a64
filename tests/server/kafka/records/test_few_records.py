"""Decoding of few records, compared with decoding by columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import BadRecords
from penstock.server.kafka.records.decode import HEADER, _decode_rows
from penstock.server.kafka.records.few_records import MAX_FEW_RECORDS, MAX_PLAIN_RECORDS, few_rows
from tests.server.kafka.produced import plain, produced

VALUES = st.none() | st.binary(max_size=9) | st.binary(min_size=60, max_size=200) | st.just(bytes(9000))
RECORDS = st.lists(st.tuples(VALUES, VALUES, st.just([])), min_size=1, max_size=MAX_FEW_RECORDS) | st.lists(
    st.tuples(st.none(), st.binary(max_size=9) | st.binary(min_size=60, max_size=70), st.just([])),
    min_size=1,
    max_size=MAX_PLAIN_RECORDS,
)


def records_in(batch: bytes) -> bytes:
    return bytes(batch[HEADER.size :])


@given(RECORDS)
def test_produced_records_are_decoded(records):
    few = few_rows(records_in(produced(records, "none")), len(records))
    assert few is not None
    rows = few.batch()
    rows.validate(full=True)
    assert list(zip(rows["key"].to_pylist(), rows["payload"].to_pylist(), strict=True)) == [r[:2] for r in records]
    assert rows.equals(_decode_rows(np.frombuffer(records_in(produced(records, "none")), np.uint8), len(records)))


@given(RECORDS, st.integers(-1, 1), st.data())
def test_any_bytes_equal_the_columns_or_return_none(records, more, data):
    count = max(1, len(records) + more)
    octets = bytearray(records_in(produced(records, "none")))
    for _ in range(data.draw(st.integers(0, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    few = few_rows(bytes(octets), count)
    if few is not None:
        assert few.batch().equals(_decode_rows(np.frombuffer(octets, np.uint8), count))


@given(st.binary(max_size=200), st.integers(1, MAX_PLAIN_RECORDS + 1))
def test_any_bytes_are_rows_or_none(octets, count):
    few = few_rows(octets, count)
    try:
        rows = _decode_rows(np.frombuffer(octets, np.uint8), count)
    except BadRecords:
        rows = None
    assert few is None or (rows is not None and few.batch().equals(rows))


def test_many_records_return_none():
    for count, value, is_read in (
        (MAX_PLAIN_RECORDS, b"v", True),
        (MAX_PLAIN_RECORDS + 1, b"v", False),
        (MAX_FEW_RECORDS + 1, None, False),
    ):
        assert (few_rows(records_in(plain(*[value] * count)), count) is not None) is is_read


def test_headers_return_none():
    batch = produced([(None, b"v", [("a", b"1")])], "none")
    assert few_rows(records_in(batch), 1) is None
    assert few_rows(records_in(plain(b"v")), 1) is not None
