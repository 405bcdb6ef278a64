"""The journal followed by journalctl: each entry once through kills, rotation and vacuum; what is missing is counted.

A program of ``journals`` plays journalctl: its options and output, its status and error for a bad cursor.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from penstock.client.log.types import Exhausted
from penstock.client.tail import journal as followed
from penstock.client.tail.journal import ALL, BOOT, NOW, may_read_all
from penstock.client.tail.journal_position import JournalPosition, JournalPositionFile
from penstock.testing import wait_until
from tests.client.tail.following import FollowedJournal, Killed, annotation
from tests.client.tail.journals import FOLDER, Journal, cursor_of


class Follower(FollowedJournal):
    """A tailer of a journal that the test writes."""

    def __init__(self, journal: Journal, state: Path) -> None:
        super().__init__(journal.program, state)
        self.journal = journal


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    journal = Journal(tmp_path / "journal")
    monkeypatch.setenv(FOLDER, str(journal.folder))
    monkeypatch.setattr(followed, "FIRST_RESTART_S", 0.01)
    monkeypatch.setattr(followed, "POLL_INTERVAL_S", 0.02)
    monkeypatch.setattr(followed, "may_read_all", lambda: True)
    monkeypatch.setattr(followed, "boot_id", lambda: str(UUID(journal.boot)))
    monkeypatch.setattr(followed, "PERSISTENT_FOLDER", str(tmp_path / "persistent"))
    follower = Follower(journal, tmp_path / "state" / "journal.json")
    yield follower
    follower.kill()


def write(journal: Journal, count: int) -> None:
    for number in range(journal.written, journal.written + count):
        journal.write(b"line %d" % number if number % 3 else b"line\n%d" % number)


def lines(first: int, end: int) -> list[bytes]:
    return [b"line %d" % number if number % 3 else b"line\n%d" % number for number in range(first, end)]


def test_existing_and_new_entries_are_appended_with_annotations(here: Follower) -> None:
    write(here.journal, 2)
    here.start(annotations={"host": "a"})
    here.read_until(2)
    write(here.journal, 2)
    here.read_until(4)
    assert here.topic.lines == lines(0, 4)
    assert here.topic.rows[3]["annotations"] == [
        ("host", "a"),
        ("cursor", cursor_of(4)),
        ("time", "2026-11-26T23:07:35.088283Z"),
        ("uid", "0"),
        ("hostname", "web-1"),
        ("severity", "err"),
        ("app_name", "shop"),
        ("transport", "journal"),
        ("procid", "12"),
        ("unit", "a.service"),
    ]


def test_next_start_continues_after_the_last_entry(here: Follower) -> None:
    write(here.journal, 3)
    assert here.run_once() == lines(0, 3)
    write(here.journal, 3)
    assert here.run_once() == lines(0, 6)
    assert here.run_once() == lines(0, 6)
    assert [call.rpartition("--cursor=")[2] for call in here.journal.calls[1:]] == [cursor_of(3), cursor_of(6)]


def test_empty_journal_has_no_entries(here: Follower) -> None:
    assert here.run_once() == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_append_that_a_kill_interrupted_is_made_once_though_vacuum_took_its_entries(
    here: Follower, moment: str
) -> None:
    write(here.journal, 5)
    here.topic.dies = moment
    here.start()
    with pytest.raises(Killed):
        here.read_until(1)
    here.kill()
    here.topic.dies = ""
    here.journal.rotate()
    write(here.journal, 2)
    here.journal.vacuum()
    assert here.run_once() == lines(0, 7)
    assert here.missing == 0


@pytest.mark.parametrize("seconds_ahead", [-3600, 3600])
def test_entries_of_a_lost_journal_s_successor_are_all_read_though_the_clock_was_ahead(
    here: Follower, caplog: pytest.LogCaptureFixture, seconds_ahead: int
) -> None:
    """systemd/systemd#6213, Azure/adx-mon#854, syslog-ng/syslog-ng#1570: journalctl waits for the cursor's time."""
    write(here.journal, 3)
    here.run_once()
    here.journal.begin_again(seconds_ahead)
    write(here.journal, 2)
    assert here.run_once() == lines(0, 5)
    assert caplog.messages[0].startswith("the entry that was read last is no longer in the journal: ")
    here.start()
    write(here.journal, 2)
    here.read_until(7)
    assert here.topic.lines == lines(0, 7)


