"""Opening a topic after any damage of its files."""

import contextlib
import errno
import json
import shutil
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import Gap, LogError, LogFull, TopicSettings, WriteFailed
from penstock.log.store import index
from penstock.log.store.segment_files import SegmentFiles, first_offsets, read_synced
from penstock.testing import Crashed, CrashingFileSystem
from tests.log.log_helpers import BUCKET, fill, flip, last_files, offsets, opened, origin, payloads, rows

MARKS = b"\xff\xff\xff\xff\x10\0\0\0" * 9
SMALL = TopicSettings(segment_size_limit=1)
BATCHES = [[b"a1", b"a2"], [b"b1"], [b"c1", b"c2", b"c3"], [b"d1"]]


ALL = list(chain.from_iterable(BATCHES))


def joined(batches):
    return list(chain.from_iterable(batches))


def make(folder, batches=BATCHES, **more):
    with opened(folder, **more) as topic:
        fill(topic, *batches)
        return topic.path


def gap_of(begin, end, reason="corrupt"):
    """Return a gap with the counts of its batches' copies."""
    return Gap(begin, end, reason, {"events": {BUCKET: end - begin}}, {})


def batch_spans(path):
    records = index.unpack(last_files(path).index.read_bytes()[index.HEADER_SIZE :])
    return [(int(r["position"]), int(r["position"] + r["length"])) for r in records]


def forget_synced(path):
    """Leave the data only, as if the machine had stopped before the batch after the cut was acknowledged."""
    files = last_files(path)
    files.synced.unlink()
    files.index.unlink()


EVERY_BYTE = pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("step", [53, EVERY_BYTE])
def test_truncation_in_the_last_two_batches_preserves_complete_batches(tmp_path, step):
    path = make(tmp_path / "whole")
    spans = batch_spans(path)
    forget_synced(path)
    for cut in range(spans[-2][0], spans[-1][1] + 1, step):
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        copy = tmp_path / "cut" / "t"
        data = last_files(copy).data.read_bytes()
        last_files(copy).data.write_bytes(data[:cut])
        complete = sum(end <= cut for _, end in spans)
        with opened(tmp_path / "cut") as topic:
            assert topic.gaps() == []
            assert payloads(topic) == joined(BATCHES[:complete])
            fill(topic, [b"new"])
            assert offsets(topic) == list(range(len(joined(BATCHES[:complete])) + 1))
        torn = [p.read_bytes() for p in (copy / "quarantine").glob("*")] if (copy / "quarantine").exists() else []
        start = spans[complete - 1][1]
        assert b"".join(torn) == data[start:cut]
        shutil.rmtree(tmp_path / "cut")


@pytest.mark.parametrize("step", [101, EVERY_BYTE])
def test_flipped_byte_turns_one_batch_into_a_gap(tmp_path, step):
    make(tmp_path / "whole")
    files = last_files(tmp_path / "whole" / "t")
    spans = batch_spans(files.directory)
    owners = {p: n for n, (begin, end) in enumerate(spans) for p in range(begin, end)}
    begins = [sum(map(len, BATCHES[:n])) for n in range(len(BATCHES) + 1)]
    sample = sorted(owners)[::step]
    sample += [begin + k for begin, _ in spans for k in (0, 3, 4, 5, 7, 8)]
    for position in sample:
        shutil.copytree(tmp_path / "whole", tmp_path / "bad")
        flip(tmp_path / "bad" / "t" / files.data.name, position, 1 << position % 8)
        bad = owners[position]
        with opened(tmp_path / "bad") as topic:
            (gap,) = topic.gaps()
            assert gap == gap_of(begins[bad], begins[bad + 1])
            assert payloads(topic) == joined(BATCHES[:bad] + BATCHES[bad + 1 :])
            assert topic.end == begins[-1]
            fill(topic, [b"new"])
            assert offsets(topic)[-1] == begins[-1]
            assert len(list((topic.path / "quarantine").iterdir())) == 1
        with opened(tmp_path / "bad") as topic:
            assert len(topic.gaps()) == 1
            assert payloads(topic)[-1] == b"new"
        shutil.rmtree(tmp_path / "bad")


