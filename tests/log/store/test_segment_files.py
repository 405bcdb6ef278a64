"""The files of a segment: names, synced length and start state."""

import json
import struct

import pytest
from crc32c import crc32c

from penstock.files.file_system import OS
from penstock.log import TopicSettings, UnknownFormat
from penstock.log.store import segment_files
from penstock.log.store.segment_files import SegmentFiles
from tests.log.log_helpers import flip, last_files, opened, origin, payloads, rows


def test_files_are_named_by_the_first_offset_in_20_digits(tmp_path):
    files = SegmentFiles(tmp_path, 42)
    assert files.data.name == "00000000000000000042.arrows"
    assert {files.index.suffix, files.synced.suffix, files.start_state.suffix} == {".index", ".synced", ".state"}
    names = [files.data.name, f"{7:020}.arrows", f"{8:020}.index", "x.arrows", "1.arrows", "²" * 20 + ".arrows"]
    assert segment_files.first_offsets(names) == [7, 42]


@pytest.mark.parametrize("data", [b"", b"x", b"00000000{}", b"\xff" * 20])
def test_damaged_helper_files_count_as_missing(tmp_path, data):
    files = SegmentFiles(tmp_path, 0)
    files.start_state.write_bytes(data)
    files.synced.write_bytes(data)
    assert segment_files.read_start_state(OS, files) is None
    assert segment_files.read_synced(OS, files) is None


def test_helper_file_of_another_format_is_refused_unless_damaged(tmp_path):
    files = SegmentFiles(tmp_path, 0)
    text = json.dumps({"format": 2, "positions": {}, "producers": {}}).encode()
    files.start_state.write_bytes(b"%08x" % crc32c(text) + text)
    files.synced.write_bytes(struct.pack("<qqq", *segment_files.synced_words(300, 5, files.fingerprint, version=2)))
    for read in (segment_files.read_start_state, segment_files.read_synced):
        with pytest.raises(UnknownFormat, match=r"0\.(state|synced) has format 2, this version of Penstock reads 1"):
            read(OS, files)
    segment_files.write_synced(OS, files, 300, 5)
    for position in range(24):
        flip(files.synced, position, 2)
        assert segment_files.read_synced(OS, files) is None
        flip(files.synced, position, 2)
    assert segment_files.read_synced(OS, files) == (300, 5)


@pytest.mark.parametrize("side", ["synced", "index", "start_state"])
@pytest.mark.parametrize("other_log", [("t", 0), ("other", 12)])
def test_side_file_of_another_segment_is_ignored(tmp_path, side, other_log):
    settings = TopicSettings(segment_size_limit=2000)
    for name, count in (("t", 12), ("other", 40)):
        with opened(tmp_path, name, settings) as topic:
            for number in range(count):
                frame_origin = origin(buffer="b", begin=number * 64, end=number * 64 + 64)
                topic.append(rows(b"%d" % number * 20), frame_origin).result(10)
    topic, first = other_log
    firsts = [int(path.stem) for path in sorted((tmp_path / topic).glob("*.arrows"))]
    wrong = SegmentFiles(tmp_path / topic, firsts[0] if first == 0 else firsts[-1])
    right = last_files(tmp_path / "t")
    getattr(right, side).write_bytes(getattr(wrong, side).read_bytes())
    with opened(tmp_path, "t", settings) as topic:
        assert (topic.gaps(), topic.verify(), topic.end) == ([], [], 12)
        assert payloads(topic) == [b"%d" % number * 20 for number in range(12)]
        assert topic.buffer_position("b") == 12 * 64
