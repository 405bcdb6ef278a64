"""The inspector prints the text of LogInspector for every recorded file and option."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import records
from penstock.logbuffer import AdminAction, NotALogBuffer, Parameters, Publication, mtu_for
from penstock.logbuffer.aeron.inspector import Options, as_json, batches, dump
from tests.logbuffer.logbuffer_golden import MANIFEST, unpacked

OPTIONS = {
    "hex": Options(),
    "hex16": Options(limit=16),
    "ascii": Options(data_format="ascii"),
    "usascii20_skiphdr": Options(data_format="us-ascii", limit=20, skip_default_header=True),
    "hex8_scanzero": Options(limit=8, scan_over_zeroes=True),
}
SCANNING = Options(limit=0, scan_over_zeroes=True)
TEXTS = [(entry["file"], text) for entry in MANIFEST["files"] for text in entry["texts"]]


@pytest.mark.parametrize(("file", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text_equals_that_of_log_inspector(file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_bytes(unpacked(file))
    lines = list(dump(path, OPTIONS[text.split(".")[1]]))
    recorded = unpacked(text).decode().split("\n")
    assert lines[1].endswith(f" Inspection dump for {path}")
    del lines[1], recorded[1]
    assert [*lines, ""] == recorded


@pytest.mark.parametrize("entry", MANIFEST["files"], ids=[entry["file"] for entry in MANIFEST["files"]])
def test_json_form_has_the_same_content(entry: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(unpacked(str(entry["file"])))
    document = json.loads(json.dumps(as_json(path, limit=4)))
    assert document["metadata"] == entry["metadata"]
    printed = re.findall(r"^(\d+): .*frame-length=(\d+)", "\n".join(dump(path, SCANNING)), re.MULTILINE)
    frames = [frame for term in document["terms"] for frame in term["frames"]]
    assert [(str(f["offset"]), str(f["length"])) for f in frames] == [p for p in printed if p[1] != "0"]
    assert all(len(frame["data"]) == 8 for frame in frames if frame["length"] >= 36)


def create(path: Path, term_length: int = 65536) -> Publication:
    publication = Publication.create(path, Parameters(term_length, mtu_for(8000), 1, 2, 3))
    publication.consumed(0)
    return publication


def offer(publication: Publication, data: object, reserved_value: int) -> None:
    publication.consumed(publication.position)
    try:
        publication.offer(data, reserved_value)
    except AdminAction:
        publication.offer(data, reserved_value)


def test_batches_are_listed_with_rows_and_document(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    for number in range(3):
        data = records.encode(records.body([b"x"] * (number + 1)), {"v": 1, "number": number})
        offer(publication, data, 100 + number)
    offer(publication, b"something else", 7)
    listed = batches(tmp_path / "log")
    assert [(b.rows, b.document, b.reserved_value) for b in listed] == [
        (1, {"v": 1, "number": 0}, 100),
        (2, {"v": 1, "number": 1}, 101),
        (3, {"v": 1, "number": 2}, 102),
        (None, None, 7),
    ]
    assert listed[0].position == 0
    assert listed[1].position == (listed[0].frame_length + 31) // 32 * 32
    assert listed[3].problem is not None


def test_batches_are_listed_in_order_of_positions_over_several_terms(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    for number in range(100):
        offer(publication, records.encode(records.body([b"x" * 3000]), {"v": 1}), number)
    numbers = [batch.reserved_value for batch in batches(tmp_path / "log")]
    assert numbers[-1] == 99
    assert numbers == list(range(numbers[0], 100))


@settings(max_examples=150, deadline=None)
@given(
    junk=st.lists(st.tuples(st.integers(0, 3 * 65536 - 64), st.binary(min_size=1, max_size=64)), max_size=6),
    metadata=st.lists(st.tuples(st.integers(0, 0x1F8), st.integers(0, 255)), max_size=3),
    limit=st.sampled_from([0, 10]),
)
def test_damaged_file_is_printed_or_refused(
    junk: list[tuple[int, bytes]], metadata: list[tuple[int, int]], limit: int
) -> None:
    data = bytearray(unpacked("excl_sizes__01_maxlen.logbuffer"))
    for offset, value in junk:
        data[offset : offset + len(value)] = value
    for offset, byte in metadata:
        data[3 * 65536 + offset] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(data)
        try:
            assert len(list(dump(path, Options(limit=limit)))) > 20
            as_json(path, limit)
            batches(path)
        except NotALogBuffer:
            pass