def test_flipped_byte_without_an_index_loses_only_one_batch(tmp_path):
    make(tmp_path / "whole")
    spans = batch_spans(tmp_path / "whole" / "t")
    for bad, (begin, end) in enumerate(spans):
        shutil.copytree(tmp_path / "whole", tmp_path / "bad")
        files = last_files(tmp_path / "bad" / "t")
        flip(files.data, (begin + end) // 2)
        files.index.unlink()
        with opened(tmp_path / "bad") as topic:
            (gap,) = topic.gaps()
            assert gap == gap_of(gap.begin, gap.begin + len(BATCHES[bad]))
            assert topic.end == sum(map(len, BATCHES))
            assert payloads(topic) == joined(BATCHES[:bad] + BATCHES[bad + 1 :])
        shutil.rmtree(tmp_path / "bad")


def test_missing_synced_batch_is_a_gap_and_its_offsets_are_not_reused(tmp_path):
    path = make(tmp_path)
    files = last_files(path)
    files.data.write_bytes(files.data.read_bytes()[: batch_spans(path)[-1][0]])
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(6, 7)]
        fill(topic, [b"new"])
        assert offsets(topic) == [0, 1, 2, 3, 4, 5, 7]


def test_missing_batch_is_detected_by_the_synced_length_alone(tmp_path):
    path = make(tmp_path)
    files = last_files(path)
    files.data.write_bytes(files.data.read_bytes()[: batch_spans(path)[-2][0]])
    files.index.unlink()
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(3, 7)]
        assert (payloads(topic), topic.end) == ([b"a1", b"a2", b"b1"], 7)


@pytest.mark.parametrize(
    "tail", [b"\0" * 4096 + b"x", b"\xff" * 999, bytes(range(256)) * 5, b"\xff\xff\xff\xff\x10\0\0\0" * 9]
)
def test_tail_of_random_bytes_is_quarantined(tmp_path, tail):
    path = make(tmp_path)
    with open(last_files(path).data, "ab") as file:
        file.write(tail)
    with opened(tmp_path) as topic:
        assert topic.gaps() == []
        fill(topic, [b"new"])
        assert payloads(topic) == [*ALL, b"new"]
    (quarantined,) = (path / "quarantine").iterdir()
    assert quarantined.read_bytes() == tail


def test_tail_of_zeros_is_cut_off_like_preallocated_space(tmp_path):
    path = make(tmp_path)
    complete = last_files(path).data.read_bytes()
    last_files(path).data.write_bytes(complete + bytes(4096))
    with opened(tmp_path) as topic:
        assert (topic.gaps(), payloads(topic)) == ([], ALL)
        assert last_files(path).data.read_bytes() == complete
    assert not (path / "quarantine").exists()


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "empty", "foreign", "zeros"])
@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_unusable_index_is_rebuilt(tmp_path, harm, limit):
    path = make(tmp_path, settings=TopicSettings(segment_size_limit=limit))
    for file in path.glob("*.index"):
        good = file.read_bytes()
        bad = {
            "cut": good[:-1],
            "flipped": good[:-20] + bytes([good[-20] ^ 1]) + good[-19:],
            "empty": b"",
            "foreign": b"x" * len(good),
            "zeros": good[:64] + bytes(len(good) - 64),
        }
        file.unlink() if harm == "missing" else file.write_bytes(bad[harm])
        file.with_suffix(".good").write_bytes(good)
    with opened(tmp_path) as topic:
        assert topic.gaps() == []
        assert payloads(topic) == ALL
        assert all(p.with_suffix(".index").read_bytes() == p.read_bytes() for p in path.glob("*.good"))


