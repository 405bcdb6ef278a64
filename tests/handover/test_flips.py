"""A flipped bit in any shared file of receiver and reader: both start, invent nothing, and name each loss."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.counts import Counts, by_bucket
from penstock.handover.drain.drain import RECEIPTS, Drain
from penstock.handover.frames.frame_size import frame_length
from penstock.handover.paths import buffer_file, position_file, state_file
from penstock.log import Log, TopicSettings
from penstock.logbuffer.descriptor import MTU_LENGTH
from penstock.records import EMPTY_BODY, body
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)
TERM = 1 << 16
STORED = [b"stored %d" % n for n in range(6)]
WAITING = [b"waiting %d" % n for n in range(4)]
AFTER = [b"after %d" % n for n in range(2)]


def publish(life: Life, *payloads: bytes) -> None:
    counts = Counts(
        {"taken": len(payloads), "unboxed": len(payloads), "seen": len(payloads), "accepted": len(payloads)}
    )
    life.publisher.publish(body(list(payloads)), counts, 0)


def drain(folder: Path, log: Log) -> None:
    thread = Drain(LISTENER.name, folder, log, None)
    thread.stop()
    thread.run()


class Pipe:
    """A folder in which some messages are stored and some wait, and how it was before it is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "buffers"
        self.folder.mkdir()
        self.topics = folder / "topics"
        life = live(self.folder, LISTENER, TERM)
        for number in range(0, len(STORED), 2):
            publish(life, *STORED[number : number + 2])
        with self._log() as log:
            drain(self.folder, log)
        for number in range(0, len(WAITING), 2):
            publish(life, *WAITING[number : number + 2])
        life.end()
        self.kept = folder / "kept"
        for part in (self.folder, self.topics):
            shutil.copytree(part, self.kept / part.name)

    def _log(self) -> _Opened:
        return _Opened(self.topics)

    def restore(self) -> None:
        for part in (self.folder, self.topics):
            shutil.rmtree(part)
            shutil.copytree(self.kept / part.name, part)

    def restart_everything(self) -> tuple[list[bytes], Counts]:
        """A new receiver, what it gets, and the drain; what is stored then, and what was counted."""
        life = live(self.folder, LISTENER, TERM)
        if life.publisher.owes:
            life.publisher.publish(EMPTY_BODY, Counts(), 0)
        publish(life, *AFTER)
        with self._log() as log:
            drain(self.folder, log)
            stored = log.topic("in", internal=True).reader().read(0)
            collected = [payload for batch in stored for payload in batch.batch.column("payload").to_pylist()]
            total = Counts()
            for topic in ("in", RECEIPTS):
                if topic in log.names(internal=True):
                    for document in log.topic(topic, internal=True).reader().whole_batches():
                        for counts in by_bucket(document.origin.bucket, document.origin.counts).values():
                            total.absorb(counts)
        life.end()
        return collected, total

    def damage(self, path: Path, bit: int) -> None:
        with path.open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)
            file.seek(bit // 8)
            file.write(bytes([byte[0] ^ 1 << bit % 8]))


class _Opened:
    """A log, closed at the end."""

    def __init__(self, topics: Path) -> None:
        self._log = Log(topics, TopicSettings(message_size_limit=10_000))

    def __enter__(self) -> Log:
        return self._log

    def __exit__(self, *_: object) -> None:
        self._log.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path)


def check(pipe: Pipe, content: str) -> int:
    """Go on; how many messages are lost, each of which has a name then."""
    collected, counts = pipe.restart_everything()
    sent = [*STORED, *WAITING, *AFTER]
    assert [payload for payload in collected if payload not in sent] == [], f"{content}: invented"
    assert len(set(collected)) == len(collected), f"{content}: doubled"
    assert collected == [payload for payload in sent if payload in collected], f"{content}: out of order"
    assert set(AFTER) <= set(collected), f"{content}: what came afterwards is there"
    lost = len(sent) - len(collected)
    assert counts["corrupt"] == lost, f"{content}: {lost} lost, {counts}"
    assert counts["accepted"] == len(sent), f"{content}: {counts}"
    return lost


