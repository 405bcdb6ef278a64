"""The forwarder: each message has one fate in its account, regardless of the handler's behaviour and of kills."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Origin
from penstock.handover.dropped_frames import DroppedFrameCounts, Move
from penstock.handover.heartbeat import HEARTBEAT
from penstock.handover.paths import LOG, account_file, buffer_file, position_file, state_file
from penstock.handover.positions.accounts import Accounts
from penstock.handover.state_page import CAPACITY, HALF_HEADER, SKIPPED, STATISTICS, StatePage
from penstock.ledger.balance import Route
from penstock.sinks import Delivered
from penstock.sinks import forwarder as forwarding
from penstock.supervise.waiting_frames import drop_waiting_frames
from tests.ingest.ingest_life import Life
from tests.sinks.sinks_life import (
    RecordingHandler,
    delivery_of,
    forward,
    publish,
    start,
    start_without_handler,
    unaccounted,
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "FIRST_RETRY_DELAY_S", 0.001)


def route(folder: Path) -> Route:
    return delivery_of(folder).route()


def test_handler_gets_messages_in_order(tmp_path: Path) -> None:
    life, handler = start(tmp_path), RecordingHandler()
    publish(life, b"one", b"two")
    publish(life)
    publish(life, b"three")
    forward(tmp_path, handler)
    assert handler.payloads == [b"one", b"two", b"three"]
    assert {(origin.source, origin.codec) for origin in handler.origins} == {("events", "plog")}
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.delivered, final_route.in_buffer, final_route.unaccounted) == (3, 3, 0, 0)


def test_undelivered_messages_count_as_in_buffer(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    assert (route(tmp_path).accepted, route(tmp_path).in_buffer) == (2, 2)
    forward(tmp_path, RecordingHandler())
    publish(life, b"three")
    assert (route(tmp_path).accepted, route(tmp_path).in_buffer, unaccounted(tmp_path)) == (3, 1, 0)


def test_batch_that_raises_is_retried_and_then_counted_as_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life, tries = start(tmp_path), []

    def poison(payloads: list[bytes]) -> None:
        if b"poison" in payloads:
            tries.append(1)
            raise ValueError("cannot take it")

    handler = RecordingHandler(poison)
    publish(life, b"good")
    forward(tmp_path, handler)
    publish(life, b"poison")
    forward(tmp_path, handler)
    publish(life, b"good too")
    forward(tmp_path, handler)
    assert len(tries) == 3
    assert handler.payloads == [b"good", b"good too"]
    assert caplog.messages == ["the handler raised ValueError: cannot take it"] * 3
    assert (route(tmp_path).delivered, route(tmp_path).handler_failed, unaccounted(tmp_path)) == (2, 1, 0)


class FixedOutcome:
    """A handler that reports a fixed outcome."""

    def __init__(self, outcome: Delivered) -> None:
        self.outcome = outcome

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "fates"),
    [
        (Delivered(1, failed=1, dropped=2), (1, 2, 1)),  # the message without an outcome has failed
        (Delivered(0, dropped=3), (0, 3, 1)),
        (Delivered(0), (0, 0, 4)),
        (Delivered(5), (0, 0, 4)),  # more than were delivered: the whole report is invalid
        (Delivered(-1, failed=5), (0, 0, 4)),
    ],
)
def test_messages_that_the_handler_does_not_report_have_failed(
    tmp_path: Path, outcome: Delivered, fates: tuple[int, int, int]
) -> None:
    life = start(tmp_path)
    publish(life, b"a", b"b", b"c", b"d")
    forward(tmp_path, FixedOutcome(outcome))
    final = route(tmp_path)
    assert (final.delivered, final.policy_drop, final.handler_failed, final.unaccounted) == (*fates, 0)


class Killed(BaseException):
    """The effect of SIGKILL: nothing of the process continues."""


def raise_killed(payloads: list[bytes]) -> None:
    raise Killed


def test_batch_of_a_killed_handler_is_delivered_again_and_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    with pytest.raises(Killed):
        forward(tmp_path, RecordingHandler(raise_killed))
    assert (route(tmp_path).in_buffer, unaccounted(tmp_path)) == (2, 0)
    handler = RecordingHandler()
    forward(tmp_path, handler)
    assert handler.payloads == [b"one", b"two"]
    assert "gets the batch again" in caplog.messages[0]
    assert (route(tmp_path).delivered, unaccounted(tmp_path)) == (2, 0)


def test_batch_that_kills_its_handler_each_time_has_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    for _ in range(3):
        with pytest.raises(Killed):
            forward(tmp_path, RecordingHandler(raise_killed))
    publish(life, b"three")
    handler = RecordingHandler()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    assert "counted as failed" in caplog.messages[-1]
    assert (route(tmp_path).delivered, route(tmp_path).handler_failed, unaccounted(tmp_path)) == (1, 2, 0)


def test_handler_that_lags_by_the_whole_buffer_misses_messages(tmp_path: Path) -> None:
    life = start(tmp_path)
    log, forwarder_reader = life.readers
    for number in range(300):
        publish(life, b"%d" % number + b"x" * 1000)
        log.position.position = life.publication.position  # the log keeps up
    assert log.position.floor == 0
    assert forwarder_reader.position.floor > 0
    assert unaccounted(tmp_path) == 0
    handler = RecordingHandler()
    forward(tmp_path, handler)
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.delivered + final_route.policy_drop) == (300, 300)
    assert final_route.policy_drop > 100
    assert handler.payloads[-1].startswith(b"299")
    assert not life.publisher.owes


@pytest.mark.parametrize("spoilt", [(b"spoil me", b"Xpoil me"), (b'"accepted":2', b'"accepted":7')])
def test_messages_of_a_damaged_frame_are_corrupt(
    tmp_path: Path, spoilt: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    publish(life, b"spoil me", b"me too")
    publish(life, b"last")
    path = buffer_file(tmp_path, "events")
    index = path.read_bytes().index(spoilt[0])
    with path.open("r+b") as file:
        file.seek(index)
        file.write(spoilt[1])
    handler = RecordingHandler()
    forward(tmp_path, handler)
    assert "cannot be read" in caplog.messages[0]
    assert handler.payloads == [b"one", b"last"]
    assert (route(tmp_path).delivered, route(tmp_path).corrupt, unaccounted(tmp_path)) == (2, 2, 0)


def test_skipped_damaged_frames_are_corrupt(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"spoil me", b"me too")
    path = buffer_file(tmp_path, "events")
    data = path.read_bytes()
    head = data.rindex(b"\xff\xff\xff\xff", 0, data.index(b"spoil me"))
    with path.open("r+b") as file:
        file.seek(head)
        file.write(b"\0\0\0\0")  # its metadata is unreadable too
    for number in range(100):
        publish(life, b"%d" % number + b"x" * 1000)
        life.readers[0].position.position = life.publication.position
    assert unaccounted(tmp_path) == 0
    forward(tmp_path, RecordingHandler())
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.corrupt, final_route.unaccounted) == (102, 2, 0)
    assert final_route.policy_drop > 0


def test_lost_position_counts_no_message_twice(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    forward(tmp_path, RecordingHandler())
    life.end()
    position_file(tmp_path, "events", "mine").write_bytes(b"garbage")
    heir = start(tmp_path)
    publish(heir, b"three")
    handler = RecordingHandler()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    assert (route(tmp_path).delivered, unaccounted(tmp_path)) == (3, 0)


def damage_newest_account(folder: Path) -> None:
    """Zero a byte in the account that was written last."""
    path = account_file(folder, "events", "mine")
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    newest = max((HALF_HEADER.unpack_from(data, half)[0], half) for half in (0, CAPACITY))[1]
    data[newest + HALF_HEADER.size + 5] = 0
    path.write_bytes(data)


def lose_account(folder: Path) -> None:
    path = account_file(folder, "events", "mine")
    if path.exists():
        path.write_bytes(bytes(path.stat().st_size))


def lose_position(folder: Path) -> None:
    position_file(folder, "events", "mine").write_bytes(b"garbage")


def lose_all_positions(folder: Path) -> None:
    for reader in (LOG, "mine"):
        position_file(folder, "events", reader).write_bytes(b"garbage")


def lose_buffer(folder: Path) -> None:
    buffer_file(folder, "events").write_bytes(b"garbage")


DAMAGES: dict[str, list[Callable[[Path], None]]] = {
    "the position": [lose_position],
    "the buffer": [lose_buffer],
    "the buffer and all positions": [lose_buffer, lose_all_positions],
    "the newest account": [damage_newest_account],
    "the position and the newest account": [lose_position, damage_newest_account],
    "all accounts": [lose_account],
}


UNKNOWN_TOTAL = ("all accounts", "the buffer and all positions")
"""Damages after which no file has the number of messages."""


def publish_lagging(folder: Path, life: Life, frames: int) -> None:
    """Publish frames with which only the log keeps up."""
    for _ in range(frames):
        publish(life, b"x" * 1500)
        life.readers[0].position.position = life.publication.position


def restart_damaged(folder: Path, life: Life, damage_name: str) -> Life:
    """End all processes, damage files, and start the receiver again."""
    life.end()
    for damage in DAMAGES[damage_name]:
        damage(folder)
    return start(folder)


@pytest.mark.parametrize("damage_name", DAMAGES)
@pytest.mark.parametrize("between", ["idle", "missing messages", "killed, and missing messages"])
def test_dropped_messages_are_not_delivered_after_any_damage(tmp_path: Path, damage_name: str, between: str) -> None:
    life, handler = start(tmp_path), RecordingHandler()
    publish_lagging(tmp_path, life, 150)
    forward(tmp_path, handler)
    publish_lagging(tmp_path, life, 5)
    if between == "idle":
        forward(tmp_path, handler)
    elif between == "killed, and missing messages":
        with pytest.raises(Killed):
            forward(tmp_path, RecordingHandler(raise_killed))
    publish_lagging(tmp_path, life, 0 if between == "idle" else 150)
    heir = restart_damaged(tmp_path, life, damage_name)
    publish_lagging(tmp_path, heir, 1)
    forward(tmp_path, handler)
    final_route = route(tmp_path)
    assert final_route.policy_drop > 0
    assert (final_route.in_buffer, final_route.unaccounted) == (0, 0)
    assert damage_name in UNKNOWN_TOTAL or final_route.accepted == (156 if between == "idle" else 306)


def test_route_closes_after_a_power_failure_that_spares_only_its_position(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish_lagging(tmp_path, life, 10)
    forward(tmp_path, RecordingHandler())
    life.end()
    for lost in (
        position_file(tmp_path, "events", LOG),
        state_file(tmp_path, "events"),
        buffer_file(tmp_path, "events"),
    ):
        lost.unlink()
    lose_account(tmp_path)
    heir = start(tmp_path)
    forward(tmp_path, RecordingHandler())
    publish_lagging(tmp_path, heir, 150)
    forward(tmp_path, RecordingHandler())
    heir.end()
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.corrupt, final_route.unaccounted) == (150, 0, 0)
    assert final_route.policy_drop > 0


def test_route_closes_before_a_forwarder_sees_what_a_power_failure_took(tmp_path: Path) -> None:
    life, account = start(tmp_path), account_file(tmp_path, "events", "mine")
    publish_lagging(tmp_path, life, 10)
    forward(tmp_path, RecordingHandler())
    spared = account.read_bytes()
    publish_lagging(tmp_path, life, 10)
    forward(tmp_path, RecordingHandler())
    life.end()
    account.write_bytes(spared)
    heir = start(tmp_path)
    publish_lagging(tmp_path, heir, 150)
    before = route(tmp_path)
    assert (before.accepted, before.delivered, before.corrupt, before.unaccounted) == (170, 10, 10, 0)
    assert before.policy_drop > 0
    forward(tmp_path, RecordingHandler())
    after = route(tmp_path)
    assert (after.accepted, after.corrupt, after.in_buffer, after.unaccounted) == (170, 10, 0, 0)


def test_writer_killed_while_it_skips_frames_leaves_no_negative_route(tmp_path: Path) -> None:
    life = start(tmp_path)
    page = StatePage(state_file(tmp_path, "events"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DroppedFrameCounts, "confirm_skip", raise_killed)
        with pytest.raises(Killed):
            publish_lagging(tmp_path, life, 150)
    assert page.read(SKIPPED)["skip"], "where it was killed"
    life.end()
    forward(tmp_path, RecordingHandler())
    assert unaccounted(tmp_path) == 0
    heir = start(tmp_path)
    publish_lagging(tmp_path, heir, 1)
    forward(tmp_path, RecordingHandler())
    final_route = route(tmp_path)
    assert final_route.policy_drop > 0
    assert (final_route.in_buffer, final_route.unaccounted) == (0, 0)


@pytest.mark.parametrize("has_begun", [True, False])
def test_writer_killed_before_it_moves_a_reader_further_leaves_no_corrupt_messages(
    tmp_path: Path, has_begun: bool
) -> None:
    life, handler = start(tmp_path), RecordingHandler()
    publish_lagging(tmp_path, life, 10)
    if has_begun:
        forward(tmp_path, handler)
    publish_lagging(tmp_path, life, 150)
    position = life.readers[1].position
    floor = position.floor
    assert position.was_advanced, "the next move is another one"
    # The state after the floor mark of the next move, and before its floor.
    page = StatePage(state_file(tmp_path, "events"))
    move, counts = Move(floor, floor + 4096, position.floor_mark + 7), {"60@policy_drop": 7}
    DroppedFrameCounts(page, 0, {"mine": floor}).skip("mine", move, counts)
    position.floor_mark = move.mark
    page.close()
    life.end()
    forward(tmp_path, handler)
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.corrupt, final_route.in_buffer) == (160, 0, 0)
    assert (final_route.delivered, final_route.unaccounted) == (len(handler.payloads), 0)


STEP = st.one_of(
    st.integers(1, 30).map(lambda frames: ("publish", frames)),
    st.integers(0, 12).map(lambda step: ("killed", step)),
)
DAMAGE = st.sampled_from(list(DAMAGES)).map(lambda name: ("damaged", name))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP | DAMAGE, max_size=14))
def test_balance_closes_after_any_damage(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life, handler = start(folder), RecordingHandler()
        for kind, argument in [*steps, ("publish", 1)]:
            if kind == "publish":
                publish_lagging(folder, life, argument)
            elif kind == "killed":
                forward_until_killed(folder, handler, Steps(argument))
            else:
                life = restart_damaged(folder, life, argument)
        forward(folder, handler)
        life.end()
        final_route = route(folder)
        assert (final_route.in_buffer, final_route.unaccounted) == (0, 0)


def test_closed_forwarder_leaves_no_file_open(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    gc.collect()
    gc.disable()  # the files are closed by `close`, not by the collector
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            forward(tmp_path, RecordingHandler())
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
    life.end()


class Steps:
    """Counts the steps of a forwarder that others can see, and kills it before a chosen step."""

    def __init__(self, last: int) -> None:
        self.remaining = last

    def next_step(self, *_: object) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise Killed


def forward_until_killed(folder: Path, handler: RecordingHandler, steps: Steps) -> None:
    """Run a forwarder whose writes and deliveries are steps, until it is killed."""
    write = Accounts.write

    def stepwise(accounts: Accounts, account: Any) -> Any:
        steps.next_step()
        written = write(accounts, account)
        steps.next_step()
        return written

    handler._before = steps.next_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Accounts, "write", stepwise)
        with contextlib.suppress(Killed):
            forward(folder, handler)
    handler._before = lambda payloads: None


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_each_message_has_one_fate_after_any_kills_and_lags(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life, handler, sent = start(folder), RecordingHandler(), 0
        for kind, number in steps:
            if kind == "publish":
                for _ in range(number):
                    publish(life, b"%d" % sent, b"x" * 1500)
                    sent += 2
                    life.readers[0].position.position = life.publication.position
            else:
                forward_until_killed(folder, handler, Steps(number))
            assert unaccounted(folder) == 0
        forward(folder, handler)
        life.end()
        final_route = route(folder)
        assert (final_route.accepted, final_route.in_buffer, final_route.unaccounted) == (sent, 0, 0)
        assert final_route.delivered <= len(handler.payloads)


def test_route_of_a_recounting_listener_gains_nothing_at_a_start(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish_lagging(tmp_path, life, 10)
    forward(tmp_path, RecordingHandler())
    life.end()
    accounts = Accounts(tmp_path, "events", "mine")
    account = accounts.read()
    ((fate, count),) = account.fates.items()
    accounts.write(replace(account, base=-4, fates={fate: count + 4}))
    accounts.close()
    for starts in range(1, 4):
        heir = start(tmp_path)
        publish_lagging(tmp_path, heir, 1)
        forward(tmp_path, RecordingHandler())
        heir.end()
        final_route = route(tmp_path)
        assert (final_route.delivered, final_route.corrupt, final_route.unaccounted) == (14 + starts, 0, 0)


def test_returning_handler_does_not_advance_a_buffer_created_without_it(tmp_path: Path) -> None:
    life = start(tmp_path)
    for _ in range(200):
        publish_lagging(tmp_path, life, 1)
        forward(tmp_path, RecordingHandler())
    life.end()
    drop_waiting_frames(tmp_path, "events", ["mine"])
    lose_buffer(tmp_path)
    lose_all_positions(tmp_path)
    alone = start_without_handler(tmp_path)
    for _ in range(5):
        publish(alone, b"later")
    alone.end()
    heir = start(tmp_path)
    assert [payloads for payloads, _ in heir.frames()] == [[b"later"]] * 5
    heir.end()


def test_messages_between_two_removals_of_a_handler_are_not_its_own(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    forward(tmp_path, RecordingHandler())
    life.end()
    drop_waiting_frames(tmp_path, "events", ["mine"])
    for _ in range(2):
        alone = start_without_handler(tmp_path)
        publish(alone, b"two", b"three")
        alone.end()
        returned = start(tmp_path)  # and removed again before its forwarder starts
        publish(returned, b"four")
        returned.end()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "unlink", lambda path, missing_ok=False: raise_killed([]))
            with pytest.raises(Killed):
                drop_waiting_frames(tmp_path, "events", ["mine"])
        drop_waiting_frames(tmp_path, "events", ["mine"])
        ended_route = route(tmp_path)
        assert (ended_route.in_buffer, ended_route.unaccounted) == (0, 0)
    heir = start(tmp_path)
    publish(heir, b"five")
    forward(tmp_path, RecordingHandler())
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.delivered, final_route.policy_drop) == (4, 2, 2)
    assert (final_route.corrupt, final_route.unaccounted) == (0, 0)


@pytest.mark.parametrize("frames", [1, 150], ids=["waiting", "dropped in part"])
def test_handler_that_is_added_again_begins_there_although_its_position_is_damaged(tmp_path: Path, frames: int) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    forward(tmp_path, RecordingHandler())
    for _ in range(2):  # the second time with a renamed position of the first time
        life.end()
        drop_waiting_frames(tmp_path, "events", ["mine"])
        alone = start_without_handler(tmp_path)
        publish(alone, b"away")
        alone.end()
        ended = route(tmp_path)
        added = start(tmp_path)
        publish_lagging(tmp_path, added, frames)
        life = restart_damaged(tmp_path, added, "the position")
        handler = RecordingHandler()
        forward(tmp_path, handler)
        after = route(tmp_path)
        assert {*handler.payloads} == {b"x" * 1500}
        assert after.accepted - ended.accepted == frames
        assert after.delivered - ended.delivered == len(handler.payloads)
        assert after.policy_drop - ended.policy_drop == frames - len(handler.payloads)
        assert (after.corrupt, after.in_buffer, after.unaccounted) == (0, 0, 0)


def test_damaged_end_of_an_account_does_not_continue_the_route(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    forward(tmp_path, RecordingHandler())
    life.end()
    drop_waiting_frames(tmp_path, "events", ["mine"])
    damage_newest_account(tmp_path)
    alone = start_without_handler(tmp_path)
    publish(alone, b"two", b"three")
    alone.end()
    heir = start(tmp_path)
    publish(heir, b"four")
    forward(tmp_path, RecordingHandler())
    final_route = route(tmp_path)
    assert (final_route.accepted, final_route.delivered, final_route.corrupt) == (2, 2, 0)


def beat_s(folder: Path) -> float:
    """Return when the forwarder last beat (CLOCK_MONOTONIC), 0 if never."""
    page = StatePage(account_file(folder, "events", "mine"), texts=2)
    try:
        return float((page.read(STATISTICS) or {HEARTBEAT: {"at_s": 0}})[HEARTBEAT]["at_s"])
    finally:
        page.close()


def test_forwarder_beats_while_its_handler_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "STATISTICS_INTERVAL_S", 0)
    life, beats = start(tmp_path), list[float]()

    def wait_twice(payloads: list[bytes]) -> None:
        for _ in range(2):
            handler.on_wait()
            beats.append(beat_s(tmp_path))

    handler = RecordingHandler(wait_twice)
    publish(life, b"one")
    forward(tmp_path, handler)
    assert 0 < beats[0] < beats[1]
    assert route(tmp_path).delivered == 1