@pytest.mark.parametrize("harm", [b"", b"\0" * 24, b"\xff" * 24, b"short"])
def test_missing_or_damaged_synced_file_is_rebuilt(tmp_path, harm):
    files = last_files(make(tmp_path))
    good = files.synced.read_bytes()
    files.synced.write_bytes(harm) if harm else files.synced.unlink()
    with opened(tmp_path) as topic:
        assert payloads(topic) == ALL
        assert files.synced.read_bytes() == good


@pytest.mark.parametrize("kind", ["index", "synced", "start_state"])
def test_damaged_companion_is_named_in_the_log(tmp_path, caplog, kind):
    path = make(tmp_path)
    with opened(tmp_path):
        assert caplog.messages == []
    file = getattr(last_files(path), kind)
    file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))
    with opened(tmp_path) as topic:
        assert payloads(topic) == ALL
    assert [message.partition(" ")[0] for message in caplog.messages] == [str(file)]


def test_damaged_schema_message_is_rewritten(tmp_path):
    files = last_files(make(tmp_path))
    good = files.data.read_bytes()
    flip(files.data, 20, 0xFF)
    with opened(tmp_path) as topic:
        assert payloads(topic) == ALL
    assert files.data.read_bytes() == good


def test_manually_removed_segment_is_a_gap(tmp_path):
    path = make(tmp_path, settings=SMALL)
    (path / f"{2:020}.arrows").unlink()
    (path / f"{0:020}.arrows").unlink()
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(0, 2, "deleted"), gap_of(2, 3, "deleted")]
        assert (topic.start, topic.end, payloads(topic)) == (3, 7, [b"c1", b"c2", b"c3", b"d1"])


def test_truncated_sealed_segment_is_a_gap_with_its_counts(tmp_path):
    path = make(tmp_path, settings=TopicSettings(segment_size_limit=2500))
    first = path / f"{0:020}.arrows"
    first.write_bytes(first.read_bytes()[:-100])
    with opened(tmp_path) as topic:
        (gap,) = topic.gaps()
        assert sum(gap.counts["events"].values()) == gap.end - gap.begin
        assert len(payloads(topic)) == 7 - (gap.end - gap.begin)


@pytest.mark.parametrize("has_copies", [True, False])
@pytest.mark.parametrize("remaining", [0, 1])
def test_rows_are_counted_of_a_sealed_segment_whose_data_and_index_lost_their_ends(tmp_path, remaining, has_copies):
    path = make(tmp_path, settings=TopicSettings(segment_size_limit=2500))
    files, (following,) = SegmentFiles(path, 0), first_offsets(file.name for file in path.iterdir())[1:]
    content = files.index.read_bytes()
    first_lost = index.unpack(content[index.HEADER_SIZE :])[remaining]
    files.index.write_bytes(content[: index.HEADER_SIZE + remaining * index.RECORD.itemsize])
    files.data.write_bytes(files.data.read_bytes()[: int(first_lost["position"])])
    if not has_copies:
        files.copies.unlink()
    base = int(first_lost["base"])
    lost = gap_of(base, following) if has_copies else Gap(base, following, "corrupt")
    for _ in range(2):
        with opened(tmp_path) as topic:
            assert topic.gaps() == [lost]
            assert payloads(topic) == [*ALL[:base], *ALL[following:]]


def test_rows_are_counted_of_a_segment_of_which_only_copies_are_left(tmp_path):
    path = make(tmp_path, settings=SMALL)
    files = SegmentFiles(path, 2)
    for lost in (files.data, files.index):
        lost.unlink()
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(2, 3)]
        assert payloads(topic) == [b"a1", b"a2", *ALL[3:]]


def test_verification_counts_rows_of_a_sealed_segment_that_lost_its_end(tmp_path):
    path = make(tmp_path, settings=TopicSettings(segment_size_limit=2500))
    with opened(tmp_path) as topic:
        files = SegmentFiles(path, 0)
        following = first_offsets(file.name for file in path.iterdir())[1]
        files.index.write_bytes(files.index.read_bytes()[: index.HEADER_SIZE])
        files.data.write_bytes(b"")
        assert topic.verify() == topic.gaps() == [gap_of(0, following)]


