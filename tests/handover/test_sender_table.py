"""The table of a listener's senders: exact counts through kills, bounded, and each sender's own rhythm."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.handover import sender_reading, sender_table
from penstock.handover.sender_reading import Senders, read_senders
from penstock.handover.sender_table import (
    ACCEPTED,
    COUNT_NAMES,
    FEW_SENDERS,
    FILE_BYTES,
    HOLE,
    HOST_OTHERS,
    MAX_SENDERS,
    NAME_BYTES,
    OTHERS,
    ROWS,
    Arrivals,
    SenderTable,
    distinct_senders,
    named_arrivals,
    sender_counts,
    text_identity,
    text_names,
    with_losses,
)

NOW_US = 1_800_000_000_000_000


class Clock:
    """A monotonic clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Listener:
    """A table whose frames are written at once."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock, self.position = folder / "web.senders", Clock(), 0
        self.table = SenderTable(self.path, -1, self.clock)

    def hear(self, *names: str, times: int = 1, after: float = 0.0, frame: bool = True) -> None:
        for _ in range(times):
            self.clock.now += after
            self.stage(*names)
            if frame:
                self.table.confirm(self.position)
            self.position += 32

    def stage(self, *names: str) -> None:
        counts = {name: sender_counts(1)[0] for name in names}
        for name in names:
            counts[name][ACCEPTED] += 1
        self.table.stage(named_arrivals(counts), self.position, NOW_US + int(self.clock.now * 1e6))

    def restart(self, last_frame: int) -> None:
        self.table = SenderTable(self.path, last_frame, self.clock)

    def senders(self) -> Senders:
        self.table.tick()
        senders = read_senders(self.path)
        assert senders is not None
        return senders

    def accepted(self) -> dict[str, int]:
        return accepted_in(self.path)

    def names(self, condition: Callable[[Senders], Any]) -> list[str]:
        senders = self.senders()
        return [senders.name(index) for index in np.flatnonzero(condition(senders))]


def names_in(path: Path) -> list[str]:
    senders = read_senders(path)
    assert senders is not None
    return [senders.name(index) for index in range(len(senders.kinds))]


def accepted_in(path: Path) -> dict[str, int]:
    names, senders = names_in(path), read_senders(path)
    assert senders is not None
    return {name: int(senders.counts[index, ACCEPTED]) for index, name in enumerate(names) if senders.first[index]}


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    return Listener(tmp_path)


def test_table_counts_each_sender_over_rounds_and_restarts(listener: Listener) -> None:
    listener.hear("b", "a")
    listener.hear("b", times=2)
    listener.restart(listener.position - 32)
    listener.hear("c", "b")
    assert listener.accepted() == {"a": 1, "b": 4, "c": 1}
    senders = listener.senders()
    assert (senders.first[1:] <= senders.last[1:]).all()


@pytest.mark.parametrize("senders", [FEW_SENDERS, FEW_SENDERS + 1, 1000])
def test_rounds_of_many_senders_count_messages_and_losses(listener: Listener, senders: int) -> None:
    names = [f"10.0.{number // 256}.{number % 256}" for number in range(senders)]
    listener.hear(*names, times=2)
    counts = {name: sender_counts(1)[0] for name in names}
    counts[names[7]][:] = range(10, 10 + len(COUNT_NAMES))
    listener.table.stage(named_arrivals(counts), listener.position, NOW_US)
    listener.table.confirm(listener.position)
    assert listener.accepted() == {name: 12 if name == names[7] else 2 for name in names}
    table = listener.senders()
    (row,) = [index for index in range(len(table.kinds)) if table.name(index) == names[7]]
    assert table.counts[row].tolist() == [12, *range(11, 10 + len(COUNT_NAMES))]
    assert table.counts.sum() == 2 * senders + sum(range(10, 10 + len(COUNT_NAMES)))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=60))
def test_distinct_senders_are_those_of_numpy(identities: list[int]) -> None:
    distinct, amounts = distinct_senders(np.array(identities, np.uint32))
    expected = np.unique(np.array(identities, np.uint64), return_counts=True)
    assert (distinct.tolist(), amounts.tolist()) == (expected[0].tolist(), expected[1].tolist())


class Recorder:
    """An array of the table that copies the file after each store, as a kill would leave it."""

    def __init__(self, array: Any, copy: Callable[[], None]) -> None:
        self._array, self._copy = array, copy

    def __getitem__(self, index: Any) -> Any:
        return self._array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        # Half of the elements first: a kill may also hit within a store.
        rows = np.atleast_1d(index)
        self._array[rows[: len(rows) // 2]] = np.broadcast_to(value, len(rows))[: len(rows) // 2]
        self._copy()
        self._array[index] = value
        self._copy()


@pytest.mark.survives("log buffer", "SIGKILL")
def test_a_kill_at_any_moment_counts_a_round_exactly_if_its_frame_is_written(listener: Listener) -> None:
    listener.hear("a", "b", "c", times=3)
    copies: list[Path] = []

    def copy() -> None:
        copies.append(listener.path.with_suffix(f".{len(copies)}"))
        shutil.copy(listener.path, copies[-1])

    sections = listener.table._sections
    for name in ("stable", "newer", "marks"):
        setattr(sections, name, Recorder(getattr(sections, name), copy))
    listener.stage("a", "b", "d")
    assert len(copies) == 10
    previous, written = {"a": 3, "b": 3, "c": 3}, {"a": 4, "b": 4, "c": 3, "d": 1}
    for path in copies:
        SenderTable(path, listener.position - 32, listener.clock)
        assert {name: count for name, count in accepted_in(path).items() if count} == previous
    # The frame can only be written after the last store.
    shutil.copy(listener.path, copies[0])
    SenderTable(copies[0], listener.position, listener.clock)
    assert accepted_in(copies[0]) == written
    assert listener.accepted() == {**previous, "d": 0}  # not confirmed yet


@pytest.mark.survives("log buffer", "SIGKILL")
def test_a_kill_before_the_first_frame_of_a_log_buffer_counts_nothing(listener: Listener) -> None:
    listener.stage("a")
    assert listener.accepted() == {"a": 0}
    listener.restart(-1)
    assert listener.accepted() == {"a": 0}
    listener.hear("a")
    assert listener.accepted() == {"a": 1}


class Interruption:
    """Values of an array, between whose reads the writer continues."""

    def __init__(self, array: Any, interrupt: Callable[[], None]) -> None:
        self._array, self._interrupt = array, interrupt

    def __getitem__(self, index: Any) -> Any:
        self._interrupt()
        return self._array[index].copy()


@pytest.mark.parametrize("rounds", [0, 1])
def test_rows_that_change_during_a_copy_are_copied_again(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    listener.hear("a", "b")
    steps = [*[listener.hear] * rounds, listener.stage]

    def interrupt() -> None:
        while steps:
            steps.pop(0)("a")

    class Interrupted(sender_table.Sections):
        def __init__(self, memory: Any) -> None:
            super().__init__(memory)
            self.halves: Any = Interruption(self.halves, interrupt)

    monkeypatch.setattr(sender_reading, "Sections", Interrupted)
    senders = read_senders(listener.path)
    assert senders is not None
    # The last round is not published.
    assert senders.counts[1:, ACCEPTED].tolist() == [1 + rounds, 1]


def test_row_that_is_free_during_a_copy_has_no_sender(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    listener.hear("a", "b")

    class Freed(sender_table.Sections):
        def __init__(self, memory: Any) -> None:
            super().__init__(memory)
            # The first row is free when it is copied, and not when rows are listed.
            freed = np.where(np.arange(len(self.ids)) == 1, 0, self.ids)
            self.ids: Any = Interruption(self.ids, lambda: setattr(self, "ids", freed))

    monkeypatch.setattr(sender_reading, "Sections", Freed)
    assert [*accepted_in(listener.path).values()] == [1]


def test_counts_of_a_frame_that_was_not_written_are_discarded(listener: Listener) -> None:
    listener.hear("a")
    listener.stage("a")
    listener.table.discard()
    listener.hear("a")
    assert listener.accepted() == {"a": 2}


def test_the_smallest_senders_beyond_the_limit_are_summed(listener: Listener) -> None:
    listener.hear("large", times=5)
    names = [f"sender {number}" for number in range(3 * MAX_SENDERS // 2)]
    for begin in range(0, len(names), 700):
        listener.hear(*names[begin : begin + 700])
    accepted = listener.accepted()
    assert sum(accepted.values()) == 5 + len(names)
    assert accepted["large"] == 5
    assert accepted[OTHERS] >= len(names) - ROWS
    assert MAX_SENDERS <= len(accepted) <= ROWS
    listener.restart(listener.position - 32)
    listener.hear("sender 1", "large")
    assert sum(listener.accepted().values()) == 7 + len(names)


def test_more_new_senders_in_a_round_than_rows_lose_no_count(listener: Listener) -> None:
    names = [f"sender {number}" for number in range(ROWS + 5)]
    listener.hear(*names)
    listener.hear(*names[-9:])
    accepted = listener.accepted()
    assert sum(accepted.values()) == len(names) + 9
    assert accepted[OTHERS] >= 6


def test_names_of_one_identity_share_a_row(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_table, "text_identity", lambda text, key=0: 7)
    listener.hear("a", "b")
    assert listener.accepted() == {"a": 2}


def test_names_that_look_alike_share_a_row(listener: Listener) -> None:
    begin = "x" * (NAME_BYTES - 1)
    listener.hear(f"{begin}\u00e91", f"{begin}\u00e92", "web\0", "web")
    assert listener.accepted() == {begin: 2, "web": 2}


def test_host_with_the_name_of_the_others_is_shown_apart(listener: Listener) -> None:
    listener.hear(OTHERS)
    assert listener.accepted() == {HOST_OTHERS: 1}


def test_identities_of_a_table_depend_on_its_own_key(tmp_path: Path) -> None:
    first, second = (SenderTable(tmp_path / name, -1) for name in ("a", "b"))
    assert text_identity("web", first.hash_key) != text_identity("web", second.hash_key)
    assert SenderTable(tmp_path / "a", -1).hash_key == first.hash_key


def test_senders_with_reserved_identities_are_counted(listener: Listener) -> None:
    names = {0: "0.0.0.0", 2**64 - 1: "last", 5: "other"}
    identities = np.array(list(names), np.uint64)
    for _ in range(2):
        arrivals = Arrivals(
            identities,
            sender_counts(3) + 1,
            3,
            lambda wanted: text_names([names[identity] for identity in wanted.tolist()]),
        )
        listener.table.stage(arrivals, listener.position, NOW_US)
        listener.table.confirm(listener.position)
        listener.position += 32
        listener.restart(listener.position - 32)
    assert listener.accepted() == dict.fromkeys(names.values(), 2)


def test_losses_of_a_sender_that_is_silent_move_neither_its_time_nor_make_it_new(listener: Listener) -> None:
    listener.hear("a")
    last = listener.senders().last.tolist()
    listener.clock.now += 9
    losses = {("hole", text_identity("a")): 2, ("hole", text_identity("unknown")): 1}
    listener.table.stage(with_losses(named_arrivals({}), losses), listener.position, NOW_US * 2)
    listener.table.confirm(listener.position)
    senders = listener.senders()
    assert senders.counts[:, HOLE].tolist() == [1, 2]
    assert senders.last[1] == last[1]
    assert senders.silence[1] == pytest.approx(9)


def test_a_steady_sender_that_stops_is_silent_after_ten_usual_pauses(listener: Listener) -> None:
    listener.hear("minute", times=11, after=60.0)
    listener.hear("second", "minute", times=400, after=1.0)
    listener.hear("once")
    listener.clock.now += 59
    assert listener.names(Senders.is_silent) == []
    listener.clock.now += 2
    assert listener.names(Senders.is_silent) == ["second"]
    listener.clock.now += 500
    assert listener.names(Senders.is_silent) == ["second"]
    listener.clock.now += 50
    assert listener.names(Senders.is_silent) == ["minute", "second"]
    assert listener.names(lambda senders: senders.is_silent(300.0)) == ["minute", "second", "once"]
    listener.hear("second")
    assert listener.names(Senders.is_silent) == ["minute"]


def test_bursts_are_no_rhythm(listener: Listener) -> None:
    for _ in range(20):
        listener.hear("burst", after=60.0)
        listener.hear("burst", times=30, after=0.01)
    listener.clock.now += 500
    assert listener.names(Senders.is_silent) == []


@pytest.mark.survives("log buffer", "wrong clock")
def test_an_outage_of_the_receiver_or_of_the_clock_makes_no_sender_silent(listener: Listener) -> None:
    listener.hear("a", times=600, after=1.0)
    listener.clock.now += 30
    listener.table.tick()
    listener.clock.now = 5.0  # days later, after a restart of the machine
    listener.restart(listener.position - 32)
    listener.clock.now += 29
    assert listener.names(Senders.is_silent) == []
    listener.clock.now += 2
    assert listener.names(Senders.is_silent) == ["a"]


def test_a_silence_does_not_become_the_rhythm(listener: Listener) -> None:
    listener.hear("a", times=600, after=1.0)
    listener.hear("a", after=3600.0)
    assert listener.senders().pause[1] == pytest.approx(2.0)


def test_a_sender_is_new_for_an_hour_once_the_listener_was_heard_for_an_hour(listener: Listener) -> None:
    listener.hear("first")
    listener.hear("second", after=3599.0)
    assert listener.names(Senders.is_new) == []
    listener.hear("third", after=2.0)
    assert listener.names(Senders.is_new) == ["third"]
    listener.restart(listener.position - 32)
    listener.clock.now += 3598
    assert listener.names(Senders.is_new) == ["third"]
    listener.clock.now += 3
    assert listener.names(Senders.is_new) == []


@given(st.binary(max_size=300), st.integers(0, FILE_BYTES - 300), st.booleans())
def test_arbitrary_file_is_a_table_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, new: bool
) -> None:
    path = tmp_path_factory.mktemp("table") / "web.senders"
    if new:
        path.write_bytes(data)
    else:
        SenderTable(path, -1)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
    if (senders := read_senders(path)) is not None:
        assert names_in(path)
        senders.is_silent()
    table = SenderTable(path, -1)
    table.stage(named_arrivals({"a": sender_counts(1)[0] + 1}), 0, NOW_US)
    table.confirm(0)
    assert "a" in names_in(path)


def test_columns_have_the_names_of_the_counts() -> None:
    columns = {name: getattr(sender_table, name.upper()) for name in COUNT_NAMES}
    assert columns == {name: index for index, name in enumerate(COUNT_NAMES)}
