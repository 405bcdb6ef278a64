"""Reading a topic's folder, from this process and from another one."""

import os
import subprocess
import sys
import textwrap
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.files.file_system import OS
from penstock.log import CorruptBatch, Gap, Log, TopicReader, TopicSettings, UnknownFormat
from penstock.log.read.segment_view import SegmentView
from penstock.log.retention import compaction
from penstock.log.store import batch_format, index, segment_files
from penstock.testing import FakeClock
from tests.fuzzed import RAW
from tests.log.log_helpers import UNSYNCED, fill, flip, last_files, offsets, opened, origin, payloads, rows

MANY = TopicSettings(segment_size_limit=2500)


@pytest.fixture
def topic(tmp_path):
    """A topic of several segments: batches of 3 rows."""
    log = Log(tmp_path, MANY, fs=UNSYNCED, clock=FakeClock(1.0))
    topic = log.topic("t", create=True)
    fill(topic, *([b"%d" % n for n in range(first, first + 3)] for first in range(0, 30, 3)))
    yield topic
    log.close()


def test_read_cuts_first_and_last_batch_of_a_range(topic):
    batches = list(topic.reader().read(4, end=11))
    assert [(s.base, s.rows, s.end) for s in batches] == [(4, 2, 6), (6, 3, 9), (9, 2, 11)]
    assert [s.batch.num_rows for s in batches] == [2, 3, 2]
    assert [(s.first, s.last) for s in batches] == [
        (1_000_004, 1_000_005),
        (1_000_006, 1_000_008),
        (1_000_009, 1_000_010),
    ]


def test_read_stops_at_max_rows_and_max_bytes(topic):
    reader = topic.reader()
    assert sum(s.rows for s in reader.read(1, max_rows=7)) == 7
    assert [s.rows for s in reader.read(0, max_bytes=1)] == [3]
    assert 3 < sum(s.rows for s in reader.read(0, max_bytes=2000)) < 30
    assert list(reader.read(0, max_rows=0)) == list(reader.read(30)) == list(reader.read(99)) == []
    assert len(list(reader.read(-5))) == 10


def test_at_timestamp_returns_first_offset_at_or_after_it(topic):
    reader = topic.reader()
    assert [reader.at_timestamp(1_000_000 + n) for n in range(30)] == list(range(30))
    assert (reader.at_timestamp(0), reader.at_timestamp(1_000_030)) == (0, 30)


def test_whole_batches_have_origins_before_they_are_loaded(topic):
    batches = list(topic.reader().whole_batches(7))
    assert [s.base for s in batches] == list(range(6, 30, 3))
    assert batches[0].origin == origin()
    assert batches[0].batch.num_rows == 3


def test_open_reader_follows_new_data_and_new_segments(topic):
    reader = topic.reader()
    for n in range(30, 60):
        fill(topic, [b"%d" % n])
        assert reader.end == n + 1
        assert payloads(reader, n - 1) == [b"%d" % (n - 1), b"%d" % n]
    assert offsets(reader) == list(range(60))


def test_open_reader_continues_after_several_new_segments(topic):
    reader = topic.reader()
    assert reader.end == 30
    fill(topic, *([b"x" * 1000] for _ in range(20)))
    assert offsets(reader) == list(range(50))


def test_reader_ignores_data_beyond_the_synced_length(topic):
    files = last_files(topic.path)
    end = topic.end
    with open(files.data, "ab") as file:
        file.write(files.data.read_bytes()[-700:])
    assert TopicReader(topic.path).end == end


@pytest.mark.parametrize("position", range(24))
def test_reader_finds_the_synced_length_despite_a_flipped_bit(topic, position):
    files = last_files(topic.path)
    with open(files.data, "ab") as file:
        file.write(bytes(1 << 16))
    flip(files.synced, position, 0x40)
    assert offsets(TopicReader(topic.path)) == list(range(30))


@pytest.fixture
def stored_words(tmp_path):
    """Return the files of a segment of three rows, and its synced words after each of them."""
    with opened(tmp_path) as topic:
        files, words = last_files(topic.path), []
        for _ in range(3):
            fill(topic, [b"x"])
            words.append(files.synced.read_bytes())
    return files, words


@pytest.mark.parametrize(("stored", "end"), [(1, 2), (2, 3), (3, 3)])
def test_reader_understands_the_words_of_a_writer_killed_between_two_stores(stored_words, stored, end):
    files, (_, before, after) = stored_words
    files.synced.write_bytes(before[: 24 - 8 * stored] + after[24 - 8 * stored :])
    assert TopicReader(files.directory).end == end


