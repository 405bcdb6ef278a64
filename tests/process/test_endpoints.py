"""The file that says where a running penstock is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from penstock.process.endpoints import FILE_NAME, Endpoints, read_endpoints, write_endpoints
from tests.fuzzed import Bytes, json_texts

KEYS: Bytes = json_texts("supervisor", "pids", "listeners", "http")


def test_endpoints_come_back_as_they_were(tmp_path: Path) -> None:
    assert read_endpoints(tmp_path) is None
    told = Endpoints(7, {"log daemon": 8, "receiver a": None}, {"a": ("::1", 9)}, "h:1", "g:2", "f:3")
    write_endpoints(tmp_path, told)
    assert read_endpoints(tmp_path) == told


@given(KEYS)
def test_any_bytes_are_endpoints_or_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / FILE_NAME).write_bytes(data)
    found = read_endpoints(folder)
    assert found is None or isinstance(found.supervisor, int)
