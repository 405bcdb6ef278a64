"""Compaction: the same rows, origins, counts and numbers in fewer bytes, also during reads."""

import threading

import pyarrow as pa
import pytest

from penstock.log import Gap, Log, LogFull, ProducerSequence, TopicReader, TopicSettings, WriteFailed
from penstock.log.store import index
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import BUCKET, UNSYNCED, UnsyncedFiles, fill, flip, offsets, opened, origin, payloads, rows

SMALL = TopicSettings(segment_size_limit=6000)
ZSTD = TopicSettings(segment_size_limit=6000, compression="zstd")


def write(topic, count=30, name="p"):
    """Append batches of two sources and two buckets, with counts, buffers and producers."""
    for n in range(count):
        source = "events" if n % 10 < 8 else "other"
        batch_origin = origin(source, bucket=BUCKET + 60 * (n // 15), counts={"accepted": 2, "taken": n})
        producer = ProducerSequence(name, n // 3) if n % 3 == 0 else None
        topic.append(rows(b"%d" % n * 50, b"%d." % n * 50), batch_origin, producer=producer).result(10)


def contents(topic):
    """Return everything that compaction must not change."""
    reader = topic.reader()
    counts = {}
    for stored in reader.whole_batches():
        key = stored.origin.source, stored.origin.bucket
        counts.setdefault(key, []).append((stored.rows, sum(stored.origin.counts.values())))
    totals = {key: tuple(map(sum, zip(*counts_of_key, strict=True))) for key, counts_of_key in counts.items()}
    table = pa.Table.from_batches([stored.batch for stored in reader.read(0)])
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    offsets_by_time = [reader.at_timestamp(time) for time in times]
    return totals, table.to_pydict(), offsets_by_time, reader.rows_by_origin(0, reader.end)


@pytest.mark.parametrize("settings", [SMALL, ZSTD], ids=["plain", "zstd"])
def test_compaction_preserves_contents_in_fewer_and_smaller_batches(tmp_path, settings):
    with opened(tmp_path, settings=settings) as topic:
        write(topic)
        before, batches = contents(topic), len(list(topic.reader().whole_batches()))
        sizes = topic.compact()
        assert contents(topic) == before
        assert len(list(topic.reader().whole_batches())) < batches / 2
        assert sizes[1] < sizes[0] * (0.7 if settings is ZSTD else 0.9)
        assert topic.verify() == []
        assert topic.compact() == (0, 0)
    with opened(tmp_path, settings=settings) as topic:
        assert contents(topic) == before
        retried = topic.append(rows(b"27" * 50, b"27." * 50), origin(), producer=ProducerSequence("p", 9)).result(10)
        assert retried.first == 54
        assert topic.compact()[0] == 0
        fill(topic, [b"new"])
        assert offsets(topic) == list(range(61))


def test_plain_arrow_reads_compressed_segments(tmp_path):
    with opened(tmp_path, settings=ZSTD) as topic:
        write(topic)
        topic.compact()
        values = []
        for name in sorted(topic.path.glob("*.arrows")):
            with pa.ipc.open_stream(name.read_bytes()) as stream:
                values += stream.read_all().column("payload").to_pylist()
        assert values == payloads(topic)


def test_open_readers_continue_after_compaction(tmp_path):
    with opened(tmp_path, settings=ZSTD) as topic:
        write(topic, 10)
        reader, stream = topic.reader(), topic.reader().read(0)
        assert reader.end == 20
        next(stream)
        write(topic, 20, "other")
        topic.compact()
        rest = [offset for stored in stream for offset in stored.batch.column("offset").to_pylist()]
        assert rest == list(range(2, 20))
        assert offsets(reader) == list(range(60))


def test_reader_continues_in_a_segment_that_became_smaller(tmp_path):
    with opened(tmp_path, settings=TopicSettings(segment_size_limit=50_000, compression="zstd")) as topic:
        write(topic, 25)
        reader = topic.reader()
        assert len(offsets(reader)) == 50
        write(topic, 5, "other")
        topic.writer.settings = topic.settings.changed({"segment_size_limit": 1})
        fill(topic, [b"next"])
        topic.compact()
        assert (topic.path / f"{0:020}.arrows").stat().st_size < 15_000
        assert offsets(reader) == list(range(61))


class WatchedFiles(UnsyncedFiles):
    """A file system that calls ``look`` at every step of an exchange of files."""

    look = staticmethod(lambda: None)

    def rename(self, old, new):
        self.look()
        super().rename(old, new)
        self.look()

    def remove(self, path):
        super().remove(path)
        self.look()


def test_readers_see_all_rows_at_every_step_of_the_exchange(tmp_path):
    fs = WatchedFiles()
    with opened(tmp_path, settings=ZSTD, fs=fs) as topic:
        write(topic)
        expected, old, steps = payloads(topic), topic.reader(), []
        assert payloads(old) == expected

        def look():
            steps.append(1)
            assert payloads(old) == payloads(TopicReader(topic.path)) == expected

        fs.look = look
        topic.compact()
        fs.look = lambda: None
        assert len(steps) >= 5


def test_readers_see_all_rows_during_compaction(tmp_path):
    with opened(tmp_path, settings=ZSTD) as topic:
        write(topic, 60)
        expected, stop, wrong = payloads(topic), threading.Event(), []

        def read():
            reader = TopicReader(topic.path)
            while not stop.is_set():
                if payloads(reader) != expected or payloads(TopicReader(topic.path)) != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for compression in ("zstd", "none") * 3:
            topic.writer.settings = topic.settings.changed({"compression": compression})
            topic._maintenance._compacted.clear()
            topic.compact()
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_damaged_batch_becomes_a_gap_of_a_compacted_segment(tmp_path):
    with opened(tmp_path, settings=ZSTD) as topic:
        write(topic)
        first = topic.path / f"{0:020}.arrows"
        records = index.unpack(first.with_suffix(".index").read_bytes()[index.HEADER_SIZE :])
        flip(first, int(records["position"][2]) + 400)
        topic.compact()
        (gap,) = topic.gaps()
        received = {"events": {BUCKET: {"accepted": 2, "taken": 2}}}
        assert gap == Gap(4, 6, "corrupt", {"events": {BUCKET: 2}}, received)
        assert offsets(topic) == [n for n in range(60) if n not in (4, 5)]
        assert len(list((topic.path / "quarantine").iterdir())) == 1
        first.with_suffix(".index").unlink()
        assert topic.verify() == []
    with opened(tmp_path) as topic:
        assert len(offsets(topic)) == 58


def test_damaged_byte_in_compacted_segment_loses_only_its_batch(tmp_path):
    with opened(tmp_path, settings=ZSTD) as topic:
        write(topic)
        topic.compact()
        first = topic.path / f"{0:020}.arrows"
        flip(first, first.stat().st_size - 30)
        (gap,) = topic.verify()
        assert len(offsets(topic)) == 60 - (gap.end - gap.begin)


def test_sweep_compresses_sealed_segments_if_configured(tmp_path):
    log = Log(tmp_path, SMALL, fs=UNSYNCED, clock=FakeClock())
    topic = log.topic("t", create=True)
    write(topic)
    sizes = [sum(p.stat().st_size for p in topic.path.glob("*.arrows")) for _ in range(1)]
    log.sweep()
    sizes.append(sum(p.stat().st_size for p in topic.path.glob("*.arrows")))
    log.configure("t", {"compression": "zstd"})
    log.sweep()
    sizes.append(sum(p.stat().st_size for p in topic.path.glob("*.arrows")))
    assert sizes[0] == sizes[1] > sizes[2]
    log.close()


def test_compaction_on_a_full_disk_changes_nothing(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs, settings=ZSTD) as topic:
        write(topic)
        before, names = contents(topic), sorted(path.name for path in topic.path.iterdir())
        for free in (0, 500, 1000, 1800, 2500):
            fs.free = free
            with pytest.raises(LogFull):
                topic.compact()
            assert (contents(topic), sorted(path.name for path in topic.path.iterdir())) == (before, names)
        fs.free = None
        topic.compact()
        assert contents(topic) == before


@pytest.mark.survives("log", "power cut")
def test_power_cut_during_compaction_loses_no_row(tmp_path):
    for stop in range(0, 30, 2):
        folder = tmp_path / str(stop)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed=stop)
        log = Log(folder, ZSTD, fs=fs)
        topic = log.topic("t", create=True)
        write(topic, 12)
        expected = contents(topic)
        fs.stop_after = stop
        topic.sweep()
        log.close()
        fs.crash()
        log = Log(folder, ZSTD, fs=fs)
        topic = log.topic("t")
        assert topic.gaps() == []
        assert contents(topic) == expected
        assert list(topic.path.glob("*.tmp")) == []
        log.close()


def test_dropped_batches_that_still_exist_are_not_joined_with_others(tmp_path):
    """A deletion may end after it stored its gap: its counts must not return with other rows."""
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    topic = log.topic("t", create=True)
    batch_origin = origin(counts={"accepted": 1})
    for payload in (b"a", b"b"):
        topic.append(rows(payload), batch_origin).result(10)
    fs.failures["rename"] = 5
    with pytest.raises(WriteFailed):
        log.delete("t")
    fs.failures.clear()
    for payload in (b"c", b"d"):
        topic.append(rows(payload), batch_origin).result(10)
    log.configure("t", {"segment_size_limit": 1})
    fill(topic, [b"e"])
    topic.compact()
    assert payloads(topic) == [b"c", b"d", b"e"]
    assert sum(stored.origin.counts["accepted"] for stored in topic.reader().whole_batches()) == 2
    assert [(gap.begin, gap.end, gap.reason) for gap in topic.gaps()] == [(0, 2, "deleted")]
    assert topic.verify() == []
    log.close()
    log = Log(tmp_path, fs=fs)
    assert payloads(log.topic("t")) == [b"c", b"d", b"e"]
    log.close()