def test_reader_keeps_its_rows_while_the_synced_length_is_unknown(stored_words, caplog):
    files, (oldest, before, after) = stored_words
    files.synced.write_bytes(before)
    reader, view = TopicReader(files.directory), SegmentView(files.directory, files.first)
    view.refresh(sealed=False)
    assert (reader.end, view.end) == (2, 2)
    files.synced.write_bytes(oldest[:8] + before[8:16] + after[16:])
    for _ in range(2):
        view.refresh(sealed=False)
        assert (reader.end, view.end) == (2, 2)
    assert view.damaged_lengths == 1
    assert f"{files.synced} is damaged: newer rows are visible after the next commit or start" in caplog.text
    assert TopicReader(files.directory).end == 0
    files.synced.write_bytes(after)
    assert reader.end == 3


def test_batches_behind_an_older_synced_length_are_not_lost_if_the_index_is_damaged(stored_words):
    files, (oldest, _, after) = stored_words
    files.synced.write_bytes(oldest)
    flip(files.index, index.HEADER_SIZE)
    reader, view = TopicReader(files.directory), SegmentView(files.directory, files.first)
    view.refresh(sealed=False)
    assert (view.end, len(view.records)) == (1, 1)
    assert (payloads(reader), reader.end) == ([b"x"], 1)
    files.synced.write_bytes(after)
    assert (payloads(reader), reader.end) == ([b"x"] * 3, 3)


def test_damaged_batch_is_an_error_until_it_is_a_gap(topic):
    files = last_files(topic.path)
    base = files.first
    length, _ = segment_files.read_synced(OS, files)
    flip(files.data, length - 100)
    reader = topic.reader()
    with pytest.raises(CorruptBatch) as bad:
        list(reader.read(0))
    assert (bad.value.begin, bad.value.end) == (27, 30)
    with pytest.raises(CorruptBatch):
        list(reader.whole_batches(base))
    assert topic.verify(bad.value.begin, bad.value.end) == [
        Gap(27, 30, "corrupt", {"events": {origin().bucket: 3}}, {})
    ]
    assert offsets(reader) == list(range(27))
    assert len(list(reader.whole_batches())) == 9
    assert reader.end == 30


def test_gaps_are_skipped_and_parts_of_batches_are_served(topic):
    topic._gaps.add([Gap(0, 4, "expired read"), Gap(7, 8, "x"), Gap(10, 16, "y"), Gap(29, 30, "z")])
    remaining = [n for n in range(30) if not (n < 4 or n == 7 or 10 <= n < 16 or n == 29)]
    assert offsets(topic) == remaining
    assert topic.start == 4
    assert payloads(topic, 14) == [b"%d" % n for n in remaining if n >= 16]


def test_open_reader_skips_segments_that_are_removed(topic):
    reader = topic.reader()
    firsts = sorted(int(p.stem) for p in topic.path.glob("*.arrows"))
    stream = reader.read(0)
    next(stream)
    topic._gaps.add([Gap(0, firsts[2], "expired unread")])
    for first in firsts[:2]:
        for file in topic.path.glob(f"{first:020}.*"):
            file.unlink()
    rest = [offset for stored in stream for offset in range(stored.base, stored.end)]
    assert rest[-1] == 29
    assert TopicReader(topic.path).start == reader.start == firsts[2]


@pytest.mark.parametrize("harm", ["missing", "cut", "wrong"])
def test_reader_scans_data_if_the_index_is_unusable(topic, harm):
    for file in topic.path.glob("*.index"):
        data = file.read_bytes()
        file.write_bytes({"missing": b"", "cut": data[:-50], "wrong": data[:-60] + b"?" + data[-59:]}[harm])
        if harm == "missing":
            file.unlink()
    reader = TopicReader(topic.path)
    assert offsets(reader) == list(range(30))
    fill(topic, [b"more"])
    assert reader.end == 31


def test_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        _ = TopicReader(tmp_path / "none").end
    assert (TopicReader(tmp_path).start, TopicReader(tmp_path).end, offsets(TopicReader(tmp_path))) == (0, 0, [])


def test_batch_is_a_view_of_the_file(topic):
    before = pa.total_allocated_bytes()
    batches = [s.batch for s in topic.reader().read(0)]
    assert pa.total_allocated_bytes() - before < 1000
    assert sum(b.num_rows for b in batches) == 30


def run(program, *arguments):
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)], capture_output=True, timeout=60
    )
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode().split()


