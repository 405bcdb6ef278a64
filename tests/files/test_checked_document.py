"""Checked documents survive crashes and are never read with a flipped bit."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_document import decode, encode, read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.testing.crashes import CrashingFileSystem

PATH = Path("folder/name.json")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda key: key != "format"), VALUES, max_size=5))
def test_document_survives_a_round_trip(document: dict[str, Any]) -> None:
    assert decode(encode(document), PATH) == {"format": 1, **document}


@pytest.mark.survives("state files", "damaged bytes")
@given(st.data())
def test_decode_detects_any_flipped_bit(data: st.DataObject) -> None:
    written = bytearray(encode({"offset": 17, "name": "a reader"}))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(written), PATH) is None


@given(st.binary())
def test_decode_returns_none_for_arbitrary_bytes(data: bytes) -> None:
    assert decode(data, PATH) is None


@pytest.mark.parametrize("text", [b"[1, 2]", b"no json", b"\xff"])
def test_decode_returns_none_for_json_that_is_not_an_object(text: bytes) -> None:
    assert decode(b"%08x" % crc32c(text) + text, PATH) is None


@pytest.mark.survives("state files", "other format")
def test_decode_names_a_later_format() -> None:
    text = b'{"format": 2}'
    with pytest.raises(UnknownFormat, match=r"name\.json has format 2, this version of Penstock reads 1"):
        decode(b"%08x" % crc32c(text) + text, PATH)


@given(st.binary())
def test_error_names_a_damaged_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "d.json")
        path.write_bytes(data)
        try:
            assert isinstance(read_document(path), dict)
        except DamagedFile as error:
            assert str(path) in str(error)  # noqa: PT017 most bytes are damage, some are an object


@pytest.mark.survives("state files", "power cut")
@pytest.mark.parametrize("seed", range(20))
def test_crash_leaves_the_old_or_the_new_document(tmp_path: Path, seed: int) -> None:
    for stop_after in range(20):
        folder = tmp_path / str(stop_after)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed)
        fs.stop_after = stop_after
        written, attempted = -1, -1
        try:
            for number in range(3):
                attempted = number
                write_document(folder / "d", {"number": number}, fs)
                written = number
        except OSError:
            fs.crash()
        number = read_document(folder / "d")["number"] if (folder / "d").exists() else -1
        assert number in (written, attempted)


@pytest.mark.survives("state files", "full disk")
@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_failed_write_keeps_the_old_document_and_no_draft(tmp_path: Path, operation: str) -> None:
    write_document(tmp_path / "d", {"number": 1})
    fs = CrashingFileSystem(tmp_path)
    fs.failures = {operation: errno.ENOSPC}
    with pytest.raises(OSError, match="No space"):
        write_document(tmp_path / "d", {"number": 2}, fs)
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    assert read_document(tmp_path / "d")["number"] == 1
