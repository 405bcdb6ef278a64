"""The forwarder: each message has one fate in its account, whatever the handler does and wherever it is killed."""

from __future__ import annotations

import contextlib
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
from penstock.handover.accounts import Accounts
from penstock.handover.dropped_frames import DroppedFrameCounts
from penstock.handover.paths import LOG, account_file, buffer_file, position_file, state_file
from penstock.handover.state_page import CAPACITY, HALF_HEADER, SKIPPED, StatePage
from penstock.ledger.balance import Route
from penstock.sinks import Delivered
from penstock.sinks import forwarder as forwarding
from penstock.supervise.waiting_frames import see_off
from tests.ingest.ingest_life import Life, live
from tests.sinks.sinks_life import LISTENER, TERM, Taking, forward, publish, standing, start, unaccounted


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.001)


def route(folder: Path) -> Route:
    return standing(folder).route()


def test_a_handler_gets_the_messages_in_their_order(tmp_path: Path) -> None:
    life, handler = start(tmp_path), Taking()
    publish(life, b"one", b"two")
    publish(life)
    publish(life, b"three")
    forward(tmp_path, handler)
    assert handler.payloads == [b"one", b"two", b"three"]
    assert {(origin.source, origin.codec) for origin in handler.origins} == {("events", "plog")}
    found = route(tmp_path)
    assert (found.accepted, found.delivered, found.in_buffer, found.unaccounted) == (3, 3, 0, 0)


def test_what_waits_is_in_the_buffer(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    assert (route(tmp_path).accepted, route(tmp_path).in_buffer) == (2, 2)
    forward(tmp_path, Taking())
    publish(life, b"three")
    assert (route(tmp_path).accepted, route(tmp_path).in_buffer, unaccounted(tmp_path)) == (3, 1, 0)


def test_a_batch_that_raises_is_tried_again_and_then_has_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life, tries = start(tmp_path), []

    def poison(payloads: list[bytes]) -> None:
        if b"poison" in payloads:
            tries.append(1)
            raise ValueError("cannot take it")

    handler = Taking(poison)
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


class Partly:
    """Says what it was told to."""

    def __init__(self, outcome: Delivered) -> None:
        self.outcome = outcome

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "fates"),
    [
        (Delivered(1, failed=1, dropped=2), (1, 2, 1)),  # one is left: it has failed
        (Delivered(0, dropped=3), (0, 3, 1)),
        (Delivered(0), (0, 0, 4)),
        (Delivered(5), (0, 0, 4)),  # more than there were: nothing it says can be true
        (Delivered(-1, failed=5), (0, 0, 4)),
    ],
)
def test_what_a_handler_does_not_account_for_has_failed(
    tmp_path: Path, outcome: Delivered, fates: tuple[int, int, int]
) -> None:
    life = start(tmp_path)
    publish(life, b"a", b"b", b"c", b"d")
    forward(tmp_path, Partly(outcome))
    found = route(tmp_path)
    assert (found.delivered, found.policy_drop, found.handler_failed, found.unaccounted) == (*fates, 0)


class Killed(BaseException):
    """As a SIGKILL: nothing of the process goes on."""


def killed(payloads: list[bytes]) -> None:
    raise Killed


def test_a_batch_in_the_hands_of_a_killed_handler_comes_again_and_counts_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    with pytest.raises(Killed):
        forward(tmp_path, Taking(killed))
    assert (route(tmp_path).in_buffer, unaccounted(tmp_path)) == (2, 0)
    handler = Taking()
    forward(tmp_path, handler)
    assert handler.payloads == [b"one", b"two"]
    assert "gets the batch again" in caplog.messages[0]
    assert (route(tmp_path).delivered, unaccounted(tmp_path)) == (2, 0)


def test_a_batch_that_kills_its_handler_each_time_has_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    for _ in range(3):
        with pytest.raises(Killed):
            forward(tmp_path, Taking(killed))
    publish(life, b"three")
    handler = Taking()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    assert "counted as failed" in caplog.messages[-1]
    assert (route(tmp_path).delivered, route(tmp_path).handler_failed, unaccounted(tmp_path)) == (1, 2, 0)