def test_plain_arrow_reads_a_segment_without_this_package(topic):
    program = """
        import sys, glob
        import pyarrow.ipc
        for name in sorted(glob.glob(sys.argv[1] + "/*.arrows")):
            with open(name, "rb") as file:
                table = pyarrow.ipc.open_stream(file).read_all()
            print(*(value.decode() for value in table.column("payload").to_pylist()))
        assert not any(name.startswith("penstock") for name in sys.modules)
    """
    assert run(program, topic.path) == [str(n) for n in range(30)]


def test_reader_in_another_process_follows_the_writer(tmp_path):
    program = """
        import sys, pathlib
        from penstock.log import TopicReader
        reader, offset, batches = TopicReader(pathlib.Path(sys.argv[1])), 0, 0
        print("ready", flush=True)
        while offset < int(sys.argv[2]):
            for stored in reader.read(offset):
                assert stored.base == offset and stored.batch.column("offset")[0].as_py() == offset
                assert stored.batch.column("payload")[-1].as_py() == b"%d" % (stored.end - 1)
                offset, batches = stored.end, batches + 1
        print(offset, batches)
    """
    with opened(tmp_path, settings=TopicSettings(segment_size_limit=20_000)) as topic:
        reader = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(topic.path), "3000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert reader.stdout.readline().strip() == b"ready"
        for n in range(0, 3000, 10):
            topic.append(rows(*[b"%d" % k for k in range(n, n + 10)]), origin()).result(10)
        out, errors = reader.communicate(timeout=60)
    assert reader.returncode == 0, errors.decode()
    assert out.split()[0] == b"3000"
    assert len(list(topic.path.glob("*.arrows"))) > 3


def test_reader_needs_no_write_permission(topic):
    for file in topic.path.iterdir():
        os.chmod(file, 0o444)
    assert np.array_equal(offsets(TopicReader(topic.path)), np.arange(30))


def test_reader_of_many_segments_has_few_open_files(topic):
    fill(topic, *([b"x" * 3000] for _ in range(100)))
    reader, before = topic.reader(), len(os.listdir("/proc/self/fd"))
    batches = [s.batch for s in reader.read(0)]
    assert len(os.listdir("/proc/self/fd")) < before + 30
    assert sum(b.num_rows for b in batches) == 130
    assert batches[40].column("payload")[0].as_py() == b"x" * 3000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(synced=RAW, index=RAW, prefix_length=st.integers(0, 200))
def test_reader_finds_only_existing_rows_with_random_side_files(topic, synced, index, prefix_length):
    files = last_files(topic.path)
    files.synced.write_bytes(synced)
    files.index.write_bytes(files.index.read_bytes()[:prefix_length] + index)
    read_offsets = offsets(TopicReader(topic.path))
    assert read_offsets == list(range(len(read_offsets)))
    assert len(read_offsets) <= 30


def test_batches_are_read_back_from_any_offset(topic):
    batches = list(topic.reader().read_back(11))
    assert [(s.base, s.rows) for s in batches] == [(9, 2), (6, 3), (3, 3), (0, 3)]
    assert next(topic.reader().read_back(99)).end == 30
    assert list(topic.reader().read_back(0)) == []


def test_read_back_reverses_read_also_with_gaps(topic):
    topic._gaps.add([Gap(0, 4, "expired read"), Gap(7, 8, "x"), Gap(10, 16, "y"), Gap(29, 30, "z")])
    for before in range(32):
        ahead = [(s.base, s.end) for s in topic.reader().read(0, end=before)]
        assert [(s.base, s.end) for s in topic.reader().read_back(before)] == ahead[::-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.sets(st.integers(0, 31), max_size=12))
def test_extent_equals_that_of_a_full_read(tmp_path_factory, edges):
    log = Log(tmp_path_factory.mktemp("log"), MANY, fs=UNSYNCED, clock=FakeClock(1.0))
    topic = log.topic("t", create=True)
    fill(topic, *([b"%d" % n for n in range(first, first + 3)] for first in range(0, 30, 3)))
    topic._gaps.add([Gap(begin, end, "x") for begin, end in pairwise(sorted(edges)) if begin % 2])
    reader = topic.reader()
    stamps = [micros for stored in reader.read(0) for micros in stored.batch["timestamp"].cast(pa.int64()).to_pylist()]
    extent = reader.extent()
    assert (extent.start, extent.end, extent.gaps) == (reader.start, reader.end, reader.gaps())
    assert (extent.oldest, extent.newest) == ((stamps[0], stamps[-1]) if stamps else (None, None))
    log.close()