def test_undamaged_files_store_everything_once(pipe: Pipe) -> None:
    assert check(pipe, "nothing") == 0


def test_flipped_bit_of_a_position_costs_nothing(pipe: Pipe) -> None:
    path, chance = position_file(pipe.folder, "events", "log"), random.Random(1)
    used = [*range(64), *range(8 * 64, 8 * 73), *range(8 * 128, 8 * 137), *chance.sample(range(4096), 10)]
    for byte in used:
        pipe.restore()
        pipe.damage(path, 8 * byte + chance.randrange(8))
        assert check(pipe, f"byte {byte}") == 0


def test_flipped_bit_of_the_state_costs_no_message(pipe: Pipe) -> None:
    path, chance = state_file(pipe.folder, "events"), random.Random(2)
    data = path.read_bytes()
    used = [index for index in range(len(data)) if data[index]]
    for byte in chance.sample(used, min(80, len(used))):
        pipe.restore()
        pipe.damage(path, 8 * byte + chance.randrange(8))
        assert check(pipe, f"byte {byte}") == 0


def test_flipped_bit_of_the_buffer_metadata_costs_nothing(pipe: Pipe) -> None:
    path, chance = buffer_file(pipe.folder, "events"), random.Random(3)
    size = path.stat().st_size
    # Each start takes a tenth of a second: one byte of each four, every field of the descriptor among them.
    for byte in (*range(size - 4096, size - 4096 + 0x200, 4), *chance.sample(range(size - 4096, size), 25)):
        pipe.restore()
        pipe.damage(path, 8 * byte + chance.randrange(8))
        assert check(pipe, f"metadata byte {byte - size + 4096:#x}") == 0


def test_flipped_bit_of_the_metadata_keeps_frames_small(pipe: Pipe) -> None:
    path = buffer_file(pipe.folder, "events")
    index = path.stat().st_size - 4096 + MTU_LENGTH.offset
    largest = frame_length(TERM) - 2048
    for bit in range(32):
        pipe.restore()
        pipe.damage(path, 8 * index + bit)
        life = live(pipe.folder, LISTENER, TERM)
        publish(life, b"x" * largest)
        assert [len(payload) for payload in life.payloads()][-1] == largest
        life.end()


@pytest.mark.survives("log buffer", "damaged bytes")
def test_flipped_bit_of_a_frame_costs_at_most_that_frame(pipe: Pipe) -> None:
    path, chance = buffer_file(pipe.folder, "events"), random.Random(4)
    data = path.read_bytes()[: 3 * TERM]
    end = max(index for index in range(len(data)) if data[index]) + 1
    headers = [index + byte for index in range(0, end, 32) if data[index : index + 4] != bytes(4) for byte in range(32)]
    losses = set()
    for byte in chance.sample(range(end), 60) + chance.sample(headers, 60) + chance.sample(range(end, 3 * TERM), 10):
        pipe.restore()
        pipe.damage(path, 8 * byte + chance.randrange(8))
        losses.add(check(pipe, f"byte {byte} of {end}"))
    assert losses <= {0, 2}


@pytest.mark.survives("log buffer", "damaged bytes")
@pytest.mark.parametrize("name", ["position", "state", "logbuffer"])
def test_truncated_or_zeroed_file_is_survived(pipe: Pipe, name: str) -> None:
    paths = {
        "position": position_file(pipe.folder, "events", "log"),
        "state": state_file(pipe.folder, "events"),
        "logbuffer": buffer_file(pipe.folder, "events"),
    }
    path, chance = paths[name], random.Random(5)
    size = path.stat().st_size
    for _ in range(25):
        pipe.restore()
        index = chance.randrange(size) & -512
        if chance.random() < 0.5:
            os.truncate(path, index)
        else:
            with path.open("r+b") as file:
                file.seek(index & -4096)
                file.write(bytes(min(4096, size - (index & -4096))))
        collected, _ = pipe.restart_everything()
        sent = [*STORED, *WAITING, *AFTER]
        assert [payload for payload in collected if payload not in sent] == []
        assert len(set(collected)) == len(collected)
        assert {*STORED, *AFTER} <= set(collected)
