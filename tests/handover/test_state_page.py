"""The state page: a text is whole or the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.handover.state_page import CAPACITY, StatePage


def test_each_text_is_what_was_written_last(tmp_path: Path) -> None:
    page = StatePage(tmp_path / "state")
    assert page.read(0) is None
    for number in range(5):
        page.write(0, {"number": number})
        page.write(1, [number])
    other = StatePage(tmp_path / "state")
    assert (other.read(0), other.read(1)) == ({"number": 4}, [4])


def test_a_text_that_does_not_fit_is_refused_and_the_last_one_stays(tmp_path: Path) -> None:
    page = StatePage(tmp_path / "state")
    page.write(0, "before")
    with pytest.raises(ValueError, match="does not fit"):
        page.write(0, "x" * CAPACITY)
    assert page.read(0) == "before"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 4 * CAPACITY - 1), st.integers(0, 255))
def test_a_changed_byte_leaves_a_whole_text(tmp_path: Path, at: int, byte: int) -> None:
    path = tmp_path / "state"
    path.unlink(missing_ok=True)
    page = StatePage(path)
    page.write(0, "older")
    page.write(0, "newer")
    page.close()
    data = bytearray(path.read_bytes())
    data[at] = byte
    path.write_bytes(data)
    assert StatePage(path).read(0) in ("older", "newer")