@pytest.mark.parametrize("has_other_boot", [False, True])
def test_entries_whose_numbers_repeat_after_a_power_failure_are_read(here: Follower, has_other_boot: bool) -> None:
    write(here.journal, 10)
    here.run_once()
    here.journal.lose_power(4)
    for number in range(6):
        here.journal.write(b"new %d" % number)
    if has_other_boot:
        here.journal.reboot()
    assert here.run_once() == [*lines(0, 10), *(b"new %d" % number for number in range(6))]


def test_append_is_made_again_as_another_producer_if_the_log_forgot_it(here: Follower) -> None:
    write(here.journal, 1)
    here.run_once()
    here.topic.forget()
    write(here.journal, 1)
    assert here.run_once() == lines(0, 2)


def test_failed_append_is_made_later_with_the_same_entries(here: Follower) -> None:
    write(here.journal, 2)
    here.topic.failure = Exhausted("disk full")
    here.start()
    with pytest.raises(Exhausted):
        here.read_until(1)
    write(here.journal, 2)
    here.topic.failure = None
    here.read_until(4)
    assert here.topic.lines == lines(0, 4)


def test_entries_that_vacuum_took_are_counted_and_annotated(here: Follower, caplog: pytest.LogCaptureFixture) -> None:
    write(here.journal, 3)
    here.run_once()
    write(here.journal, 4)
    here.journal.rotate()
    write(here.journal, 2)
    here.journal.vacuum()
    assert here.run_once() == [*lines(0, 3), *lines(7, 9)]
    assert here.missing == 4
    assert [annotation(row, "missing") for row in here.topic.rows] == [None, None, None, "4", None]
    assert caplog.messages == [
        f"4 entries of the journal are missing before cursor {cursor_of(8)}: removed before they were read"
    ]


