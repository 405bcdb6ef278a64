"""Finding batches in damaged bytes."""

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
    return files.data.read_bytes(), index.read(files.index.read_bytes())


def ends(records):
    return (records["position"] + records["length"]).tolist()


def test_an_undamaged_segment_is_its_index(segment):
    data, records = segment
    found = scan(pa.py_buffer(data), 0, index.EMPTY)
    assert (found.records == records).all()
    assert (found.length, found.size, found.end, found.bad) == (len(data), len(data), 11, [])


def test_cut_at_every_byte_of_the_last_two_batches_all_whole_batches_are_found(segment):
    data, records = segment
    for cut in range(int(records["position"][-2]), len(data) + 1):
        found = scan(pa.py_buffer(data[:cut]), 0, index.EMPTY)
        whole = sum(end <= cut for end in ends(records))
        assert (len(found.records), found.length, found.bad) == (whole, ends(records)[whole - 1], [])


def test_what_the_index_mentions_behind_a_cut_is_bad_and_not_absent(segment):
    data, records = segment
    for cut in range(PREAMBLE.size, len(data), 97):
        found = scan(pa.py_buffer(data[:cut]), 0, records)
        whole = sum(end <= cut for end in ends(records))
        assert found.end == 11
        assert found.bad == list(range(whole, 5))
        assert found.lost == 5 - whole


@given(st.data())
def test_with_or_without_an_index_damage_costs_only_the_batches_it_touches(segment, data):
    whole, records = segment
    bad = bytearray(whole)
    touched = set()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(PREAMBLE.size, len(whole) - 1))
        bad[place] ^= data.draw(st.integers(1, 255))
        if bad[place] != whole[place]:
            touched.add(sum(end <= place for end in ends(records)))
    hints = records if data.draw(st.booleans()) else index.EMPTY
    found = scan(pa.py_buffer(bytes(bad)), 0, hints, (len(whole), 11))
    intact = [n for n in range(5) if n not in touched]
    starts = records["base"].tolist()
    assert {starts[n] for n in intact} <= {message.base for message in found.messages}
    assert index.dense(found.records, 0, PREAMBLE.size)
    assert found.end == 11


@given(st.binary(max_size=600), st.integers(0, 1 << 40))
def test_any_bytes_are_scanned_without_an_error(data, first):
    found = scan(pa.py_buffer(data), first, index.EMPTY)
    assert (found.end, len(found.records)) == (first, 0)


@given(st.binary(max_size=600), st.binary(max_size=960))
def test_any_index_is_taken_without_an_error(segment, data, hints):
    whole, _ = segment
    found = scan(pa.py_buffer(whole + data), 0, index.unpack(hints))
    assert len(found.messages) == 5
    assert found.length == len(whole)


def test_bytes_full_of_marks_are_passed_over(segment):
    whole, records = segment
    noise = b"\xff\xff\xff\xff\x08\0\0\0" * 20_000
    begin = int(records["position"][2])
    found = scan(pa.py_buffer(whole[:begin] + noise), 0, index.EMPTY)
    assert (found.end, found.length, found.size) == (3, begin, begin + len(noise))
