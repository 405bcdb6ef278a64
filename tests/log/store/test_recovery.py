"""Opening a topic after anything that can happen to its files."""

import json
import shutil
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import Gap, LogFull, TopicSettings, WriteFailed
from penstock.log.store import index
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
    """As the copies of its batches tell."""
    return Gap(begin, end, reason, {"events": {BUCKET: end - begin}}, {})


def batch_places(path):
    records = index.read(last_files(path).index.read_bytes())
    return [(int(r["position"]), int(r["position"] + r["length"])) for r in records]


def forget_synced(path):
    """As if the machine had stopped before the batch after the cut was acknowledged: only the data is there."""
    files = last_files(path)
    files.synced.unlink()
    files.index.unlink()


EVERY_BYTE = pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("step", [53, EVERY_BYTE])
def test_a_tail_cut_anywhere_in_the_last_two_batches_keeps_all_whole_batches(tmp_path, step):
    path = make(tmp_path / "whole")
    places = batch_places(path)
    forget_synced(path)
    for cut in range(places[-2][0], places[-1][1] + 1, step):
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        copy = tmp_path / "cut" / "t"
        data = last_files(copy).data.read_bytes()
        last_files(copy).data.write_bytes(data[:cut])
        whole = sum(end <= cut for _, end in places)
        with opened(tmp_path / "cut") as topic:
            assert topic.gaps() == []
            assert payloads(topic) == joined(BATCHES[:whole])
            fill(topic, [b"new"])
            assert offsets(topic) == list(range(len(joined(BATCHES[:whole])) + 1))
        torn = [p.read_bytes() for p in (copy / "quarantine").glob("*")] if (copy / "quarantine").exists() else []
        start = places[whole - 1][1]
        assert b"".join(torn) == data[start:cut]
        shutil.rmtree(tmp_path / "cut")


@pytest.mark.parametrize("step", [101, EVERY_BYTE])
def test_one_flipped_byte_anywhere_costs_one_batch_which_becomes_a_gap(tmp_path, step):
    make(tmp_path / "whole")
    files = last_files(tmp_path / "whole" / "t")
    places = batch_places(files.directory)
    owners = {p: n for n, (begin, end) in enumerate(places) for p in range(begin, end)}
    begins = [sum(map(len, BATCHES[:n])) for n in range(len(BATCHES) + 1)]
    sample = sorted(owners)[::step]
    sample += [begin + k for begin, _ in places for k in (0, 3, 4, 5, 7, 8)]
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


def test_a_flip_without_index_still_costs_one_batch_only(tmp_path):
    make(tmp_path / "whole")
    places = batch_places(tmp_path / "whole" / "t")
    for bad, (begin, end) in enumerate(places):
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


def test_a_synced_batch_that_is_missing_altogether_is_a_gap_and_its_offsets_are_not_given_again(tmp_path):
    path = make(tmp_path)
    files = last_files(path)
    files.data.write_bytes(files.data.read_bytes()[: batch_places(path)[-1][0]])
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(6, 7)]
        fill(topic, [b"new"])
        assert offsets(topic) == [0, 1, 2, 3, 4, 5, 7]


def test_the_synced_length_alone_tells_that_a_batch_is_missing(tmp_path):
    path = make(tmp_path)
    files = last_files(path)
    files.data.write_bytes(files.data.read_bytes()[: batch_places(path)[-2][0]])
    files.index.unlink()
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(3, 7)]
        assert (payloads(topic), topic.end) == ([b"a1", b"a2", b"b1"], 7)


@pytest.mark.parametrize(
    "tail", [b"\0" * 4096 + b"x", b"\xff" * 999, bytes(range(256)) * 5, b"\xff\xff\xff\xff\x10\0\0\0" * 9]
)
def test_a_tail_of_garbage_is_put_aside(tmp_path, tail):
    path = make(tmp_path)
    with open(last_files(path).data, "ab") as file:
        file.write(tail)
    with opened(tmp_path) as topic:
        assert topic.gaps() == []
        fill(topic, [b"new"])
        assert payloads(topic) == [*ALL, b"new"]
    (kept,) = (path / "quarantine").iterdir()
    assert kept.read_bytes() == tail


def test_a_tail_of_zeros_is_cut_off_like_the_room_of_a_writer_that_was_killed(tmp_path):
    path = make(tmp_path)
    whole = last_files(path).data.read_bytes()
    last_files(path).data.write_bytes(whole + bytes(4096))
    with opened(tmp_path) as topic:
        assert (topic.gaps(), payloads(topic)) == ([], ALL)
        assert last_files(path).data.read_bytes() == whole
    assert not (path / "quarantine").exists()


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "empty", "foreign", "zeros"])
@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_the_index_is_rebuilt_when_it_is_of_no_use(tmp_path, harm, limit):
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
def test_a_missing_or_damaged_synced_file_is_made_again(tmp_path, harm):
    files = last_files(make(tmp_path))
    good = files.synced.read_bytes()
    files.synced.write_bytes(harm) if harm else files.synced.unlink()
    with opened(tmp_path) as topic:
        assert payloads(topic) == ALL
        assert files.synced.read_bytes() == good


def test_a_damaged_schema_message_is_written_anew(tmp_path):
    files = last_files(make(tmp_path))
    good = files.data.read_bytes()
    flip(files.data, 20, 0xFF)
    with opened(tmp_path) as topic:
        assert payloads(topic) == ALL
    assert files.data.read_bytes() == good


