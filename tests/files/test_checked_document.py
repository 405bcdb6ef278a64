"""Small files with a checksum and a format version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_document import decode, encode
from penstock.files.errors import UnknownFormat

PATH = Path("folder/name.json")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text().filter(lambda key: key != "format"), VALUES))
def test_a_document_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    assert decode(encode(document), PATH) == {"format": 1, **document}


@given(st.data())
def test_a_flipped_bit_anywhere_is_found(data: st.DataObject) -> None:
    written = bytearray(encode({"offset": 17, "name": "a reader"}))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(written), PATH) is None


@given(st.binary())
def test_bytes_of_any_kind_raise_nothing(data: bytes) -> None:
    assert decode(data, PATH) is None


@pytest.mark.parametrize("text", [b"[1, 2]", b"no json", b"\xff"])
def test_what_is_no_object_is_damaged_even_with_a_good_checksum(text: bytes) -> None:
    assert decode(b"%08x" % crc32c(text) + text, PATH) is None


def test_a_later_format_is_named_and_not_taken_for_damage() -> None:
    text = b'{"format": 2}'
    with pytest.raises(UnknownFormat, match=r"name\.json has format 2, this Penstock knows 1"):
        decode(b"%08x" % crc32c(text) + text, PATH)