def test_a_handler_that_lags_by_the_whole_buffer_misses_messages_and_the_log_none(tmp_path: Path) -> None:
    life = start(tmp_path)
    log, mine = life.readers
    for number in range(300):
        publish(life, b"%d" % number + b"x" * 1000)
        log.position.position = life.publication.position  # the log keeps up
    assert log.position.floor == 0
    assert mine.position.floor > 0
    assert unaccounted(tmp_path) == 0
    handler = Taking()
    forward(tmp_path, handler)
    found = route(tmp_path)
    assert (found.accepted, found.delivered + found.policy_drop) == (300, 300)
    assert found.policy_drop > 100
    assert handler.payloads[-1].startswith(b"299")
    assert not life.publisher.owes


@pytest.mark.parametrize("spoilt", [(b"spoil me", b"Xpoil me"), (b'"accepted":2', b'"accepted":7')])
def test_a_frame_that_cannot_be_read_is_corrupt(
    tmp_path: Path, spoilt: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    life = start(tmp_path)
    publish(life, b"one")
    publish(life, b"spoil me", b"me too")
    publish(life, b"last")
    path = buffer_file(tmp_path, "events")
    at = path.read_bytes().index(spoilt[0])
    with path.open("r+b") as file:
        file.seek(at)
        file.write(spoilt[1])
    handler = Taking()
    forward(tmp_path, handler)
    assert "cannot be read" in caplog.messages[0]
    assert handler.payloads == [b"one", b"last"]
    assert (route(tmp_path).delivered, route(tmp_path).corrupt, unaccounted(tmp_path)) == (2, 2, 0)


def test_frames_that_were_skipped_and_could_not_be_read_are_corrupt(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"spoil me", b"me too")
    path = buffer_file(tmp_path, "events")
    data = path.read_bytes()
    head = data.rindex(b"\xff\xff\xff\xff", 0, data.index(b"spoil me"))
    with path.open("r+b") as file:
        file.seek(head)
        file.write(b"\0\0\0\0")  # not even its receipt can be read
    for number in range(100):
        publish(life, b"%d" % number + b"x" * 1000)
        life.readers[0].position.position = life.publication.position
    assert unaccounted(tmp_path) == 0
    forward(tmp_path, Taking())
    found = route(tmp_path)
    assert (found.accepted, found.corrupt, found.unaccounted) == (102, 2, 0)
    assert found.policy_drop > 0


def test_a_lost_position_makes_nothing_count_twice(tmp_path: Path) -> None:
    life = start(tmp_path)
    publish(life, b"one", b"two")
    forward(tmp_path, Taking())
    life.end()
    position_file(tmp_path, "events", "mine").write_bytes(b"garbage")
    heir = start(tmp_path)
    publish(heir, b"three")
    handler = Taking()
    forward(tmp_path, handler)
    assert handler.payloads == [b"three"]
    assert (route(tmp_path).delivered, unaccounted(tmp_path)) == (3, 0)


def damage_newest_account(folder: Path) -> None:
    """A zeroed byte in the account that was written last."""
    path = account_file(folder, "events", "mine")
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    place = max((HALF_HEADER.unpack_from(data, at)[0], at) for at in (0, CAPACITY))[1]
    data[place + HALF_HEADER.size + 5] = 0
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


NOT_ALL_TOLD = ("all accounts", "the buffer and all positions")
"""Nothing is left then that says how many messages there were last."""


def lagged(folder: Path, life: Life, frames: int) -> None:
    """So many frames come, of which the log keeps up with all."""
    for _ in range(frames):
        publish(life, b"x" * 1500)
        life.readers[0].position.position = life.publication.position


def damaged(folder: Path, life: Life, what: str) -> Life:
    """All processes end, ``what`` is damaged, and the receiver begins again."""
    life.end()
    for damage in DAMAGES[what]:
        damage(folder)
    return start(folder)


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("between", ["idle", "missing messages", "killed, and missing messages"])
def test_what_the_writer_dropped_is_not_delivered_too_whatever_is_damaged(
    tmp_path: Path, what: str, between: str
) -> None:
    life, handler = start(tmp_path), Taking()
    lagged(tmp_path, life, 150)
    forward(tmp_path, handler)
    lagged(tmp_path, life, 5)
    if between == "idle":
        forward(tmp_path, handler)
    elif between == "killed, and missing messages":
        with pytest.raises(Killed):
            forward(tmp_path, Taking(killed))
    lagged(tmp_path, life, 0 if between == "idle" else 150)
    heir = damaged(tmp_path, life, what)
    lagged(tmp_path, heir, 1)
    forward(tmp_path, handler)
    found = route(tmp_path)
    assert found.policy_drop > 0
    assert (found.in_buffer, found.unaccounted) == (0, 0)
    assert what in NOT_ALL_TOLD or found.accepted == (156 if between == "idle" else 306)


def test_a_writer_that_is_killed_while_it_moves_a_handler_on_leaves_no_route_negative(tmp_path: Path) -> None:
    life = start(tmp_path)
    page = StatePage(state_file(tmp_path, "events"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DroppedFrameCounts, "confirm_skip", killed)
        with pytest.raises(Killed):
            lagged(tmp_path, life, 150)
    assert page.read(SKIPPED)["skip"], "where it was killed"
    life.end()
    forward(tmp_path, Taking())
    assert unaccounted(tmp_path) == 0
    heir = start(tmp_path)
    lagged(tmp_path, heir, 1)
    forward(tmp_path, Taking())
    found = route(tmp_path)
    assert found.policy_drop > 0
    assert (found.in_buffer, found.unaccounted) == (0, 0)


STEP = st.one_of(
    st.integers(1, 30).map(lambda frames: ("publish", frames)),
    st.integers(0, 12).map(lambda step: ("killed", step)),
)
DAMAGE = st.sampled_from(list(DAMAGES)).map(lambda what: ("damaged", what))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP | DAMAGE, max_size=14))
def test_whatever_is_damaged_meanwhile_the_balance_closes(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life, handler = start(folder), Taking()
        for kind, which in [*steps, ("publish", 1)]:
            if kind == "publish":
                lagged(folder, life, which)
            elif kind == "killed":
                forward_until_killed(folder, handler, Steps(which))
            else:
                life = damaged(folder, life, which)
        forward(folder, handler)
        life.end()
        found = route(folder)
        assert (found.in_buffer, found.unaccounted) == (0, 0)


class Steps:
    """Counts what a forwarder does that others can see, and kills it before one of these."""

    def __init__(self, last: int) -> None:
        self.left = last

    def one(self, *_: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def forward_until_killed(folder: Path, handler: Taking, steps: Steps) -> None:
    """Accounts are written, positions stored and batches delivered one step after the other; then it is killed."""
    write = Accounts.write

    def stepwise(accounts: Accounts, account: Any) -> Any:
        steps.one()
        written = write(accounts, account)
        steps.one()
        return written

    handler._before = steps.one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Accounts, "write", stepwise)
        with contextlib.suppress(Killed):
            forward(folder, handler)
    handler._before = lambda payloads: None


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_killed_anywhere_and_lagging_at_will_each_message_has_one_fate(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life, handler, sent = start(folder), Taking(), 0
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
        found = route(folder)
        assert (found.accepted, found.in_buffer, found.unaccounted) == (sent, 0, 0)
        assert found.delivered <= len(handler.payloads)


def test_a_route_whose_listener_began_to_count_anew_gets_nothing_at_a_start(tmp_path: Path) -> None:
    life = start(tmp_path)
    lagged(tmp_path, life, 10)
    forward(tmp_path, Taking())
    life.end()
    accounts = Accounts(tmp_path, "events", "mine")
    account = accounts.read()
    ((fate, count),) = account.fates.items()
    accounts.write(replace(account, base=-4, fates={fate: count + 4}))
    accounts.close()
    for starts in range(1, 4):
        heir = start(tmp_path)
        lagged(tmp_path, heir, 1)
        forward(tmp_path, Taking())
        heir.end()
        found = route(tmp_path)
        assert (found.delivered, found.corrupt, found.unaccounted) == (14 + starts, 0, 0)


def test_a_handler_that_comes_back_moves_no_buffer_that_was_made_anew_without_it(tmp_path: Path) -> None:
    life = start(tmp_path)
    for _ in range(200):
        lagged(tmp_path, life, 1)
        forward(tmp_path, Taking())
    life.end()
    see_off(tmp_path, "events", ["mine"])
    lose_buffer(tmp_path)
    lose_all_positions(tmp_path)
    alone = live(tmp_path, LISTENER.model_copy(update={"handlers": LISTENER.handlers[:1]}), TERM)
    for _ in range(5):
        publish(alone, b"later")
    alone.end()
    heir = start(tmp_path)
    assert [payloads for payloads, _ in heir.frames()] == [[b"later"]] * 5
    heir.end()