def test_a_segment_that_was_removed_by_hand_is_a_gap(tmp_path):
    path = make(tmp_path, settings=SMALL)
    (path / f"{2:020}.arrows").unlink()
    (path / f"{0:020}.arrows").unlink()
    with opened(tmp_path) as topic:
        assert topic.gaps() == [gap_of(0, 2, "deleted"), gap_of(2, 3, "deleted")]
        assert (topic.start, topic.end, payloads(topic)) == (3, 7, [b"c1", b"c2", b"c3", b"d1"])


def test_a_sealed_segment_that_lost_its_end_is_a_gap_with_its_counts(tmp_path):
    path = make(tmp_path, settings=TopicSettings(segment_size_limit=2500))
    first = path / f"{0:020}.arrows"
    first.write_bytes(first.read_bytes()[:-100])
    with opened(tmp_path) as topic:
        (gap,) = topic.gaps()
        assert sum(gap.counts["events"].values()) == gap.end - gap.begin
        assert len(payloads(topic)) == 7 - (gap.end - gap.begin)


def test_a_payload_that_looks_like_a_batch_is_never_taken_for_one(tmp_path):
    path = make(tmp_path / "a")
    inner = last_files(path).data.read_bytes()
    with opened(tmp_path / "b") as topic:
        fill(topic, [inner, inner], [b"last"])
        places = batch_places(topic.path)
    files = last_files(topic.path)
    flip(files.data, places[0][0] + 4)
    files.index.unlink()
    with opened(tmp_path / "b") as topic:
        assert (payloads(topic), topic.gaps()) == ([b"last"], [gap_of(0, 2)])


def test_a_full_disk_does_not_stop_the_opening_and_reads_go_on(tmp_path):
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


def test_a_torn_line_of_the_gaps_is_ignored(tmp_path):
    path = make(tmp_path)
    flip(last_files(path).data, batch_places(path)[0][0] + 300)
    with opened(tmp_path) as topic:
        gaps = topic.gaps()
    file = path / "gaps.jsonl"
    file.write_bytes(file.read_bytes() + b'{"begin":5,"end":900,"rea')
    with opened(tmp_path) as topic:
        assert topic.gaps() == gaps
        assert payloads(topic) == joined(BATCHES[1:])
    assert json.loads(file.read_bytes().splitlines()[0][8:])["begin"] == 0


def crash_run(folder, seed, stop_after, durability="synced"):
    """Write until the machine stops, start again and again; returns acknowledged payloads by offset and the topic's."""
    fs = CrashingFileSystem(folder, seed)
    acknowledged = {}
    number = 0
    for life in range(3):
        fs.stop_after = stop_after + 7 * life
        try:
            with opened(folder, settings=TopicSettings(segment_size_limit=1500, durability=durability), fs=fs) as topic:
                for _ in range(8):
                    number += 1
                    done = topic.append(rows(*[b"%d" % number] * (1 + number % 3)), origin()).result(10)
                    acknowledged |= {done.first + k: b"%d" % number for k in range(done.count)}
        except (WriteFailed, Crashed):
            assert fs.stop_after < 0
        fs.crash()
    with opened(folder, fs=fs) as topic:
        found = dict(zip(offsets(topic), payloads(topic), strict=True))
        return acknowledged, found, topic.gaps(), topic.end


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), stop_after=st.integers(1, 90))
def test_after_power_cuts_all_that_was_acknowledged_is_there_once_and_requests_are_whole(
    tmp_path_factory, seed, stop_after
):
    acknowledged, found, gaps, end = crash_run(tmp_path_factory.mktemp("crash"), seed, stop_after)
    assert acknowledged.items() <= found.items()
    assert gaps == []
    assert sorted(found) == list(range(end))
    values = list(found.values())
    assert all(values.count(v) == 1 + int(v) % 3 for v in set(values))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), stop_after=st.integers(1, 90))
def test_without_syncing_a_power_cut_may_cost_rows_but_each_is_there_or_in_a_gap(tmp_path_factory, seed, stop_after):
    _, found, gaps, end = crash_run(tmp_path_factory.mktemp("crash"), seed, stop_after, "written")
    missing = {offset for gap in gaps for offset in range(gap.begin, gap.end)}
    assert sorted([*found, *missing]) == list(range(end))
    values = list(found.values())
    assert all(values.count(v) == 1 + int(v) % 3 for v in set(values))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_happens_to_the_files_the_topic_opens_and_offsets_are_rows_or_gaps(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("harm")
    path = make(folder, settings=TopicSettings(segment_size_limit=data.draw(st.sampled_from([1, 2500, 1 << 20]))))
    names = sorted(p.name for p in path.iterdir() if p.is_file())
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        harm(path / name, data)
    with opened(folder) as topic:
        end = topic.end
        topic.verify(0, end)
        found = payloads(topic)
        missing = {offset for gap in topic.gaps() for offset in range(gap.begin, gap.end)}
        assert sorted([*offsets(topic), *missing]) == list(range(end))
        assert set(found) <= set(ALL)
        fill(topic, [b"new"])
        assert offsets(topic)[-1] == end


def harm(file, data):
    if not file.exists():
        return
    content = file.read_bytes()
    kind = data.draw(st.sampled_from(["delete", "cut", "flip", "zero", "append"]))
    place = data.draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "delete":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(content[:place])
    elif kind == "flip" and content:
        flip(file, place, data.draw(st.integers(1, 255)))
    elif kind == "zero":
        file.write_bytes(content[:place] + bytes(len(content) - place))
    else:
        file.write_bytes(content + data.draw(st.binary(max_size=200)))