def test_empty_topic_has_an_extent_without_times(tmp_path):
    log = Log(tmp_path, MANY, fs=UNSYNCED)
    extent = log.topic("t", create=True).reader().extent()
    assert (extent.start, extent.end, extent.gaps, extent.oldest, extent.newest) == (0, 0, [], None, None)
    log.close()


def outcome(read):
    """Return offsets and payloads up to the end or a damaged batch, and that batch's offsets."""
    payloads_read, bad = [], None
    try:
        for batch in read:
            payloads_read += zip(batch["offset"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    except CorruptBatch as error:
        bad = error.begin, error.end
    return payloads_read, bad


def test_contiguous_small_batches_are_joined(topic):
    fill(topic, *([b"x" * 10] for _ in range(20)))
    pieces = [batch.num_rows for batch in topic.reader().read_joined(0)]
    assert sum(pieces) == 50
    assert len(pieces) == len(list(topic.path.glob("*.arrows"))), "one a segment"
    assert [batch.num_rows for batch in topic.reader().read_joined(0, room=1)] == [3] * 10 + [1] * 20


def test_read_joined_with_an_earlier_end_does_not_refresh(topic, monkeypatch):
    reader = topic.reader()
    _, end, _ = reader.span()
    fill(topic, [b"behind it"])
    monkeypatch.setattr(reader, "_refresh", lambda: pytest.fail("the folder was examined"))
    assert sum(batch.num_rows for batch in reader.read_joined(0, end=end)) == end == 30
    assert list(reader.read_joined(30, end=end)) == []


def test_large_batch_among_small_ones_is_a_view_of_the_file(topic):
    fill(topic, [b"x" * 100_000])
    before = pa.total_allocated_bytes()
    *_, last = topic.reader().read_joined(29, room=50_000)
    assert pa.total_allocated_bytes() - before < 1000
    assert last["payload"][0].as_py() == b"x" * 100_000


@pytest.mark.parametrize("harm", ["index", "preamble"])
def test_read_joined_works_without_index_or_preamble(topic, harm):
    for file in topic.path.glob("*.index" if harm == "index" else "*.arrows"):
        flip(file, -1 % file.stat().st_size if harm == "index" else 60)
    assert [offset for offset, _ in outcome(topic.reader().read_joined(0))[0]] == list(range(30))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    edges=st.sets(st.integers(0, 50), max_size=8),
    flips=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1 << 20), st.integers(0, 7)), max_size=3),
    offset=st.integers(-2, 60),
    max_rows=st.none() | st.integers(0, 60),
    room=st.integers(1, 20_000),
)
def test_read_joined_yields_the_rows_of_read_up_to_the_same_damage(
    tmp_path_factory, edges, flips, offset, max_rows, room
):
    log = Log(tmp_path_factory.mktemp("log"), TopicSettings(segment_size_limit=6000), fs=UNSYNCED)
    topic = log.topic("t", create=True)
    fill(topic, *([b"%d" % n] * (n % 4 + 1) for n in range(20)))
    topic._gaps.add([Gap(begin, end, "x") for begin, end in pairwise(sorted(edges)) if begin % 2])
    files = sorted(path for kind in ("arrows", "index") for path in topic.path.glob(f"*.{kind}"))
    for file, position, bit in flips:
        path = files[file % len(files)]
        flip(path, position % path.stat().st_size, 1 << bit)
    plain = outcome(stored.batch for stored in topic.reader().read(offset, max_rows=max_rows))
    assert outcome(topic.reader().read_joined(offset, max_rows=max_rows, room=room)) == plain
    log.close()


def test_read_joined_unpacks_no_more_compressed_batches_than_requested(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "MERGE_ROWS", 1)
    with opened(tmp_path, settings=TopicSettings(segment_size_limit=1 << 20, compression="zstd")) as topic:
        fill(topic, *([b"x" * 100_000] for _ in range(25)))
        topic.compact()
        sealed = min(topic.path.glob("*.arrows"))
        assert sealed.stat().st_size < 20_000
        first = next(topic.reader().read_joined(0, room=250_000))
        assert first.num_rows == 3, "the room holds two and a half"


def test_read_joined_refuses_batches_of_a_later_version(topic, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(batch_format, "VERSION", 2)
        fill(topic, [b"a"], [b"b"], [b"c"])
    with pytest.raises(UnknownFormat, match="version 2"):
        outcome(topic.reader().read_joined(30))
