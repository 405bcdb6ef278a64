"""The search for batches in damaged bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.store import index
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.scan import scan
from tests.log.log_helpers import fill, last_files, opened

SIZES = [2, 1, 3, 1, 4]


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    """The bytes of a segment, and its index."""
    with opened(tmp_path_factory.mktemp("scan")) as topic:
        fill(topic, *([b"payload"] * size for size in SIZES))
        files = last_files(topic.path)
    return files.data.read_bytes(), index.unpack(files.index.read_bytes()[index.HEADER_SIZE :])


def ends(records):
    return (records["position"] + records["length"]).tolist()


def test_scan_of_an_intact_segment_equals_its_index(segment):
    data, records = segment
    scanned = scan(pa.py_buffer(data), 0, index.EMPTY)
    assert (scanned.records == records).all()
    assert (scanned.length, scanned.size, scanned.end, scanned.bad) == (len(data), len(data), 11, [])


def test_complete_batches_are_found_for_each_truncation(segment):
    data, records = segment
    for cut in range(int(records["position"][-2]), len(data) + 1):
        scanned = scan(pa.py_buffer(data[:cut]), 0, index.EMPTY)
        complete = sum(end <= cut for end in ends(records))
        assert (len(scanned.records), scanned.length, scanned.bad) == (complete, ends(records)[complete - 1], [])


def test_indexed_batch_after_a_truncation_is_bad_and_not_absent(segment):
    data, records = segment
    for cut in range(PREAMBLE.size, len(data), 97):
        scanned = scan(pa.py_buffer(data[:cut]), 0, records)
        complete = sum(end <= cut for end in ends(records))
        assert scanned.end == 11
        assert scanned.bad == list(range(complete, 5))
        assert scanned.lost == 5 - complete


@given(st.data())
def test_damage_loses_only_the_touched_batches_with_or_without_an_index(segment, data):
    intact_bytes, records = segment
    bad = bytearray(intact_bytes)
    touched = set()
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(PREAMBLE.size, len(intact_bytes) - 1))
        bad[position] ^= data.draw(st.integers(1, 255))
        if bad[position] != intact_bytes[position]:
            touched.add(sum(end <= position for end in ends(records)))
    hints = records if data.draw(st.booleans()) else index.EMPTY
    scanned = scan(pa.py_buffer(bytes(bad)), 0, hints, (len(intact_bytes), 11))
    intact = [n for n in range(5) if n not in touched]
    starts = records["base"].tolist()
    assert {starts[n] for n in intact} <= {message.base for message in scanned.messages}
    assert index.dense(scanned.records, 0, PREAMBLE.size)
    assert scanned.end == 11


@given(st.binary(max_size=600), st.integers(0, 1 << 40))
def test_random_bytes_are_scanned_without_an_error(data, first):
    scanned = scan(pa.py_buffer(data), first, index.EMPTY)
    assert (scanned.end, len(scanned.records)) == (first, 0)


@given(st.binary(max_size=600), st.binary(max_size=960))
def test_random_index_is_accepted_without_an_error(segment, data, hints):
    intact_bytes, _ = segment
    scanned = scan(pa.py_buffer(intact_bytes + data), 0, index.unpack(hints))
    assert len(scanned.messages) == 5
    assert scanned.length == len(intact_bytes)


def test_bytes_full_of_continuation_marks_are_skipped(segment):
    intact_bytes, records = segment
    noise = b"\xff\xff\xff\xff\x08\0\0\0" * 20_000
    begin = int(records["position"][2])
    scanned = scan(pa.py_buffer(intact_bytes[:begin] + noise), 0, index.EMPTY)
    assert (scanned.end, scanned.length, scanned.size) == (3, begin, begin + len(noise))
