"""What is kept of followed files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from penstock.client.tail.positions import (
    BadPositions,
    FilePosition,
    PendingAppend,
    Positions,
    PositionsFile,
    positions_of,
)
from penstock.errors import PenstockError
from penstock.files.errors import Locked
from penstock.files.json_values import parse_object
from tests.fuzzed import RAW, Bytes, documents, json_texts

KEYS = ("producer", "sequence", "pending", "files", "path", "device", "inode", "offset")
SOME = Positions(
    "me",
    7,
    PendingAppend("/a", 1, 2, 3, 4, 5),
    {(1, 2): FilePosition("/a", 1, 2, 3, 3, 9), (1, 3): FilePosition("/b", 1, 3)},
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    kept = PositionsFile(tmp_path / "new" / "positions.json")
    assert kept.read() is None
    kept.write(SOME)
    assert kept.read() == SOME


def test_two_do_not_follow_with_the_same_positions(tmp_path: Path) -> None:
    first = PositionsFile(tmp_path / "positions.json")
    with pytest.raises(Locked):
        PositionsFile(tmp_path / "positions.json")
    first.close()
    PositionsFile(tmp_path / "positions.json").close()


@given(documents(*KEYS))
def test_any_file_is_positions_or_an_error_of_ours(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "positions.json"
        path.write_bytes(data)
        kept = PositionsFile(path)
        try:
            found = kept.read()
        except PenstockError:
            found = None
        finally:
            kept.close()
        assert found is None or found.sequence >= 0


ANY: Bytes = json_texts(*KEYS) | RAW


@given(ANY)
def test_any_document_is_positions_or_bad(data: bytes) -> None:
    try:
        document = parse_object(data)
    except ValueError:
        return
    try:
        positions_of(document or {})
    except BadPositions:
        return