def test_payload_that_looks_like_a_batch_is_not_recovered(tmp_path):
    path = make(tmp_path / "a")
    inner = last_files(path).data.read_bytes()
    with opened(tmp_path / "b") as topic:
        fill(topic, [inner, inner], [b"last"])
        spans = batch_spans(topic.path)
    files = last_files(topic.path)
    flip(files.data, spans[0][0] + 4)
    files.index.unlink()
    with opened(tmp_path / "b") as topic:
        assert (payloads(topic), topic.gaps()) == ([b"last"], [gap_of(0, 2)])


def test_topic_opens_and_is_readable_on_a_full_disk(tmp_path):
    path = make(tmp_path)
    with open(last_files(path).data, "ab") as file:
        file.write(b"torn" * 100)
    fs = CrashingFileSystem(tmp_path)
    fs.free = 0
    with opened(tmp_path, fs=fs) as topic:
        assert (payloads(topic), topic.end) == (ALL, 7)
        with pytest.raises(LogFull):
            topic.append(rows(b"x"), origin()).result(10)
        fs.free = None
        fill(topic, [b"new"])
        assert payloads(topic) == [*ALL, b"new"]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_recovery_that_stops_at_any_operation_is_repeated(tmp_path, is_power_cut):
    path = make(tmp_path / "whole")
    begin, _ = batch_spans(path)[-1]
    flip(last_files(path).data, batch_spans(path)[1][0] + 300)
    last_files(path).data.write_bytes(last_files(path).data.read_bytes()[: begin + 100])
    for stop_after in range(60):
        folder = tmp_path / f"{stop_after}"
        shutil.copytree(tmp_path / "whole", folder)
        fs = CrashingFileSystem(folder, stop_after)
        fs.stop_after = stop_after
        with suppress(Crashed, LogError), opened(folder, fs=fs) as topic:
            topic.append(rows(b"x"), origin())
        (fs.crash if is_power_cut else fs.kill)()
        with opened(folder, fs=fs) as topic:
            assert topic.gaps()[:2] == [gap_of(2, 3), gap_of(6, 7)]
            assert payloads(topic)[:5] == [b"a1", b"a2", b"c1", b"c2", b"c3"]
            assert len(list((topic.path / "quarantine").iterdir())) >= 2


def test_rows_of_a_killed_writer_survive_a_power_cut_after_their_recovery(tmp_path):
    for stop_after in range(20):
        folder = tmp_path / f"{stop_after}"
        fs = CrashingFileSystem(folder, stop_after)
        with opened(folder, fs=fs) as topic:
            fill(topic, [b"a"])
            fs.stop_after = 1
            with suppress(LogError, Crashed):
                fill(topic, [b"b"])
        fs.kill()
        fs.stop_after = stop_after
        seen = []
        with suppress(LogError, Crashed), opened(folder, fs=fs) as topic:
            seen = payloads(topic)
            fs.stop_after = 0
        fs.crash()
        with opened(folder, fs=fs) as topic:
            assert topic.gaps() == []
            assert payloads(topic)[: len(seen)] == seen


def test_row_that_a_lying_sync_lost_is_in_a_gap_if_its_index_or_its_end_is_on_the_disk(tmp_path):
    outcomes = set()
    for seed in range(40):
        folder = tmp_path / f"{seed}"
        fs = CrashingFileSystem(folder, seed)
        with opened(folder, fs=fs) as topic:
            fill(topic, [b"a"])
            fs.lies = True
            fill(topic, [b"b"])
        fs.lies = False
        fs.crash()
        files = last_files(topic.path)
        named = len(index.read(files.index.read_bytes(), files.fingerprint))
        _, synced = read_synced(fs, files) or (0, 0)
        with opened(folder, fs=fs) as topic:
            gaps, stored = topic.gaps(), payloads(topic)
            assert topic.end >= max(synced, named)
        assert stored in ([b"a"], [b"a", b"b"])
        lost = topic.end > len(stored)
        assert [(gap.begin, gap.end, gap.reason) for gap in gaps] == [(1, 2, "corrupt")] * lost
        outcomes.add((len(stored), lost))
    # The last one: nothing on the disk names the row.
    assert outcomes == {(2, False), (1, True), (1, False)}


