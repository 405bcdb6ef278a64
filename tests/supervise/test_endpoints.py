"""The endpoints file: valid, absent or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.supervise.endpoints import ENDPOINTS, endpoints

DOCUMENT = {"supervisor": 5, "pids": {"log daemon": 6}, "listeners": {"in": ["127.0.0.1", 7]}, "http": "127.0.0.1:8"}


def test_missing_file_is_empty(tmp_path: Path) -> None:
    assert endpoints(tmp_path) == {}


def test_valid_document_is_returned(tmp_path: Path) -> None:
    (tmp_path / ENDPOINTS).write_text(json.dumps(DOCUMENT))
    assert endpoints(tmp_path) == DOCUMENT


@pytest.mark.survives("supervisor", "damaged bytes")
@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_is_no_error(tmp_path: Path, bit: int) -> None:
    content = json.dumps(DOCUMENT).encode()
    for index in range(len(content)):
        (tmp_path / ENDPOINTS).write_bytes(content[:index] + bytes([content[index] ^ 1 << bit]) + content[index + 1 :])
        document = endpoints(tmp_path)
        assert not document or {"supervisor", "pids", "listeners"} <= set(document)


@pytest.mark.parametrize("data", [b"", bytes(300), b"[]", b"5", b"[" * 100_000, b'{"supervisor": "x"}'])
def test_invalid_document_is_empty(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ENDPOINTS).write_bytes(data)
    assert endpoints(tmp_path) == {}
