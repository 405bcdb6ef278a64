"""The position file of a relayed topic."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given

from penstock.client.relay.positions import (
    BadRelayPosition,
    FurtherRange,
    RelayPosition,
    RelayPositionFile,
    position_of,
)
from penstock.errors import PenstockError
from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile, UnknownFormat
from tests.fuzzed import RAW, Bytes, documents

POSITION = RelayPosition("me", 7, 10, 20, 1_700_000_000)


def test_written_position_is_read(tmp_path: Path) -> None:
    file = RelayPositionFile(tmp_path / "new" / "t.json")
    assert file.read() is None
    file.write(POSITION)
    assert file.read() == POSITION


def test_position_has_the_numbers_of_its_ranges(tmp_path: Path) -> None:
    position = replace(POSITION, further=(FurtherRange(23, "a", 3), FurtherRange(30, "b", 6)))
    file = RelayPositionFile(tmp_path / "t.json")
    file.write(position)
    assert file.read() == position
    ranges = [(each.sequence, each.begin, each.end, each.listener, each.rows) for each in position.split()]
    assert ranges == [(7, 10, 20, "", 0), (8, 20, 23, "a", 3), (9, 23, 30, "b", 6)]
    assert RelayPosition.join(position.split()) == position
    # An earlier version would pass over the ranges behind the first one.
    with pytest.raises(UnknownFormat):
        read_document(tmp_path / "t.json")
    file.write(POSITION)
    assert read_document(tmp_path / "t.json")["format"] == 1


def test_damaged_file_is_set_aside(tmp_path: Path) -> None:
    file = RelayPositionFile(tmp_path / "t.json")
    for renamed in ("t.damaged", "t.damaged2"):
        (tmp_path / "t.json").write_bytes(b"damaged")
        with pytest.raises(DamagedFile):
            file.read()
        assert file.set_aside() == tmp_path / renamed
    assert file.read() is None


@pytest.mark.parametrize(
    "wrong",
    [
        *({"producer": ""}, {"producer": 5}, {"sequence": -1}, {"begin": 20}, {"end": 1 << 63}, {"sent": 1.5}),
        *({"further": further} for further in ([[20, "a", 1]], [[21, 5, 1]], [[21, "a", -1]], [[21, "a"]], 5)),
    ],
    ids=str,
)
def test_impossible_position_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadRelayPosition):
        position_of({**asdict(POSITION), **wrong})


@given(RAW | documents(*RelayPosition.__slots__))
def test_any_file_is_a_position_or_an_error_of_ours(content: Bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(content)
        file = RelayPositionFile(path)
        try:
            position = file.read()
        except PenstockError:
            return
        assert position is not None
        file.write(position)
        assert file.read() == replace(position)
