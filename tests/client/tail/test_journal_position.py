"""The state file of a followed journal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from penstock.client.tail.journal_position import (
    BadJournalPosition,
    JournalPosition,
    JournalPositionFile,
    position_of,
)
from penstock.client.tail.positions import Positions, PositionsFile
from penstock.errors import PenstockError
from penstock.files.errors import Locked
from penstock.files.json_values import parse_object
from penstock.records import body
from tests.fuzzed import RAW, Bytes, documents, json_texts

KEYS = ("producer", "sequence", "cursor", "pending")
ROWS = body([b"one", b"two\n\xff"])


@pytest.mark.parametrize("pending", [None, ROWS])
def test_written_position_is_read(tmp_path: Path, pending: object) -> None:
    state = JournalPositionFile(tmp_path / "new" / "position.json")
    assert state.read() is None
    position = JournalPosition("me", 7, "s=1;i=2", pending)  # type: ignore[arg-type]  # a batch or None
    state.write(position)
    assert state.read() == position


def test_second_process_cannot_use_the_same_position(tmp_path: Path) -> None:
    first = JournalPositionFile(tmp_path / "position.json")
    with pytest.raises(Locked):
        JournalPositionFile(tmp_path / "position.json")
    first.close()
    JournalPositionFile(tmp_path / "position.json").close()


def test_positions_of_files_are_refused_with_advice(tmp_path: Path) -> None:
    files = PositionsFile(tmp_path / "state.json")
    files.write(Positions("me"))
    files.close()
    with pytest.raises(BadJournalPosition, match=r"restore it, or remove .*state\.json"):
        JournalPositionFile(tmp_path / "state.json").read()


@given(documents(*KEYS))
def test_any_file_is_a_position_or_an_error_of_ours(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "position.json"
        path.write_bytes(data)
        state = JournalPositionFile(path)
        try:
            position = state.read()
        except PenstockError:
            position = None
        finally:
            state.close()
        assert position is None or position.sequence >= 0


ANY: Bytes = json_texts(*KEYS) | RAW


@given(ANY)
def test_any_document_is_a_position_or_bad(data: bytes) -> None:
    try:
        document = parse_object(data)
    except ValueError:
        return
    try:
        position_of(document or {})
    except BadJournalPosition:
        return
