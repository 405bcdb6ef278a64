"""A few records, one after the other: the same rows as by whole columns, or none."""

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
def test_what_a_client_produces_is_read(records):
    found = few_rows(records_in(produced(records, "none")), len(records))
    assert found is not None
    rows = found.batch()
    rows.validate(full=True)
    assert list(zip(rows["key"].to_pylist(), rows["payload"].to_pylist(), strict=True)) == [r[:2] for r in records]
    assert rows.equals(_decode_rows(np.frombuffer(records_in(produced(records, "none")), np.uint8), len(records)))


@given(RECORDS, st.integers(-1, 1), st.data())
def test_any_bytes_are_the_same_rows_as_by_columns_or_left_to_them(records, more, data):
    count = max(1, len(records) + more)
    octets = bytearray(records_in(produced(records, "none")))
    for _ in range(data.draw(st.integers(0, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    found = few_rows(bytes(octets), count)
    if found is not None:
        assert found.batch().equals(_decode_rows(np.frombuffer(octets, np.uint8), count))


@given(st.binary(max_size=200), st.integers(1, MAX_PLAIN_RECORDS + 1))
def test_no_bytes_are_too_much_for_it(octets, count):
    found = few_rows(octets, count)
    try:
        rows = _decode_rows(np.frombuffer(octets, np.uint8), count)
    except BadRecords:
        rows = None
    assert found is None or (rows is not None and found.batch().equals(rows))


def test_more_than_a_few_are_left_to_the_columns():
    for count, value, found in (
        (MAX_PLAIN_RECORDS, b"v", True),
        (MAX_PLAIN_RECORDS + 1, b"v", False),
        (MAX_FEW_RECORDS + 1, None, False),
    ):
        assert (few_rows(records_in(plain(*[value] * count)), count) is not None) is found


def test_headers_are_left_to_the_columns():
    batch = produced([(None, b"v", [("a", b"1")])], "none")
    assert few_rows(records_in(batch), 1) is None
    assert few_rows(records_in(plain(b"v")), 1) is not None
