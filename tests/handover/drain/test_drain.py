"""The drain stores frames as synced batches exactly once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.files.file_system import OS
from penstock.handover import writer as writing
from penstock.handover.buffer import TopicByPosition
from penstock.handover.drain.drain import RECEIPTS, Drain
from penstock.handover.paths import held_file, position_file, state_file
from penstock.handover.reader import GATHER_S, FrameGroup
from penstock.handover.state_page import TOPIC_BY_POSITION, StatePage
from penstock.log import Limits, Log, LogError, LogFull, OutcomeInDoubt, TopicSettings
from penstock.records import ANNOTATIONS, EMPTY_BODY, Rows, body
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)


@pytest.fixture
def wake() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log(tmp_path / "topics", TopicSettings(message_size_limit=1000))
    yield opened
    opened.close()


@pytest.fixture
def drained(tmp_path: Path, log: Log, wake: int, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Drains all there is; what was reported."""

    def drain() -> list[str]:
        caplog.clear()
        thread = Drain(LISTENER.name, tmp_path, log, wake)
        thread.stop()
        thread.run()
        return caplog.messages

    return drain


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return live(tmp_path, LISTENER)


def publish(life: Life, *payloads: bytes) -> None:
    counts = Counts({"seen": len(payloads), "accepted": len(payloads)} if payloads else {"empty": 1, "taken": 1})
    life.publisher.publish(body(list(payloads)) if payloads else EMPTY_BODY, counts, 0)


def spoil(path: Path, written: bytes, spoilt: bytes) -> None:
    frame_index = path.read_bytes().index(written)
    with path.open("r+b") as file:
        file.seek(frame_index)
        file.write(spoilt)


def payloads(log: Log, topic: str = "in") -> list[bytes]:
    stored = log.topic(topic, internal=True).reader().read(0)
    return [payload for batch in stored for payload in batch.batch.column("payload").to_pylist()]


def counts(log: Log, topic: str = "in") -> Counts:
    total = Counts()
    for stored in log.topic(topic, internal=True).reader().whole_batches():
        total.absorb(stored.origin.counts)
    return total


def totals(log: Log) -> Counts:
    """Return the sum of all minutes."""
    total = Counts()
    for name, count in counts(log).items():
        total[name.rpartition("@")[2]] += count
    return total


def test_messages_and_counts_arrive_together(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life, b"one", b"two")
    publish(life, b"three")
    assert drained() == []
    assert payloads(log) == [b"one", b"two", b"three"]
    assert counts(log) == {"seen": 3, "accepted": 3}
    assert life.frames() == []


