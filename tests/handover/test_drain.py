"""The drain: frames become synced batches once, whatever happens in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover import writer as writing
from penstock.handover.drain import RECEIPTS, Drain
from penstock.handover.paths import position_file, state_file
from penstock.handover.reader import GATHER, FrameGroup
from penstock.handover.state_page import TOPIC_BY_POSITION, StatePage
from penstock.log import Log, LogFull, TopicSettings
from penstock.records import ANNOTATIONS, EMPTY_BODY, body
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
    at = path.read_bytes().index(written)
    with path.open("r+b") as file:
        file.seek(at)
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
    """Those of all minutes together."""
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


def test_counts_without_messages_go_to_their_own_topic(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life)
    drained()
    assert counts(log, RECEIPTS) == {"empty": 1, "taken": 1}
    assert log.names() == []


def test_frames_stored_before_a_crash_are_not_stored_again(
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


def test_a_message_larger_than_the_topic_takes_has_failed(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one", b"x" * 1001, b"y" * 1000)
    drained()
    assert payloads(log) == [b"one", b"y" * 1000]
    assert counts(log) == {"seen": 3, "accepted": 3, "handler_failed.log": 1}


def test_a_frame_that_cannot_be_read_is_told_and_its_messages_are_corrupt(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one")
    drained()
    publish(life, b"spoil me", b"me too")
    spoil(tmp_path / "events.logbuffer", b"spoil me", b"Xpoil me")
    publish(life, b"last")
    (said,) = drained()
    assert "cannot be read" in said
    assert payloads(log) == [b"one", b"last"]
    assert counts(log) == {"seen": 4, "accepted": 4, "corrupt": 2}


def test_what_the_writer_made_it_miss_is_no_corruption(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    publish(life, b"first")
    drained()
    for number in range(100):
        publish(life, b"%d" % number + b"x" * 990)
    publish(life, b"last")
    assert life.position.floor > 0
    drained()
    kept, total = payloads(log), totals(log)
    assert kept[-1] == b"last"
    assert total["accepted"] == 102
    assert (total["policy_drop.log"], total["corrupt"]) == (102 - len(kept), 0)


@pytest.mark.parametrize(("before", "missed"), [(60, 0), (150, 0), (60, 100), (150, 100)])
def test_where_its_position_is_lost_what_it_stored_is_not_dropped_and_what_was_dropped_is_not_stored(
    tmp_path: Path,
    log: Log,
    drained: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    missed: int,
) -> None:
    monkeypatch.setattr(writing, "PATIENCE", 0.05)
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
    kept, total = payloads(log), totals(log)
    assert len(kept) == len(set(kept))
    assert kept[-1] == b"last"
    assert total["accepted"] == before + missed + 101
    assert (total["policy_drop.log"], total["corrupt"]) == (total["accepted"] - len(kept), 0)


def test_what_a_killed_daemon_had_in_its_hands_is_not_lost_with_its_position(
    tmp_path: Path, log: Log, drained: Callable[[], list[str]]
) -> None:
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


def test_what_was_stored_before_a_full_disk_is_left_behind(
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
    (said,) = drained()
    assert "no space" in said
    assert (life.position.position, life.position.claim) == (end, end)
    drained()
    assert payloads(log) == [b"one", b"two"]


def test_it_goes_on_in_a_buffer_that_was_made_anew(
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
    """One frame of messages, each with its tags."""
    annotations = pa.array([[("tags", tags)] if tags else None for tags in messages.values()], ANNOTATIONS)
    batch = body([name.encode() for name in messages], annotations=annotations)
    life.publisher.publish(batch, Counts({"seen": len(messages), "accepted": len(messages)}), 0)


def requested(log: Log, topic: str = "in") -> list[str | None]:
    found = [batch.batch.column("annotations") for batch in log.topic(topic).reader().read(0)]
    return [dict(entry or []).get("kt") for column in found for entry in column.to_pylist()]


def test_a_message_goes_to_the_topic_it_asks_for(life: Life, log: Log, drained: Callable[[], list[str]]) -> None:
    tagged(life, a="", b="kt:other", c="x\0kt:old\0kt:third", d="kt:in", e="kt:other\0pk:k")
    drained()
    assert payloads(log) == [b"a", b"d"]
    assert payloads(log, "other") == [b"b", b"e"]
    assert payloads(log, "third") == [b"c"]
    assert counts(log) == {"seen": 5, "accepted": 5}
    assert counts(log, "other") == counts(log, "third") == {}


def test_counts_of_a_frame_that_goes_elsewhere_whole_are_kept(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    tagged(life, a="kt:other")
    drained()
    assert payloads(log, "other") == [b"a"]
    assert counts(log, RECEIPTS) == {"seen": 1, "accepted": 1}


def test_a_request_that_is_no_topic_falls_back_and_is_kept_as_annotation(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
    tagged(life, a="kt:Not Allowed", b="", c="kt:_ledger", d="kt:", e="kt:..", f="kt:" + "x" * 300)
    drained()
    assert payloads(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert requested(log) == ["Not Allowed", None, "_ledger", "", "..", "x" * 300]
    assert counts(log)["kt_refused"] == 5


def test_with_too_many_topics_the_handlers_own_takes_the_rest(tmp_path: Path, life: Life, wake: int) -> None:
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


def test_a_frame_stored_in_part_before_a_crash_is_split_as_it_was(tmp_path: Path, life: Life, wake: int) -> None:
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


def test_frames_written_before_the_topic_was_changed_go_to_the_old_one(
    life: Life, log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    publish(life, b"one", b"two")
    begin = life.position.position
    drained()
    publish(life, b"three")
    life.end()
    life.position.position = begin  # killed in the middle of the group
    moved = ListenerConfig.model_validate(
        {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "new"}]}
    )
    heir = live(tmp_path, moved)
    publish(heir, b"four")
    drained()
    assert payloads(log) == [b"one", b"two", b"three"]
    assert payloads(log, "new") == [b"four"]
    assert counts(log)["accepted"] + counts(log, "new")["accepted"] == 4


def test_without_a_log_handler_the_counts_are_kept_and_nothing_else(
    log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
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
def test_counts_alone_come_together_for_longer_where_the_buffer_has_room(
    tmp_path: Path, log: Log, wake: int, handler: str, term_length: int, longer: bool
) -> None:
    listener = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": handler}]})
    publish(live(tmp_path, listener), b"a")
    drain = Drain(listener.name, tmp_path, log, wake)
    drain.stop()
    drain.run()
    assert (drain.gather_time(FrameGroup([], 0, 0, 0), term_length) > GATHER) is longer


def test_counts_that_were_spoilt_are_not_believed_where_nothing_else_is_kept(
    log: Log, tmp_path: Path, drained: Callable[[], list[str]]
) -> None:
    discarding = ListenerConfig.model_validate({"name": "events", "protocol": "udp", "handlers": [{"type": "discard"}]})
    life = live(tmp_path, discarding)
    publish(life, b"one")
    drained()
    publish(life, b"two", b"three")
    spoil(tmp_path / "events.logbuffer", b'"accepted":2', b'"accepted":7')
    publish(life, b"last")
    (said,) = drained()
    assert "cannot be read" in said
    assert counts(log, RECEIPTS) == {"seen": 4, "accepted": 4, "corrupt": 2, "not_routed.log": 2}


def test_messages_of_frames_that_were_missed_and_could_not_be_read_are_corrupt(
    life: Life, log: Log, drained: Callable[[], list[str]]
) -> None:
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


def test_frames_wait_while_nobody_has_said_which_topic_they_are_for(
    life: Life, log: Log, drained: Callable[[], list[str]], tmp_path: Path
) -> None:
    publish(life, b"one")
    page = StatePage(state_file(tmp_path, LISTENER.name))
    page.write(TOPIC_BY_POSITION, [])
    assert "has still to say which topic" in drained()[0]
    assert log.names() == []
    page.write(TOPIC_BY_POSITION, [(0, "in")])
    drained()
    assert payloads(log) == [b"one"]
