from __future__ import annotations

from pathlib import Path

import pytest

from penstock.handover.disk_id import DISK_FILE, OwnDisk, hop_of, load_disk_id


def test_data_directory_keeps_its_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = load_disk_id(tmp_path)
    assert load_disk_id(tmp_path) == disk
    for content in (b"damaged", b"damaged again"):
        (tmp_path / DISK_FILE).write_bytes(content)
        assert load_disk_id(tmp_path) != disk
    assert "the id of this data directory is lost" in caplog.text
    assert (tmp_path / "disk.damaged").read_bytes() == b"damaged"
    assert (tmp_path / "disk.damaged2").read_bytes() == b"damaged again"


def test_hop_differs_by_data_directory_and_topic(tmp_path: Path) -> None:
    disk = load_disk_id(tmp_path)
    assert len({hop_of(disk, "a"), hop_of(disk, "b"), hop_of(load_disk_id(tmp_path / "other"), "a")}) == 3


def test_running_daemon_follows_a_relay_that_replaces_a_damaged_id(tmp_path: Path) -> None:
    disk = OwnDisk(tmp_path)
    first_id = disk.id
    assert first_id == load_disk_id(tmp_path)
    (tmp_path / DISK_FILE).write_bytes(b"damaged")
    assert disk.id == first_id
    assert load_disk_id(tmp_path) != first_id  # a relay
    assert disk.id == load_disk_id(tmp_path)


def test_daemon_without_an_id_starts_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "relays").touch()
    assert OwnDisk(tmp_path / "relays").id == ""
    assert "relayed entries are refused" in caplog.text
