"""A state page yields the newest text or the one before it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.handover.state_page import CAPACITY, StatePage


def test_text_is_the_last_one_written(tmp_path: Path) -> None:
    page = StatePage(tmp_path / "state")
    assert page.read(0) is None
    for number in range(5):
        page.write(0, {"number": number})
        page.write(1, [number])
    second = StatePage(tmp_path / "state")
    assert (second.read(0), second.read(1)) == ({"number": 4}, [4])


def test_too_long_text_is_refused(tmp_path: Path) -> None:
    page = StatePage(tmp_path / "state")
    page.write(0, "before")
    with pytest.raises(ValueError, match="is too long"):
        page.write(0, "x" * CAPACITY)
    assert page.read(0) == "before"


@pytest.mark.survives("state files", "damaged bytes")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 4 * CAPACITY - 1), st.integers(0, 255))
def test_changed_byte_leaves_an_intact_text(tmp_path: Path, index: int, byte: int) -> None:
    path = tmp_path / "state"
    path.unlink(missing_ok=True)
    page = StatePage(path)
    page.write(0, "older")
    page.write(0, "newer")
    page.close()
    data = bytearray(path.read_bytes())
    data[index] = byte
    path.write_bytes(data)
    assert StatePage(path).read(0) in ("older", "newer")


def test_flipped_bit_does_not_restore_an_older_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    page = StatePage(tmp_path / "state")
    for number in range(4):
        page.write(0, f"text {number}")
    page.log_damage()
    assert caplog.messages == []
    page.close()
    written = (tmp_path / "state").read_bytes()
    for offset, expected in ((0, "text 2"), (1, "text 3")):
        for bit in range(8 * 24):
            data = bytearray(written)
            data[offset * CAPACITY + bit // 8] ^= 1 << bit % 8
            (tmp_path / "state").write_bytes(data)
            assert StatePage(tmp_path / "state").read(0) == expected
    StatePage(tmp_path / "state").log_damage()
    assert str(tmp_path / "state") in caplog.messages[0]


def test_existing_page_opens_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = StatePage(tmp_path / "page")
    page.write(0, {"a": 1})
    page.close()

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    repeated = StatePage(tmp_path / "page")
    assert repeated.read(0) == {"a": 1}
    repeated.close()
    with pytest.raises(OSError, match="No space"):
        StatePage(tmp_path / "another")


def test_threads_that_create_the_same_page_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[StatePage] = []

    def allocate_during_another_creation(descriptor: int, offset: int, size: int) -> None:
        monkeypatch.undo()
        others.append(StatePage(tmp_path / "state"))
        os.posix_fallocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", allocate_during_another_creation)
    page = StatePage(tmp_path / "state")
    others[0].write(0, "text")
    assert (page.read(0), os.listdir(tmp_path)) == ("text", ["state"])


def test_page_is_created_on_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    page = StatePage(tmp_path / "state")
    page.write(0, "text")
    assert (page.read(0), os.listdir(tmp_path)) == ("text", ["state"])
