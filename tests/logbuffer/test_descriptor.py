"""The arithmetic of positions, and the recorded metadata."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.logbuffer import descriptor as d
from tests.logbuffer.logbuffer_golden import unpacked

TERM_IDS = st.integers(-(2**31), 2**31 - 1)


@given(initial=TERM_IDS, count=st.integers(0, 2**31 - 1), offset=st.integers(0, 2**16 // 32 - 1))
def test_positions_survive_the_wrap_of_term_ids(initial: int, count: int, offset: int) -> None:
    term_id = d.int32(initial + count)
    assert -(2**31) <= term_id < 2**31
    assert d.position_of(term_id, 32 * offset, initial, 1 << 16) == (count << 16) + 32 * offset


@given(term_id=TERM_IDS, offset=st.integers(0, 2**32 - 1))
def test_tail_is_packed_and_unpacked(term_id: int, offset: int) -> None:
    raw = d.pack_tail(term_id, offset)
    assert -(2**63) <= raw < 2**63
    assert d.tail_term_id(raw) == term_id
    assert d.tail_offset(raw, 1 << 16) == min(offset, 1 << 16)


@pytest.mark.parametrize(
    ("length", "mtu", "expected"), [(0, 1408, 0), (1376, 1408, 1408), (1377, 1408, 1472), (8192, 1408, 8384)]
)
def test_fragments_take_the_length_of_aeron(length: int, mtu: int, expected: int) -> None:
    assert d.fragmented_length(length, mtu) == expected


@given(st.integers(0, 2**24))
def test_largest_message_fits_into_one_frame_of_its_mtu(length: int) -> None:
    mtu = d.mtu_for(length)
    assert mtu % 32 == 0
    assert length + 32 <= mtu < length + 64


def test_fields_do_not_overlap() -> None:
    sizes = {"B": 1, "i": 4, "q": 8}
    field_bytes = [offset for field in d.FIELDS for offset in range(field.offset, field.offset + sizes[field.code])]
    field_bytes += range(d.DEFAULT_HEADER, d.DEFAULT_HEADER + 128)
    assert len(field_bytes) == len(set(field_bytes))
    assert max(field_bytes) < d.METADATA_LENGTH


def test_valid_headers_are_recognised_in_arrays() -> None:
    data = unpacked("excl_sizes__01_maxlen.logbuffer")
    slots = np.frombuffer(data, d.HEADER_DTYPE, 2048)
    valid = d.valid_headers(slots, 0, 1598247139, 404496857, 123, 1 << 16)
    assert int(valid.sum()) == 20
    assert list(np.flatnonzero(valid)[:6] * 32) == [0, 32, 96, 160, 224, 320]
    assert not d.valid_headers(slots, 32, 1598247139, 404496857, 123, 1 << 16).any()


def test_each_option_of_the_metadata_can_be_set() -> None:
    changed = d.Parameters(65536, 1408, 1, 2, 3, fields={"entity_tag": 77, "spies_simulate_connection": 1})
    usual, changed_metadata = d.Parameters(65536, 1408, 1, 2, 3).metadata(), changed.metadata()
    assert [offset for offset in range(4096) if usual[offset] != changed_metadata[offset]] == [
        *range(0x1C0, 0x1C8),
        0x1EE,
    ]
    for unknown in ("entity", "term_length", "type"):
        with pytest.raises(ValueError, match=f"unknown metadata options: {unknown}"):
            d.Parameters(65536, 1408, 1, 2, 3, fields={unknown: 1})