class UnreadableFiles(CrashingFileSystem):
    """A file system whose reads fail once, from the operation ``unreadable`` on."""

    def __init__(self, root, unreadable):
        super().__init__(root)
        self.unreadable = unreadable

    def _fail(self):
        self.unreadable -= 1
        if self.unreadable == -1:
            raise OSError(errno.EIO, "Input/output error")

    def read(self, path):
        self._fail()
        return super().read(path)

    def map(self, path):
        self._fail()
        return super().map(path)

    def names(self, directory):
        self._fail()
        return super().names(directory)

    def size(self, path):
        self._fail()
        return super().size(path)


@pytest.mark.survives("log", "failing disk")
@pytest.mark.parametrize("settings", [None, SMALL], ids=["one segment", "many segments"])
def test_failing_read_is_reported_and_nothing_is_taken_for_lost(tmp_path, settings):
    path = make(tmp_path / "whole", settings=settings)
    forget_synced(path)
    errors = []
    for number in range(40):
        folder = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "whole", folder)
        fs = UnreadableFiles(folder, number)
        try:
            with opened(folder, fs=fs) as topic:
                topic.append(rows(b"x"), origin()).result(10)
        except (LogError, OSError) as error:
            errors.append(str(error))
        with opened(folder) as topic:
            assert payloads(topic)[:7] == ALL
            assert topic.gaps() == []
        assert not (topic.path / "quarantine").exists()
    assert len(errors) >= 5
    assert all("Input/output error" in error for error in errors)


def test_torn_line_of_the_gaps_is_ignored(tmp_path):
    path = make(tmp_path)
    flip(last_files(path).data, batch_spans(path)[0][0] + 300)
    with opened(tmp_path) as topic:
        gaps = topic.gaps()
    file = path / "gaps.jsonl"
    file.write_bytes(file.read_bytes() + b'{"begin":5,"end":900,"rea')
    with opened(tmp_path) as topic:
        assert topic.gaps() == gaps
        assert payloads(topic) == joined(BATCHES[1:])
    assert json.loads(file.read_bytes().splitlines()[0][8:])["begin"] == 0


def crash_run(folder, seed, stop_after, durability="synced"):
    """Write until the machine stops, and start again repeatedly; return acknowledged and stored payloads by offset,
    gaps and end.
    """
    fs = CrashingFileSystem(folder, seed)
    acknowledged = {}
    number = 0
    for life in range(3):
        fs.stop_after = stop_after + 7 * life
        try:
            with opened(folder, settings=TopicSettings(segment_size_limit=1500, durability=durability), fs=fs) as topic:
                for _ in range(8):
                    number += 1
                    answer = topic.append(rows(*[b"%d" % number] * (1 + number % 3)), origin()).result(10)
                    acknowledged |= {answer.first + k: b"%d" % number for k in range(answer.count)}
        except (WriteFailed, Crashed):
            assert fs.stop_after < 0
        fs.crash()
    with opened(folder, fs=fs) as topic:
        stored = dict(zip(offsets(topic), payloads(topic), strict=True))
        return acknowledged, stored, topic.gaps(), topic.end


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), stop_after=st.integers(1, 90))
def test_acknowledged_rows_are_stored_once_after_power_cuts(tmp_path_factory, seed, stop_after):
    acknowledged, stored, gaps, end = crash_run(tmp_path_factory.mktemp("crash"), seed, stop_after)
    assert acknowledged.items() <= stored.items()
    assert gaps == []
    assert sorted(stored) == list(range(end))
    values = list(stored.values())
    assert all(values.count(v) == 1 + int(v) % 3 for v in set(values))


