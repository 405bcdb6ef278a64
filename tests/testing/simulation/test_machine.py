"""The simulated machine: time, lost pages, and processes that die at any line."""

from __future__ import annotations

import contextlib
import errno
import random
import time
from pathlib import Path

import pytest

from penstock.files.file_system import replace_durably
from penstock.handover import reader
from penstock.log import documents
from penstock.testing.simulation.machine import Killed, Machine, MappedFolder, another_process, killed_after


def test_rooms_see_the_virtual_time_within_a_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    with machine.running():
        machine.clock.advance(5.0)
        simulated_time = vars(reader)["time"]
        assert simulated_time.monotonic() == 5.0
        simulated_time.sleep(1.0)
        assert machine.clock.monotonic() == 6.0
    assert vars(reader)["time"] is time


def test_process_dies_at_a_line_of_its_code() -> None:
    deaths: list[str] = []
    for lines in range(100):
        deaths.clear()
        try:
            with killed_after(lines, lambda: deaths.append("died")):
                documents.encode({"offset": 1})
        except Killed:
            assert deaths == ["died"]
        else:
            break
    assert 1 < lines < 100, "each line of the call was the last one once"


def test_step_of_another_process_is_not_killed() -> None:
    with killed_after(0, lambda: None), another_process():
        documents.encode({"offset": 1})


def test_dead_process_writes_nothing_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    machine.files.kill_after = 1
    with pytest.raises(Killed):
        replace_durably(machine.files, machine.topics / "file", b"content")
    with pytest.raises(Killed):
        machine.files.open(machine.topics / "other", create=True)
    machine.files.revive()
    replace_durably(machine.files, machine.topics / "file", b"content")
    assert (machine.topics / "file").read_bytes() == b"content"


def test_failing_operation_works_again_after_its_failures(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    machine.files.failing["rename"] = 5, 2
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            replace_durably(machine.files, machine.topics / "file", b"content")
    replace_durably(machine.files, machine.topics / "file", b"content")


def test_flipped_bit_survives_a_power_cut(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    path = machine.topics / "file"
    replace_durably(machine.files, path, b"aaaa")
    machine.files.flip_bit(path, 2, 1)
    machine.cut_power()
    assert path.read_bytes() == b"aaca"


def test_power_cut_takes_back_removals_since_the_last_sync(tmp_path: Path) -> None:
    folder, path = MappedFolder(tmp_path), tmp_path / "events.held"
    remaining = {True: 0, False: 0}
    for seed in range(20):
        for is_synced in remaining:
            path.write_bytes(b"saved")
            folder.write_back()
            folder.remove(path)
            if is_synced:
                folder.sync_directory(tmp_path)
            folder.cut_power(random.Random(seed))
            remaining[is_synced] += path.exists()
            path.unlink(missing_ok=True)
    assert remaining[True] == 0
    assert 0 < remaining[False] < 20


def test_power_cut_loses_pages_since_the_last_writeback(tmp_path: Path) -> None:
    folder, path = MappedFolder(tmp_path), tmp_path / "mapped"
    seen = set()
    for seed in range(30):
        path.write_bytes(b"a" * 8192)
        folder.write_back()
        path.write_bytes(b"b" * 8192)
        folder.cut_power(random.Random(seed))
        seen.add(path.read_bytes()[::4096])
    assert seen == {b"aa", b"ab", b"ba", b"bb"}


def test_read_and_map_fail_as_often_as_planned(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    path = machine.topics / "file"
    replace_durably(machine.files, path, b"content")
    machine.files.failing["read"] = errno.EIO, 2
    for read in (machine.files.read, machine.files.map):
        with pytest.raises(OSError, match="Input/output error"):
            read(path)
    assert machine.files.read(path) == machine.files.map(path).to_pybytes() == b"content"


def test_power_cut_ends_lying_syncs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    machine.files.lying_syncs = 9
    machine.cut_power()
    replace_durably(machine.files, machine.topics / "true", b"true")
    machine.cut_power()
    assert (machine.topics / "true").read_bytes() == b"true"


def test_file_is_on_disk_once_it_is_synced(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    path = machine.topics / "file"
    with contextlib.closing(machine.files.open(path, create=True)) as file:
        file.write([b"synced"], 0)
        file.sync()
        file.write([b" and not"], 6)
    assert machine.files.is_on_disk(path, 0, 6)
    assert not machine.files.is_on_disk(path, 6, 7)


def test_lying_syncs_lose_content_only_as_often_as_planned(tmp_path: Path) -> None:
    lost = set()
    for seed in range(20):
        (folder := tmp_path / str(seed)).mkdir()
        machine = Machine(folder, seed)
        machine.files.lying_syncs = 1
        for name in ("claimed", "true"):
            replace_durably(machine.files, machine.topics / name, name.encode())
        machine.cut_power()
        assert (machine.topics / "true").read_bytes() == b"true"
        lost.add((machine.topics / "claimed").read_bytes())
    assert lost == {b"", b"claimed"}
