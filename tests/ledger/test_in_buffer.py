"""Messages in the log buffers: read once, and always equal to a complete recount."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.drain.drain import Drain
from penstock.handover.dropped_frames import Carrier, LostCounts, Move
from penstock.ledger.balance import Within, minutes
from penstock.ledger.book.book import Book
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.in_buffer import BufferedCounts, waiting_for
from penstock.ledger.ledger import Ledger
from penstock.ledger.rebuild import rebuild_balance
from penstock.log import Log
from penstock.logbuffer import Subscription
from penstock.records import EMPTY_BODY, body
from penstock.testing.pipe import wait_until
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig(name="events", protocol="udp")
LOGGED = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)
ELSEWHERE = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "discard"}]})


def publish(life: Life, messages: int) -> None:
    batch = body([b"x" * 900] * messages) if messages else EMPTY_BODY
    counts = Counts({"taken": messages + 1, "seen": messages, "accepted": messages, "empty": 1})
    life.publisher.publish(batch, counts, 0)


def consume_frames(life: Life, frames: int) -> None:
    """Let the log take frames."""
    with Subscription(life.publication.path, life.position.position) as subscription:
        subscription.poll(limit_frames=frames)
        life.position.position = subscription.position


def test_frames_of_one_listener_add_up(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, 2)
    publish(life, 0)
    (counts,) = BufferedCounts(tmp_path).counts(["events", "unknown"]).values()
    assert counts == {"taken": 4, "seen": 2, "accepted": 2, "empty": 2}


def test_messages_not_routed_to_the_log_are_counted_as_such(tmp_path: Path) -> None:
    life = live(tmp_path, ELSEWHERE)
    publish(life, 2)
    (counts,) = BufferedCounts(tmp_path).counts(["events"]).values()
    assert counts["not_routed.log"] == 2


def test_frame_with_a_damaged_document_counts_nothing(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, 1)
    data = life.publication.path.read_bytes()
    with life.publication.path.open("r+b") as file:
        file.seek(data.index(b'{"v":1'))
        file.write(b"spoiled")
    assert BufferedCounts(tmp_path).counts(["events"]) == {}


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("within", [None, minutes(0)])
@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 65_536), make_folder]
)
@pytest.mark.parametrize("name", ["log.position", "discard.position", "logbuffer", "state"])
def test_damaged_file_of_a_listener_hides_no_other(
    tmp_path: Path, name: str, damage: Callable[[Path], object], within: Within
) -> None:
    for listener in ("events", "other"):
        handlers = [{"type": "log", "topic": "in"}, {"type": "discard"}]
        config = ListenerConfig.model_validate({"name": listener, "protocol": "udp", "handlers": handlers})
        publish(live(tmp_path, config), 2)
    damage(tmp_path / f"events.{name}")
    document = rebuild_balance(tmp_path / "topics", tmp_path, ["events", "other"], [], lambda: None, within)
    routes = {(route["source"], route["handler"]): route for route in document["routes"]}
    assert all(routes["other", handler]["in_buffer"] == 2 for handler in ("log", "discard"))
    assert [line for line in document["differs"] if "events" not in line] == []
    if name in ("log.position", "logbuffer"):
        assert "listener events: messages in its log buffer are not counted" in document["differs"][0]


def test_replaced_file_is_counted_again(tmp_path: Path) -> None:
    life, buffered = live(tmp_path, LISTENER), BufferedCounts(tmp_path)
    publish(life, 2)
    assert sum(counts["accepted"] for counts in buffered.counts(["events"]).values()) == 2
    life.end()
    life.publication.path.write_bytes(b"garbage")
    heir = live(tmp_path, LISTENER)
    publish(heir, 3)
    assert sum(counts["accepted"] for counts in buffered.counts(["events"]).values()) == 3


def test_log_buffer_that_cannot_be_read_keeps_its_counts_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, 2)
    buffered = BufferedCounts(tmp_path)
    before = buffered.counts(["events"])
    path = life.publication.path
    path.rename(tmp_path / "away")
    path.mkdir()
    assert [buffered.counts(["events"]) for _ in range(2)] == [before, before]
    assert len(caplog.messages) == 1  # for two calls
    assert BufferedCounts(tmp_path).counts(["events"]) == {}
    rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, ["events"], [], lambda: None)
    (line,) = rebuilt["differs"]
    assert line.startswith("listener events: messages in its log buffer are not counted, because it cannot be read: ")
    path.rmdir()
    (tmp_path / "away").rename(path)
    publish(life, 1)
    (counts,) = buffered.counts(["events"]).values()
    assert counts["accepted"] == 3


def drain(folder: Path, log: Log) -> None:
    thread = Drain(LISTENER.name, folder, log, None)
    thread.stop()
    thread.run()


def counted(ledger: Ledger) -> tuple[int, int, int]:
    """Return accepted messages, taken datagrams, and what is unaccounted for on the way to the log."""
    balance = ledger.balance()
    (listener,) = balance.listeners
    return listener.counts["accepted"], listener.counts["taken"], sum(route.unaccounted for route in balance.routes)


@pytest.mark.parametrize("listener", [LOGGED, ELSEWHERE], ids=["logged", "elsewhere"])
def test_counts_do_not_decrease_when_frames_are_stored_during_a_balance(
    tmp_path: Path, listener: ListenerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(tmp_path, listener)
    publish(life, 2)
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        ledger = Ledger(log, tmp_path, ["events"])
        drain(tmp_path, log)
        publish(life, 3)
        publish(life, 0)
        read = Book.summary

        def store_afterwards(book: Book, *, with_landed: bool = False) -> BookPages:
            pages = read(book, with_landed=with_landed)
            drain(tmp_path, log)
            return pages

        # Appends are answered before their batches enter the book.
        wait_until(lambda: counted(ledger) == (5, 8, 0))
        monkeypatch.setattr(Book, "summary", store_afterwards)
        assert counted(ledger) == (5, 8, 0)


@pytest.mark.parametrize("listener", [LOGGED, ELSEWHERE], ids=["logged", "elsewhere"])
def test_frames_are_counted_once_while_the_log_takes_them(tmp_path: Path, listener: ListenerConfig) -> None:
    life, readings, positions = live(tmp_path, listener), [], []
    publish(life, 2)
    publish(life, 0)
    publish(life, 3)
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        ledger = Ledger(log, tmp_path, ["events"])

        def read_balance(*_: object) -> None:
            """Read between the entry in the book and the move of the reader's position."""
            positions.append(life.position.position)
            readings.append(counted(ledger))

        readings.append(counted(ledger))
        log.observe(read_balance)
        drain(tmp_path, log)
        # Appends are answered before their batches enter the book: until then a reading is too small.
        wait_until(lambda: counted(ledger) == readings[0])
    assert set(positions) == {0}
    assert readings[0] == max(readings) == (5, 8, 0)