@pytest.mark.parametrize("killed_after", range(1, 7))
def test_power_cut_during_the_recovery_of_a_killed_writer_is_no_damage(tmp_path, killed_after):
    for stop_after in range(1, 32):
        folder = tmp_path / str(stop_after)
        fs = CrashingFileSystem(folder, stop_after)
        with contextlib.suppress(WriteFailed, Crashed), opened(folder, fs=fs) as topic:
            topic.append(rows(b"1"), origin()).result(10)
            fs.stop_after = killed_after
            topic.append(rows(b"2" * 3000), origin()).result(10)
        fs.kill()
        fs.stop_after = stop_after
        with contextlib.suppress(WriteFailed, Crashed), opened(folder, fs=fs):
            pass
        fs.crash()
        with opened(folder, fs=fs) as topic:
            assert payloads(topic) in ([b"1"], [b"1", b"2" * 3000])
            assert topic.gaps() == []


def test_frame_is_passed_only_with_its_row_after_a_power_cut_during_the_recovery_of_a_damaged_segment(tmp_path):
    for stop_after in range(20):
        path = make(folder := tmp_path / str(stop_after))
        flip(last_files(path).data, batch_spans(path)[0][0] + 300)
        fs = CrashingFileSystem(folder, 7 * stop_after)
        with suppress(WriteFailed, Crashed), opened(folder, fs=fs) as topic:
            fs.stop_after = 5  # the row is written, not synced
            topic.append(rows(b"2" * 3000), origin(buffer="udp", begin=0, end=64)).result(10)
        fs.kill()
        fs.stop_after = stop_after
        with suppress(WriteFailed, Crashed), opened(folder, fs=fs):
            pass
        fs.crash()
        with opened(folder, fs=fs) as topic:
            assert topic.buffer_position("udp") == (64 if b"2" * 3000 in payloads(topic) else 0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), stop_after=st.integers(1, 90))
def test_each_unsynced_row_is_stored_or_in_a_gap_after_a_power_cut(tmp_path_factory, seed, stop_after):
    _, stored, gaps, end = crash_run(tmp_path_factory.mktemp("crash"), seed, stop_after, "written")
    missing = {offset for gap in gaps for offset in range(gap.begin, gap.end)}
    assert sorted([*stored, *missing]) == list(range(end))
    values = list(stored.values())
    assert all(values.count(v) == 1 + int(v) % 3 for v in set(values))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_topic_opens_and_each_offset_is_a_row_or_in_a_gap(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("harm")
    path = make(folder, settings=TopicSettings(segment_size_limit=data.draw(st.sampled_from([1, 2500, 1 << 20]))))
    names = sorted(p.name for p in path.iterdir() if p.is_file())
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        harm(path / name, data)
    with opened(folder) as topic:
        end = topic.end
        topic.verify(0, end)
        recovered = payloads(topic)
        missing = {offset for gap in topic.gaps() for offset in range(gap.begin, gap.end)}
        assert sorted([*offsets(topic), *missing]) == list(range(end))
        assert set(recovered) <= set(ALL)
        fill(topic, [b"new"])
        assert offsets(topic)[-1] == end


def harm(file, data):
    if not file.exists():
        return
    content = file.read_bytes()
    kind = data.draw(st.sampled_from(["delete", "cut", "flip", "zero", "append"]))
    position = data.draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "delete":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(content[:position])
    elif kind == "flip" and content:
        flip(file, position, data.draw(st.integers(1, 255)))
    elif kind == "zero":
        file.write_bytes(content[:position] + bytes(len(content) - position))
    else:
        file.write_bytes(content + data.draw(st.binary(max_size=200)))