@pytest.mark.parametrize("cause", ["hint of journalctl", "no group of readers", "unit"])
def test_entries_that_cannot_be_told_from_those_of_others_are_not_counted(
    here: Follower, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    options = {"units": ["a.service"]} if cause == "unit" else {}
    if cause == "hint of journalctl":
        here.journal.deny_access()
    elif cause == "no group of readers":
        monkeypatch.setattr(followed, "may_read_all", lambda: False)
    here.journal.write(b"one")
    here.run_once(**options)
    here.journal.write(b"of another", "b.service")
    here.journal.rotate()
    here.journal.write(b"two")
    assert b"two" in here.run_once(**options)
    caplog.clear()
    here.journal.rotate()
    here.journal.write(b"three")
    here.journal.vacuum()
    here.run_once(**options)
    assert here.missing == 0
    (text,) = [message for message in caplog.messages if "Hint" not in message]
    assert text.startswith("the entry that was read last is no longer in the journal: ")


@pytest.mark.parametrize(
    ("user", "groups", "reads_all"), [(0, [], True), (1000, [], False), (1000, [7, 8], True), (1000, [8], False)]
)
def test_root_and_members_of_a_group_of_readers_read_all_entries(
    monkeypatch: pytest.MonkeyPatch, user: int, groups: list[int], reads_all: bool
) -> None:
    def group(name: str) -> SimpleNamespace:
        if name != "adm":
            raise KeyError(name)
        return SimpleNamespace(gr_gid=7)

    monkeypatch.setattr("grp.getgrnam", group)
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("os.getegid", lambda: 1000)
    monkeypatch.setattr("os.getgroups", lambda: groups)
    assert may_read_all() is reads_all


def test_only_entries_of_the_units_are_appended(here: Follower) -> None:
    for unit in ("a.service", "b.service", "a.service"):
        here.journal.write(unit.encode(), unit)
    assert here.run_once(units=["a.service"]) == [b"a.service", b"a.service"]


@pytest.mark.parametrize(("since", "expected"), [(ALL, [b"1", b"2", b"3"]), (BOOT, [b"2", b"3"]), (NOW, [b"3"])])
def test_first_start_begins_where_it_is_asked_to(here: Follower, since: str, expected: list[bytes]) -> None:
    here.journal.write(b"1")
    here.journal.reboot()
    here.journal.write(b"2")
    here.start(since=since)
    here.kill()
    here.journal.write(b"3")
    assert here.run_once(since=since) == expected
    assert here.missing == 0


def test_now_in_an_empty_journal_is_its_beginning(here: Follower) -> None:
    here.start(since=NOW)
    here.kill()
    here.journal.write(b"1")
    assert here.run_once(since=NOW) == [b"1"]


def test_killed_journalctl_is_started_again_after_the_last_entry(
    here: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    write(here.journal, 2)
    here.start()
    here.read_until(2)
    here.kill_journalctl()
    write(here.journal, 2)
    here.read_until(4)
    assert here.topic.lines == lines(0, 4)
    assert caplog.messages == ["journalctl was killed by signal 9; starting it again at the last entry in 0 s"]


def test_journalctl_is_started_again_when_the_folder_of_the_persistent_journal_appears(here: Follower) -> None:
    write(here.journal, 2)
    here.start()
    here.read_until(2)
    (here.state.parent.parent / "persistent").mkdir()
    write(here.journal, 2)
    here.read_until(4)
    wait_until(lambda: len(here.journal.calls) == 2)
    assert here.topic.lines == lines(0, 4)


def test_refused_cursor_is_reported_with_the_words_of_journalctl(
    here: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    state = JournalPositionFile(here.state)
    state.write(JournalPosition("me", cursor="broken"))
    state.close()
    here.start()
    wait_until(lambda: not here.turn() and len(here.journal.calls) > 2)  # type: ignore[func-returns-value]  # a step
    assert caplog.messages[:2] == [
        "journalctl: Failed to seek to cursor: Invalid argument",
        "journalctl ended with status 1; starting it again at the last entry in 0 s",
    ]
    assert len([text for text in caplog.messages if "Invalid argument" in text]) == 1


def test_damaged_output_is_reported_and_what_precedes_it_appended(
    here: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    write(here.journal, 1)
    path = Path(here.journal.program)
    intact = path.read_text()
    path.write_text(intact.replace('    if "--follow" not', '    write(b"X" * (1 << 17))\n    if "--follow" not'))
    here.start()
    wait_until(lambda: not here.turn() and len(here.journal.calls) > 1)  # type: ignore[func-returns-value]  # a step
    path.write_text(intact)
    write(here.journal, 1)
    here.read_until(2)
    assert here.topic.lines == lines(0, 2)
    text = "wrote what cannot be read (a line has no name of a field)"
    assert caplog.messages[0] == f"journalctl {text}; starting it again at the last entry in 0 s"


def test_each_entry_is_stored_once_through_random_kills_rotation_and_vacuum(here: Follower) -> None:
    dice, journal = random.Random(5), here.journal

    def vacuum() -> None:
        here.kill()
        write(journal, 5)
        journal.rotate()
        journal.vacuum()

    steps: list[Callable[[], object]] = [
        journal.rotate,
        vacuum,
        here.kill_journalctl,
        lambda: setattr(here.topic, "dies", "before"),
        lambda: setattr(here.topic, "dies", "after"),
    ]
    for round_number in range(4 * len(steps)):
        write(journal, dice.randrange(1, 60))
        if here.tailer is None:
            here.start()
        try:
            here.read_until(len(here.topic.rows) + 1)
            write(journal, dice.randrange(60))
            steps[round_number % len(steps)]()
        except Killed:
            here.topic.dies = ""
            here.kill()
    here.topic.dies = ""
    here.kill()
    here.run_once()
    counts = Counter(here.topic.lines)
    assert set(counts.values()) == {1}
    lost = Counter(lines(0, journal.written)) - counts
    annotated = sum(int(annotation(row, "missing") or 0) for row in here.topic.rows)
    assert annotated == here.missing == lost.total() > 0
