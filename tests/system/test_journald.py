"""``penstock tail --journal`` with the real journald and journalctl: each entry once, through all that they do."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.tail import journal as followed
from penstock.client.tail.journal import BOOT, NOW
from penstock.client.tail.journal_position import JournalPosition, JournalPositionFile
from penstock.testing.pipe import Pipe, wait_until
from tests.client.tail.following import FollowedJournal, annotation
from tests.system.journald import Journald, message_of
from tests.system.topic_files import entries

WAIT_S = 300
"""Limit of a wait for a tail that starts: its interpreter, then journalctl twice."""


@pytest.fixture
def journald(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Journald]:
    journald = Journald(tmp_path, **getattr(request, "param", {}))
    yield journald
    journald.close()


@pytest.fixture
def here(journald: Journald, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FollowedJournal]:
    monkeypatch.setattr(followed, "FIRST_RESTART_S", 0.01)
    monkeypatch.setattr(followed, "PERSISTENT_FOLDER", str(journald.persistent_folder))
    follower = FollowedJournal(journald.program, tmp_path / "state" / "journal.json")
    yield follower
    follower.kill()


def numbered(first: int, end: int) -> list[bytes]:
    """Return messages of every kind: a line, several lines, bytes that are not text."""
    return [(b"line %d", b"line\n%d\n", b"\xff\x00%d\x01")[number % 3] % number for number in range(first, end)]


def read_lines(here: FollowedJournal, journald: Journald) -> None:
    """Follow until the topic has the newest entry of the journal."""
    newest = journald.entries()[-1]["__CURSOR"]

    def has_newest() -> bool:
        here.turn()
        return bool(here.topic.rows) and annotation(here.topic.rows[-1], "cursor") == newest

    wait_until(has_newest)


def test_entries_have_the_bytes_and_fields_that_journald_stored(here: FollowedJournal, journald: Journald) -> None:
    long = b"z" * (3 << 19)
    journald.write(*numbered(0, 6), b"", long)
    journald.send(("PRIORITY", b"3"), ("SYSLOG_FACILITY", b"4"), ("SYSLOG_IDENTIFIER", b"shop"), ("NOTE", b"a\nb"))
    journald.send(("MESSAGE", b"first"), ("MESSAGE", b"last\n"), ("MESSAGE_ID", b"a" * 32))
    journald.control("--sync")
    here.run_once()
    stored = journald.entries()
    assert here.topic.lines[-10:] == [*numbered(0, 6), b"", long[: 1 << 20], b"", b"last\n"]
    assert [annotation(row, "cursor") for row in here.topic.rows] == [entry["__CURSOR"] for entry in stored]
    annotations = [dict(row["annotations"]) for row in here.topic.rows]
    for name, field in {"hostname": "_HOSTNAME", "procid": "_PID", "uid": "_UID", "transport": "_TRANSPORT"}.items():
        assert [texts.get(name) for texts in annotations] == [entry.get(field) for entry in stored]
    fields = {"severity": "err", "facility": "auth", "app_name": "shop"}
    assert annotations[-2].items() >= fields.items()
    assert (annotations[-1]["message"], annotations[-1]["message_id"]) == ("first", "a" * 32)


def test_each_entry_is_appended_once_through_every_rotation_and_a_flush(
    here: FollowedJournal, journald: Journald
) -> None:
    steps: list[Callable[[], object]] = [
        lambda: journald.control("--rotate"),
        lambda: journald.signal(signal.SIGUSR2),
        lambda: (journald.kill(), journald.start()),  # its file is dirty: renamed to .journal~
        here.kill_journalctl,
        lambda: journald.control("--relinquish-var"),
        lambda: journald.control("--flush"),
        lambda: None,
    ]
    here.start()
    written = 0
    for step in steps:
        journald.write(*numbered(written, written + 300))
        step()
        journald.write(*numbered(written + 300, written + 400))
        written += 400
        read_lines(here, journald)
    messages = Counter(here.topic.lines)
    assert messages == Counter(journald.messages())
    assert messages.items() >= Counter(numbered(0, written)).items()
    assert here.tailer is not None
    assert here.tailer.missing == 0


@pytest.mark.parametrize("journald", [{"is_persistent": False}], indirect=True)
def test_entries_move_from_memory_to_the_disk_and_are_appended_once(here: FollowedJournal, journald: Journald) -> None:
    journald.write(*numbered(0, 100))
    here.start()
    read_lines(here, journald)
    journald.write(*numbered(100, 150))
    journald.persistent_folder.mkdir()
    journald.control("--flush")
    journald.write(*numbered(150, 200))
    read_lines(here, journald)
    here.kill()
    journald.write(*numbered(200, 210))
    here.run_once()
    assert Counter(here.topic.lines) == Counter(journald.messages())
    assert here.missing == 0


@pytest.mark.parametrize("option", ["--vacuum-files=1", "--vacuum-size=1", "--vacuum-time=1us"])
def test_entries_that_vacuum_took_are_counted(here: FollowedJournal, journald: Journald, option: str) -> None:
    journald.write(*numbered(0, 10))
    here.run_once()
    before = len(here.topic.rows)
    journald.write(*numbered(10, 30))
    journald.control("--rotate")
    journald.write(*numbered(30, 40))
    taken = len(journald.entries())
    journald.control(option)
    remaining = journald.entries()
    taken -= len(remaining) + before
    assert taken >= 20
    here.run_once()
    assert here.topic.lines[before:] == [message_of(entry) for entry in remaining]
    assert here.missing == taken
    assert annotation(here.topic.rows[before], "missing") == str(taken)


@pytest.mark.parametrize("journald", [{"SystemMaxFileSize": "1M", "SystemMaxUse": "8M"}], indirect=True)
def test_entries_removed_for_the_limit_of_space_are_counted(here: FollowedJournal, journald: Journald) -> None:
    journald.write(b"first")
    here.run_once()
    before = len(here.topic.rows)
    written = [b"%d " % number + random.Random(number).randbytes(60_000) for number in range(300)]
    journald.write(*written)
    here.run_once()
    rest = here.topic.lines[before:]
    last = [line for line in written if line in rest]
    assert last == written[-len(last) :]
    # Entries of journald itself are counted as well.
    assert here.missing >= len(written) - len(last) > 100
    numbers = [int(str(annotation(row, "cursor")).split(";")[1].removeprefix("i="), 16) for row in here.topic.rows]
    assert here.missing == numbers[-1] - numbers[0] + 1 - len(numbers)


def test_entries_that_a_killed_journald_left_are_read_or_counted(here: FollowedJournal, journald: Journald) -> None:
    journald.write(*numbered(0, 3))
    here.run_once()
    before = len(here.topic.rows)
    for messages in (numbered(3, 5), numbered(5, 8)):
        for message in messages:
            journald.send(("MESSAGE", message))
        wait_until(lambda last=messages[-1]: journald.messages()[-1] == last, what="journald has the entry")
        journald.kill()  # the file is marked as online, so the next journald sets it aside
        journald.start()
    stored = len(journald.entries())
    assert list(journald.persistent_folder.rglob("*.journal~"))
    journald.control("--rotate", "--vacuum-files=1")
    remaining = len(journald.entries())
    journald.write(b"newest")
    here.run_once()
    assert here.topic.lines[-1] == b"newest"
    assert len(here.topic.rows) == before + remaining + 1
    assert here.missing >= stored - before - remaining > 5


def store_earlier_boot(journald: Journald, hours_ahead: int) -> Path:
    """Store the entries of the present boot a second time, as those of an earlier boot; return their file.

    Their times differ: of two entries with one time, journalctl shows either first.
    """
    (boot,) = {entry["_BOOT_ID"] for entry in journald.entries()}

    def move(match: re.Match[bytes]) -> bytes:
        return match[1] + b"%d" % (int(match[2]) + hours_ahead * 3_600_000_000)

    moved = re.sub(rb"(__REALTIME_TIMESTAMP=)(\d+)", move, journald.export())
    return journald.store("system@earlier.journal", moved.replace(boot.encode(), b"1" * 32))


@pytest.mark.parametrize("hours_ahead", [-1, 1])
def test_entries_after_a_lost_journal_of_an_earlier_boot_are_read(
    here: FollowedJournal, journald: Journald, hours_ahead: int
) -> None:
    journald.write(*numbered(0, 3))
    (present_boot,) = {entry["_BOOT_ID"] for entry in journald.entries()}
    path = store_earlier_boot(journald, hours_ahead)
    entries_of_boots = Counter(entry["_BOOT_ID"] for entry in journald.entries())
    assert set(entries_of_boots) == {present_boot, "1" * 32}
    # The tail was running in the earlier boot, and read its last entry.
    cursors = [entry["__CURSOR"] for entry in journald.entries() if entry["_BOOT_ID"] == "1" * 32]
    state = JournalPositionFile(here.state)
    state.write(JournalPosition("me", cursor=cursors[-1]))
    state.close()
    path.unlink()
    assert here.run_once() == journald.messages()
    journald.write(*numbered(3, 6))
    assert here.run_once() == journald.messages()


def test_first_start_reads_the_present_boot_or_only_new_entries(
    here: FollowedJournal, journald: Journald, tmp_path: Path
) -> None:
    journald.write(*numbered(0, 3))
    present = journald.messages()
    store_earlier_boot(journald, hours_ahead=-1)
    assert len(journald.messages()) == 2 * len(present)
    assert here.run_once(since=BOOT) == present
    follower = FollowedJournal(journald.program, tmp_path / "now.json")
    follower.start(since=NOW)
    follower.kill()
    journald.write(b"new")
    assert follower.run_once(since=NOW) == [b"new"]


def test_only_entries_of_a_unit_are_appended(here: FollowedJournal, journald: Journald) -> None:
    for unit in (b"a.service", b"b.service", b"a.service"):
        journald.send(("OBJECT_SYSTEMD_UNIT", unit), ("MESSAGE", unit))
    journald.control("--sync")
    assert here.run_once(units=["a.service"]) == [b"a.service", b"a.service"]


@pytest.mark.survives("tail", "SIGKILL")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.soak)])
def test_killed_tail_of_a_journald_that_is_killed_and_rotated_appends_each_entry_once(
    pipe: Pipe, journald: Journald, kills: int
) -> None:
    dice, ends = random.Random(9), threading.Event()
    command = [*journald.enter, sys.executable, "-m", "penstock.cli.main", "tail", "--journal", "--topic", "files"]
    synced = 0
    process: subprocess.Popen[bytes] | None = None

    def write() -> None:
        number = 0
        while not ends.wait(0.002):
            try:
                journald.send(("MESSAGE", numbered(number, number + 1)[0]))
                number += 1
            except OSError:  # journald is killed at this moment
                continue

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(kills):
            process, before = subprocess.Popen([*command, *pipe.options]), len(entries(pipe, "files"))
            wait_until(lambda before=before: len(entries(pipe, "files")) > before, WAIT_S, "it appends")
            journald.control("--rotate")
            time.sleep(dice.random() / 2)
            if number % 2:
                journald.control("--sync")
                synced = len(journald.entries())
                journald.kill()
                journald.start()
            process.kill()
            process.wait()
    finally:
        ends.set()
        writer.join()
        if process is not None:
            process.kill()
            process.wait()
    journald.control("--sync")
    assert subprocess.run([*command, "--once", *pipe.options], timeout=120, check=False).returncode == 0
    stored, rows = journald.entries(), entries(pipe, "files")
    assert len(stored) > synced > 0
    assert Counter(row["annotations"]["cursor"] for row in rows) == Counter(entry["__CURSOR"] for entry in stored)
    assert Counter(row["payload"] for row in rows) == Counter(map(message_of, stored))
    assert not any("missing" in row["annotations"] for row in rows)
    assert pipe.settled()["unaccounted"] == 0