@pytest.mark.survives("ledger", "SIGKILL")
@pytest.mark.parametrize("listener", [LOGGED, ELSEWHERE], ids=["logged", "elsewhere"])
def test_stored_frames_that_the_log_has_yet_to_pass_are_counted_once(tmp_path: Path, listener: ListenerConfig) -> None:
    life = live(tmp_path, listener)
    publish(life, 2)
    publish(life, 0)
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        drain(tmp_path, log)
    life.position.position = 0  # killed between storing and moving on
    publish(life, 3)
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        ledger = Ledger(log, tmp_path, ["events"])
        assert counted(ledger) == (5, 8, 0)
        now = ledger.balance().document()
        rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, ["events"], [], lambda: now)
        assert rebuilt == now | {"differs": []}
        drain(tmp_path, log)
        assert counted(ledger) == (5, 8, 0)


@pytest.mark.parametrize("is_stored", [False, True])
def test_counts_that_a_lost_frame_has_carried_into_the_log_are_counted_once(tmp_path: Path, is_stored: bool) -> None:
    life = live(tmp_path, LOGGED)
    publish(life, 2)
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        drain(tmp_path, log)
    position, missed = life.publication.position, life.publisher._missed
    lost = Carrier("earlier" if not is_stored else life.publisher._epoch, 0, "in")
    dropped = {f"60@{name}": 10 for name in ("taken", "seen", "accepted", "policy_drop.log")}
    # The same document twice: the second frame is not counted as a repetition of the first.
    for number in range(2):
        publish(life, 3)
        missed.skip("log", Move(position, position, life.publisher.total), dropped, [LostCounts((lost,), dropped)])
        missed.confirm_skip()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(life.publisher, "_epoch", f"later {number}")
            publish(life, 1)
    entered = 0 if is_stored else 20
    with contextlib.closing(Log(tmp_path / "topics")) as log:
        ledger = Ledger(log, tmp_path, ["events"])
        assert counted(ledger) == (10 + entered, 15 + entered, 0)
        now = ledger.balance().document()
        assert rebuild_balance(tmp_path / "topics", tmp_path, ["events"], [], lambda: now) == now | {"differs": []}
        drain(tmp_path, log)
        wait_until(lambda: counted(ledger) == (10 + entered, 15 + entered, 0))


STEP = st.one_of(
    st.integers(0, 5).map(lambda n: ("publish", n)),
    st.integers(1, 6).map(lambda n: ("take", n)),
    st.just(("look", 0)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_cached_counts_equal_a_recount(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life, cached = live(Path(folder), LISTENER), BufferedCounts(Path(folder))
        for kind, number in steps:
            if kind == "publish":
                publish(life, number)
            elif kind == "take":
                consume_frames(life, number)
            else:
                assert cached.counts(["events"]) == BufferedCounts(Path(folder)).counts(["events"])
        recompute = waiting_for(Path(folder), "events", life.position.position)
        assert cached.counts(["events"]) == BufferedCounts(Path(folder)).counts(["events"]) == recompute