def test_counts_without_messages_go_to_the_receipts_topic(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    publish(life)
    drained()
    assert counts(log, RECEIPTS) == {"empty": 1, "taken": 1}
    assert log.names() == []


def test_stored_frames_are_not_stored_again_after_a_crash(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one")
    begin = life.position.position
    drained()
    life.position.position = begin  # killed between storing and moving on
    publish(life, b"two")
    drained()
    assert payloads(log) == [b"one", b"two"]
    assert counts(log)["accepted"] == 2


def test_oversized_message_is_counted_as_failed(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life, b"one", b"x" * 1001, b"y" * 1000)
    drained()
    assert payloads(log) == [b"one", b"y" * 1000]
    assert counts(log) == {"seen": 3, "accepted": 3, "handler_failed.log": 1}


def test_unreadable_frame_is_logged_and_counted_as_corrupt(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one")
    drained()
    publish(life, b"spoil me", b"me too")
    spoil(tmp_path / "events.logbuffer", b"spoil me", b"Xpoil me")
    publish(life, b"last")
    (log_lines,) = drained()
    assert "cannot be read" in log_lines
    assert payloads(log) == [b"one", b"last"]
    assert counts(log) == {"seen": 4, "accepted": 4, "corrupt": 2}


def test_dropped_frames_are_not_corrupt(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life, b"first")
    drained()
    for number in range(100):
        publish(life, b"%d" % number + b"x" * 990)
    publish(life, b"last")
    assert life.position.floor > 0
    drained()
    remaining, total = payloads(log), totals(log)
    assert remaining[-1] == b"last"
    assert total["accepted"] == 102
    assert (total["policy_drop.log"], total["corrupt"]) == (102 - len(remaining), 0)


def test_stored_frame_that_a_power_failure_took_is_not_corrupt(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one")
    drained()
    begin, mark = life.position.position, life.position.mark
    publish(life, b"stored", b"me too")
    drained()
    publish(life, b"last")
    spoil(tmp_path / "events.logbuffer", b"stored", b"Xtored")
    life.position.position, life.position.mark = begin, mark
    drained()
    assert payloads(log) == [b"one", b"stored", b"me too", b"last"]
    assert counts(log) == {"seen": 4, "accepted": 4}


def test_removal_of_saved_frames_is_synced_by_the_successor(
    life: Life, tmp_path: Path, drained: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(101):
        publish(life, b"%d" % number + b"x" * 990)
    assert life.position.floor > 0
    with monkeypatch.context() as killed:
        killed.setattr(OS, "sync_directory", lambda path: None)
        drained()
    assert not held_file(tmp_path, LISTENER.name).exists()
    synced, real = list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    drained()
    assert str(tmp_path) in synced


@pytest.mark.parametrize(("before", "missed"), [(60, 0), (150, 0), (60, 100), (150, 100)])
def test_lost_position_neither_drops_stored_nor_stores_dropped_frames(
    tmp_path: Path,
    log: Log,
    drained: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    missed: int,
) -> None:
    monkeypatch.setattr(writing, "PATIENCE_S", 0.05)
    life = live(tmp_path, LISTENER)
    for number in range(before):
        publish(life, b"%d" % number + b"x" * 990)
        if number % 40 == 39:
            drained()
    drained()
    for number in range(missed):
        publish(life, b"missed %d" % number + b"x" * 980)
    life.end()
    position_file(tmp_path, "events", "log").write_bytes(b"garbage")
    heir = live(tmp_path, LISTENER)
    for number in range(100):
        publish(heir, b"later %d" % number + b"x" * 980)
    publish(heir, b"last")
    drained()
    remaining, total = payloads(log), totals(log)
    assert len(remaining) == len(set(remaining))
    assert remaining[-1] == b"last"
    assert total["accepted"] == before + missed + 101
    assert (total["policy_drop.log"], total["corrupt"]) == (total["accepted"] - len(remaining), 0)


def test_claimed_frames_survive_a_lost_position(tmp_path: Path, log: Log, drained: Callable[[], list[str]]) -> None:
    life = live(tmp_path, LISTENER, drop=False)
    sent = [b"%d" % number + b"x" * 990 for number in range(45)]
    for payload in sent[:10]:
        publish(life, payload)
    drained()
    for number, payload in enumerate(sent[10:]):
        publish(life, payload)
        if number == 9:
            life.position.claim = life.publication.position  # it had taken these when it was killed
    life.end()
    position_file(tmp_path, "events", "log").write_bytes(b"garbage")
    heir = live(tmp_path, LISTENER, drop=False)
    publish(heir, b"last")
    drained()
    assert payloads(log) == [*sent, b"last"]
    assert totals(log) == Counts({"seen": 46, "accepted": 46})


def test_position_passes_the_frames_stored_before_a_full_disk(
    life: Life, log: Log, drained: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(life, b"one")
    end = life.publication.position
    publish(life, b"two")
    topic, appends = log.topic("in", create=True), []
    append = topic.append

    def full_at_the_second(*arguments: Any) -> Any:
        appends.append(arguments)
        if len(appends) != 2:
            return append(*arguments)
        future: Future[Any] = Future()
        future.set_exception(LogFull("no space"))
        return future

    monkeypatch.setattr(topic, "append", full_at_the_second)
    (log_lines,) = drained()
    assert "no space" in log_lines
    assert (life.position.position, life.position.claim) == (end, end)
    drained()
    assert payloads(log) == [b"one", b"two"]


def test_shortage_lasts_through_the_retries_of_a_drain(life: Life, log: Log, tmp_path: Path) -> None:
    """Between two retries no request may be written, which would be refused to its sender all the same."""
    publish(life, b"one")
    drain = Drain("events", tmp_path, log, None)
    for first, shortage in ((drain, ""), (drain, "disk"), (Drain("events", tmp_path, log, None), "")):
        first.resume(tmp_path, life.position)
        assert life.position.shortage == shortage
        life.position.shortage = "disk"


def refuse_topic(log: Log, monkeypatch: pytest.MonkeyPatch, error: LogError | None = None) -> None:
    """Refuse appends to the topic of the handler, by default as on a full disk; other topics have room."""
    topic = log.topic("in", create=True)

    def refuse(*_: object) -> Future[int]:
        future: Future[int] = Future()
        future.set_exception(error or LogFull("no space"))
        return future

    monkeypatch.setattr(topic, "append", refuse)


def test_counts_behind_a_frame_that_is_not_stored_are_not_stored_either(
    life: Life, log: Log, drained: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames go back to the writer, which counts dropped frames with the counts that they carry."""
    publish(life, b"one")
    publish(life)
    with monkeypatch.context() as refusing:
        refuse_topic(log, refusing)
        assert "no space" in drained()[0]
    assert life.position.position == life.position.claim == 0
    assert RECEIPTS not in log.names(internal=True)
    drained()
    assert (counts(log), counts(log, RECEIPTS)) == ({"seen": 1, "accepted": 1}, {"empty": 1, "taken": 1})


def test_frames_that_a_killed_daemon_claimed_do_not_go_back_to_the_writer(
    life: Life, log: Log, drained: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead daemon may have stored them: the writer saves them instead, and the topics skip stored frames."""
    publish(life, b"one")
    claimed = life.position.claim = life.publication.position
    publish(life, b"two")
    with monkeypatch.context() as refusing:
        refuse_topic(log, refusing)
        drained()
    assert (life.position.position, life.position.claim) == (0, claimed)
    drained()
    assert payloads(log) == [b"one", b"two"]


def test_frames_in_doubt_do_not_go_back_to_the_writer(
    life: Life, log: Log, drained: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may store them: dropped, they would count twice."""
    publish(life, b"one")
    claimed = life.publication.position
    with monkeypatch.context() as refusing:
        refuse_topic(log, refusing, OutcomeInDoubt("the disk failed"))
        drained()
    assert (life.position.position, life.position.claim) == (0, claimed)
    drained()
    assert payloads(log) == [b"one"]


def test_drain_continues_in_a_new_buffer(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one")
    drained()
    life.end()
    (tmp_path / "events.logbuffer").write_bytes(b"garbage")
    heir = live(tmp_path, LISTENER)
    publish(heir, b"two")
    drained()
    assert payloads(log) == [b"one", b"two"]


def tagged(life: Life, **messages: str) -> None:
    """Write one frame of messages with tags."""
    annotations = pa.array([[("tags", tags)] if tags else None for tags in messages.values()], ANNOTATIONS)
    batch = body([name.encode() for name in messages], annotations=annotations)
    life.publisher.publish(batch, Counts({"seen": len(messages), "accepted": len(messages)}), 0)


def requested(log: Log, topic: str = "in") -> list[str | None]:
    collected = [batch.batch.column("annotations") for batch in log.topic(topic).reader().read(0)]
    return [dict(entry or []).get("kt") for column in collected for entry in column.to_pylist()]


def test_message_goes_to_its_requested_topic(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    tagged(life, a="", b="kt:other", c="x\0kt:old\0kt:third", d="kt:in", e="kt:other\0pk:k")
    drained()
    assert payloads(log) == [b"a", b"d"]
    assert payloads(log, "other") == [b"b", b"e"]
    assert payloads(log, "third") == [b"c"]
    assert counts(log) == {"seen": 5, "accepted": 5}
    assert counts(log, "other") == counts(log, "third") == {}


def test_counts_of_a_split_frame_wait_until_its_messages_are_stored(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    """Internal topics have room when the others are full; a frame that goes back may be dropped and counted there."""
    limits = TopicSettings(message_size_limit=1000), {}, 10
    log.reconfigure(*limits, max_bytes=1, transactions=Limits())
    tagged(life, a="kt:other")
    assert "log.max_bytes" in drained()[0]
    assert life.position.position == life.position.claim == 0
    assert RECEIPTS not in log.names(internal=True)
    log.reconfigure(*limits, max_bytes=0, transactions=Limits())
    drained()
    assert payloads(log, "other") == [b"a"]
    assert counts(log, RECEIPTS) == {"seen": 1, "accepted": 1}


def test_counts_of_a_completely_split_frame_are_stored(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    tagged(life, a="kt:other")
    drained()
    assert payloads(log, "other") == [b"a"]
    assert counts(log, RECEIPTS) == {"seen": 1, "accepted": 1}


def test_invalid_request_falls_back_and_becomes_an_annotation(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    tagged(life, a="kt:Not Allowed", b="", c="kt:_ledger", d="kt:", e="kt:..", f="kt:" + "x" * 300)
    drained()
    assert payloads(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert requested(log) == ["Not Allowed", None, "_ledger", "", "..", "x" * 300]
    assert counts(log)["kt_refused"] == 5


def test_too_many_topics_fall_back_to_the_handlers_topic(tmp_path: Path, life: Life, wake: int) -> None:
    log = Log(tmp_path / "narrow", max_topics=2)
    tagged(life, a="kt:one", b="kt:two", c="kt:three", d="")
    drain_all(life, log, wake)
    assert payloads(log, "one") == [b"a"]
    assert payloads(log) == [b"b", b"c", b"d"]
    assert requested(log) == ["two", "three", None]
    assert counts(log)["kt_refused"] == 2
    log.close()


def drain_all(life: Life, log: Log, wake: int) -> None:
    thread = Drain(LISTENER.name, life.folder, log, wake)
    thread.stop()
    thread.run()


def test_partly_stored_frame_is_split_the_same_way(tmp_path: Path, life: Life, wake: int) -> None:
    log = Log(tmp_path / "topics", max_topics=2)
    tagged(life, a="", b="kt:two", c="kt:three")
    begin = life.position.position
    drain_all(life, log, wake)
    log.close()
    shutil.rmtree(tmp_path / "topics" / "two")  # as if it was killed before this part was stored
    life.position.position = begin
    log = Log(tmp_path / "topics", max_topics=10)  # now there would be room for a topic "three"
    drain_all(life, log, wake)
    assert payloads(log) == [b"a", b"c"]
    assert payloads(log, "two") == [b"b"]
    assert log.names() == ["in", "two"]
    tagged(life, d="kt:three")
    drain_all(life, log, wake)
    assert payloads(log, "three") == [b"d"]
    log.close()


def test_frames_before_a_topic_change_go_to_the_old_topic(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one", b"two")
    begin = life.position.position
    drained()
    publish(life, b"three")
    life.end()
    life.position.position = begin  # killed in the middle of the group
    advanced = ListenerConfig.model_validate(
        {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "new"}]}
    )
    heir = live(tmp_path, advanced)
    publish(heir, b"four")
    drained()
    assert payloads(log) == [b"one", b"two", b"three"]
    assert payloads(log, "new") == [b"four"]
    assert counts(log)["accepted"] + counts(log, "new")["accepted"] == 4


def test_without_log_handler_only_counts_are_stored(log: Log, tmp_path: Path, drained: Callable[[], list[str]]) -> None:
    discarding = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "discard"}]})
    life = live(tmp_path, discarding)
    publish(life, b"one", b"two")
    drained()
    assert log.names() == []
    assert counts(log, RECEIPTS) == {"seen": 2, "accepted": 2, "not_routed.log": 2}


@pytest.mark.parametrize(
    ("handler", "term_length", "longer"),
    [("discard", 64 << 20, True), ("discard", 1 << 20, False), ("log", 64 << 20, False)],
)
def test_counts_without_messages_are_gathered_longer(
    tmp_path: Path, log: Log, wake: int, handler: str, term_length: int, longer: bool
) -> None:
    listener = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": handler}]})
    publish(live(tmp_path, listener), b"a")
    drain = Drain(listener.name, tmp_path, log, wake)
    drain.stop()
    drain.run()
    assert (drain.gather_time(FrameGroup([], 0, 0, 0), term_length) > GATHER_S) is longer


@pytest.mark.parametrize("waits", [True, False])
def test_frames_are_not_gathered_while_a_sender_waits(life: Life, log: Log, wake: int, waits: bool) -> None:
    publish(life, b"a")
    if waits:
        life.position.await_stored(life.publisher.position)
    drain = Drain(life.listener.name, life.folder, log, wake)
    drain.stop()
    drain.run()
    assert (drain._next_group_at == 0) is waits


def test_rows_of_a_small_frame_are_stored_as_their_columns(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    rows = Rows([(None, b"one", None, [("a", "b")])])
    life.publisher.publish(rows, Counts({"seen": 1, "accepted": 1}), 0)
    assert drained() == []
    (stored,) = log.topic("in").reader().read(0)
    assert stored.batch.drop_columns(["offset", "timestamp"]).equals(rows.batch())


def test_small_group_is_committed_by_its_drain(life: Life, log: Log, tmp_path: Path, wake: int) -> None:
    names = list[str]()
    log.topic("in", create=True).subscribe(lambda _: names.append(threading.current_thread().name))
    for payload in (b"one", b"two"):
        publish(life, payload)
    drain = Drain(LISTENER.name, tmp_path, log, wake)
    drain.stop()
    drain.run()
    assert names == [threading.current_thread().name]
    assert payloads(log) == [b"one", b"two"]


def test_changed_topic_is_read_again(life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]) -> None:
    page = StatePage(state_file(tmp_path, LISTENER.name))
    drain = Drain(LISTENER.name, tmp_path, log, None)
    drain._page = page
    assert drain._topics_by_position().topic(1 << 20) == "in"
    TopicByPosition(page).route("other", 4096, 0)
    assert drain._topics_by_position().topic(1 << 20) == "other"
    page.close()


def test_damaged_counts_are_not_entered(log: Log, tmp_path: Path, drained: Callable[[], list[str]]) -> None:
    discarding = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "discard"}]})
    life = live(tmp_path, discarding)
    publish(life, b"one")
    drained()
    publish(life, b"two", b"three")
    spoil(tmp_path / "events.logbuffer", b'"accepted":2', b'"accepted":7')
    publish(life, b"last")
    (log_lines,) = drained()
    assert "cannot be read" in log_lines
    assert counts(log, RECEIPTS) == {"seen": 4, "accepted": 4, "corrupt": 2, "not_routed.log": 2}


def test_unreadable_missed_frames_are_corrupt(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life, b"first")
    drained()
    publish(life, b"spoil me", b"me too")
    data = life.publication.path.read_bytes()
    head = data.rindex(b"\xff\xff\xff\xff", 0, data.index(b"spoil me"))
    with life.publication.path.open("r+b") as file:
        file.seek(head)
        file.write(b"\0\0\0\0")  # not even its receipt can be read
    for number in range(100):
        publish(life, b"%d" % number + b"x" * 990)
    publish(life, b"last")
    assert life.position.floor > 0
    drained()
    total = Counts()
    for topic in ("in", RECEIPTS):
        for name, count in (counts(log, topic) if topic in log.names(internal=True) else {}).items():
            total[name.rpartition("@")[2]] += count
    assert (total["accepted"], total["seen"], total["corrupt"]) == (104, 104, 2)
    assert total["policy_drop.log"] == 102 - len(payloads(log))


def test_frames_wait_until_their_topic_is_known(
    life: Life, log: Log, drained: Callable[[], list[str]], tmp_path: Path
) -> None:
    publish(life, b"one")
    page = StatePage(state_file(tmp_path, LISTENER.name))
    page.write(TOPIC_BY_POSITION, [])
    assert "has not yet written the topic" in drained()[0]
    assert log.names() == []
    page.write(TOPIC_BY_POSITION, [(0, "in")])
    drained()
    assert payloads(log) == [b"one"]
