"""The writer: counts travel with their data, and lagging readers miss frames by policy."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.frames.frame import reserved_value
from penstock.handover.paths import buffer_file, senders_file, state_file
from penstock.handover.state_page import SKIPPED, STATISTICS, StatePage
from penstock.handover.writer import FrameWriter, GaveUp
from penstock.logbuffer import Subscription
from penstock.records import EMPTY_BODY, body
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig(name="events", protocol="udp")


def publish(life: Life, *payloads: bytes, reserved: int = 0) -> None:
    counts = Counts({"seen": len(payloads), "accepted": len(payloads)})
    life.publisher.publish(body(list(payloads)) if payloads else EMPTY_BODY, counts, reserved)


def test_batch_and_counts_form_one_frame(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"one", b"two", reserved=reserved_value(5, 2))
    ((payloads, receipt),) = life.frames()
    assert payloads == [b"one", b"two"]
    assert (receipt.origin.source, receipt.origin.codec, receipt.total) == ("events", "plog", 2)
    assert receipt.origin.counts == {"seen": 2, "accepted": 2}


def test_successor_continues_totals_and_published_slots(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"one", b"two", reserved=reserved_value(5, 2))
    life.end()
    heir = live(tmp_path, LISTENER)
    assert heir.publisher.published == (5, 2)
    publish(heir, b"three")
    receipts = [receipt for _, receipt in heir.frames()]
    assert [(r.incarnation, r.total) for r in receipts] == [(1, 2), (2, 3)]
    assert receipts[0].epoch == receipts[1].epoch != ""


def test_table_of_senders_that_cannot_be_opened_is_removed(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    path = senders_file(tmp_path, LISTENER.name)
    assert path.exists()
    life.publisher.senders = None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        life.publisher.count_senders(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert life.publisher.senders is None
    assert not path.exists()


class Killed(BaseException):
    """The writer was killed."""


def drop_frames(life: Life) -> None:
    """Publish until frames are dropped; kill the writer before it writes the frame that carries their counts."""
    raise_limit = FrameWriter._raise_limit

    def die_if_owing(writer: FrameWriter) -> None:
        if writer.owes:
            raise Killed
        raise_limit(writer)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(FrameWriter, "_raise_limit", die_if_owing)
        with contextlib.suppress(Killed):
            while True:
                publish(life, b"x" * 1000)
    life.publisher.total -= 1  # the message that it was to write


def test_frame_that_has_no_room_carries_the_counts_of_the_frames_that_make_it(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    while not life.position.floor:
        publish(life, b"x" * 1000)
    assert life.totals()["accepted"] == life.publisher.total
    assert not life.publisher.owes


def test_state_page_names_the_frame_that_is_to_carry_counts_before_it_is_written(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    drop_frames(life)
    with contextlib.closing(StatePage(state_file(tmp_path, "events"))) as page:
        frame = page.read(SKIPPED)["frame"]
    assert frame[:2] == [life.publisher._epoch, life.publication.position]


def test_missed_frames_are_counted_in_a_later_frame(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    for number in range(200):
        publish(life, b"%d" % number + b"x" * 1000)
    publish(life)
    total = life.totals()
    read = sum(len(payloads) for payloads, _ in life.frames())
    assert life.position.floor > 0
    assert total["accepted"] == total["seen"] == 200
    assert total["policy_drop.log"] == 200 - read > 50


def test_missed_counts_survive_the_receiver(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    drop_frames(life)
    published = life.publisher.total
    life.end()
    heir = live(tmp_path, LISTENER)
    assert heir.publisher.owes
    publish(heir)
    assert heir.totals()["accepted"] == published


def test_writer_waits_for_a_reader_that_uses_its_frames(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    with life.position.lock():
        writer = threading.Thread(target=lambda: [publish(life, b"x" * 1000) for _ in range(100)])
        writer.start()
        time.sleep(0.3)
        assert writer.is_alive()
        assert life.position.floor == 0
    writer.join(10)
    assert life.position.floor > 0


def test_blocking_reader_blocks_the_writer(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, drop=False)
    writer = threading.Thread(target=lambda: [publish(life, b"x" * 1000) for _ in range(100)])
    writer.start()
    time.sleep(0.3)
    assert writer.is_alive()
    read = 0
    with Subscription(buffer_file(tmp_path, "events")) as frames:
        while writer.is_alive() or read < 100:
            read += len(frames.poll(5000))
            life.position.position = frames.position
    assert (read, life.position.floor) == (100, 0)


@pytest.mark.parametrize("drop", [True, False])
def test_new_reader_starts_at_the_start_of_the_buffer(tmp_path: Path, drop: bool) -> None:
    life = live(tmp_path, LISTENER, drop=drop)
    assert life.frames() == []
    assert life.publisher.before.total == 0


def test_claimed_frames_of_a_dead_reader_are_not_dropped(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"first")
    life.position.claim = life.publication.position  # and then it is killed
    writer = threading.Thread(target=lambda: [publish(life, b"x" * 1000) for _ in range(100)])
    writer.start()
    time.sleep(0.3)
    assert writer.is_alive()
    assert life.position.floor == 0
    life.position.position = life.position.claim
    writer.join(10)
    assert not writer.is_alive()


def test_stopping_receiver_gives_up_waiting(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, drop=False)
    full = [b"x" * 1000] * 50
    publish(life, *full[:6])
    waits: list[float] = []

    def wait() -> None:
        waits.append(time.monotonic())
        if len(waits) > 10:
            life.publisher.give_up_at = time.monotonic()

    # A receiver that waits reports that it lives.
    life.publisher.on_wait = wait
    with pytest.raises(GaveUp):
        [publish(life, *full[:6]) for _ in range(20)]
    assert len(waits) > 10


def test_totals_continue_after_a_lost_buffer(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER)
    publish(life, b"one", b"two")
    StatePage(state_file(tmp_path, "events")).write(STATISTICS, {"total": 2})
    life.end()
    buffer_file(tmp_path, "events").write_bytes(b"garbage")
    heir = live(tmp_path, LISTENER)
    publish(heir, b"three")
    assert [receipt.total for _, receipt in heir.frames()] == [3]
