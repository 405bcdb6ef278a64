"""The state file of followed files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from penstock.client.tail.positions import (
    BadPositions,
    FilePosition,
    InterruptedAppend,
    PendingAppend,
    Positions,
    PositionsFile,
    positions_of,
)
from penstock.errors import PenstockError
from penstock.files.errors import Locked
from penstock.files.json_values import parse_object
from tests.fuzzed import RAW, Bytes, documents, json_texts

KEYS = ("producer", "sequence", "pending", "files", "path", "device", "inode", "offset", "cut", "interrupted")
POSITIONS = Positions(
    "me",
    7,
    PendingAppend("/a", 1, 2, 3, 4, 5),
    {(1, 2): FilePosition("/a", 1, 2, 3, 3, 9, 3, 8, 1), (1, 3): FilePosition("/b", 1, 3)},
    [FilePosition("/c", 1, 4, 5, 5, 6, 5, 7)],
    [InterruptedAppend("i", 3, PendingAppend("/a", 1, 2, 0, 1, 2))],
)


def test_written_positions_are_read(tmp_path: Path) -> None:
    state = PositionsFile(tmp_path / "new" / "positions.json")
    assert state.read() is None
    state.write(POSITIONS)
    assert state.read() == POSITIONS


def test_second_process_cannot_use_the_same_positions(tmp_path: Path) -> None:
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
        state = PositionsFile(path)
        try:
            positions = state.read()
        except PenstockError:
            positions = None
        finally:
            state.close()
        assert positions is None or positions.sequence >= 0


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
