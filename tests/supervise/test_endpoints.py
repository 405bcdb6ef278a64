"""What is read of a supervisor's own words, whatever became of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.supervise.endpoints import ENDPOINTS, endpoints

SAID = {"supervisor": 5, "pids": {"log daemon": 6}, "listeners": {"in": ["127.0.0.1", 7]}, "http": "127.0.0.1:8"}


def test_nobody_says_nothing(tmp_path: Path) -> None:
    assert endpoints(tmp_path) == {}


def test_what_is_said_comes_back(tmp_path: Path) -> None:
    (tmp_path / ENDPOINTS).write_text(json.dumps(SAID))
    assert endpoints(tmp_path) == SAID


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_is_no_error(tmp_path: Path, bit: int) -> None:
    whole = json.dumps(SAID).encode()
    for at in range(len(whole)):
        (tmp_path / ENDPOINTS).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        found = endpoints(tmp_path)
        assert not found or {"supervisor", "pids", "listeners"} <= set(found)


@pytest.mark.parametrize("data", [b"", bytes(300), b"[]", b"5", b"[" * 100_000, b'{"supervisor": "x"}'])
def test_what_is_no_such_document_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ENDPOINTS).write_bytes(data)
    assert endpoints(tmp_path) == {}
