"""Files of Spark's checkpoint: plans, commits and the query's id."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.landing.spark_checkpoint import (
    Planned,
    committed_batches,
    ensure_query_id,
    find_plan,
    format_plan,
    parse_plan,
    planned_batches,
    planned_ranges,
    read_plan,
    remove_commit,
    remove_torn_commits,
    remove_torn_plans,
    write_commit,
    write_plan,
)

OF_SPARK = (
    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795831487502,"conf":'
    b'{"spark.sql.streaming.multipleWatermarkPolicy":"min","spark.sql.shuffle.partitions":"2"}}\n{"events":4000}'
)
"""A plan of Spark 4.2.0 with two of its settings."""
TOPICS = st.from_regex(r"[a-z][a-z0-9._-]{0,9}", fullmatch=True)
OFFSETS = st.integers(0, (1 << 63) - 1)
PARTITIONS = st.builds("{}/{}".format, TOPICS, st.integers(0, 99))
ENDS = st.dictionaries(TOPICS, OFFSETS, max_size=5) | st.dictionaries(PARTITIONS, OFFSETS, max_size=5)
SETTINGS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
PLANS = st.builds(Planned, ENDS, OFFSETS, OFFSETS, SETTINGS)


def test_plan_of_spark_is_parsed() -> None:
    settings = {"spark.sql.streaming.multipleWatermarkPolicy": "min", "spark.sql.shuffle.partitions": "2"}
    assert parse_plan(OF_SPARK) == Planned({"events": 4000}, 1795831487502, 0, settings)
    assert format_plan(parse_plan(OF_SPARK)) == OF_SPARK


@given(PLANS)
@example(Planned({"events/0": 3, "events/1": 4, "other/0": 5}, 1, 2, {"a": "b"}))
def test_formatted_plan_is_parsed_again(plan: Planned) -> None:
    assert parse_plan(format_plan(plan)) == plan


@given(PLANS, st.data())
def test_torn_plan_is_refused(plan: Planned, data: st.DataObject) -> None:
    content = format_plan(plan)
    with pytest.raises(ValueError, match=r"."):
        parse_plan(content[: data.draw(st.integers(0, len(content) - 1))])


@given(content=st.binary(max_size=80) | st.binary(max_size=40).map(b"v1\n{}\n".__add__))
@example(content=b'v1\n{"batchTimestampMs":[],"batchWatermarkMs":0}\n-')
@example(content=b'v1\n{"batchTimestampMs":1,"batchWatermarkMs":0,"conf":7}\n-')
@example(content=b'v1\n{"batchTimestampMs":1,"batchWatermarkMs":0}\n{"a":null}')
@example(content=b"v12\n")
@example(content=OF_SPARK + b"\n-")
def test_any_bytes_are_a_plan_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    path = checkpoint / "offsets" / "0"
    path.parent.mkdir()
    path.write_bytes(content)
    (checkpoint / "metadata").write_bytes(content)
    ensure_query_id(checkpoint)
    assert isinstance(json.loads((checkpoint / "metadata").read_text())["id"], str)
    try:
        plan = read_plan(checkpoint, 0)
    except UnknownFormat:
        with pytest.raises(UnknownFormat):
            remove_torn_plans(checkpoint, -1)
        assert path.read_bytes() == content
    except DamagedFile:
        assert find_plan(checkpoint, 0) is None
        assert remove_torn_plans(checkpoint, -1) == [str(path)]
    else:
        assert remove_torn_plans(checkpoint, -1) == []
        assert parse_plan(format_plan(plan)) == plan


def test_query_without_an_id_gets_one_and_keeps_it(tmp_path: Path) -> None:
    ensure_query_id(tmp_path)
    written = (tmp_path / "metadata").read_bytes()
    assert isinstance(json.loads(written)["id"], str)
    ensure_query_id(tmp_path)
    assert (tmp_path / "metadata").read_bytes() == written


def test_unreadable_plan_raises_its_file_name(tmp_path: Path) -> None:
    write_plan(tmp_path, 1, Planned({"a": 2}, 0, 0))
    (tmp_path / "offsets" / "1").write_text("v1\n")
    with pytest.raises(DamagedFile, match="offsets/1"):
        read_plan(tmp_path, 1)


@pytest.mark.survives("landing from the log", "other format")
def test_plan_of_another_format_of_spark_stops_with_what_to_do(tmp_path: Path) -> None:
    """Spark 4.1 and later write ``v2`` if asked to."""
    write_plan(tmp_path, 2, Planned({"a": 2}, 0, 0))
    plan = tmp_path / "offsets" / "2"
    plan.write_text(plan.read_text().replace("v1", "v2", 1))
    with pytest.raises(UnknownFormat, match="offsets/2 has Spark's format v2, and only v1 is known: run the pipeline"):
        read_plan(tmp_path, 2)


@pytest.mark.survives("landing from the log", "other format")
def test_plan_of_several_sources_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "offsets" / "0"
    path.parent.mkdir()
    for ends in (b'\n{"other":7}', b"\n-", b'\n-\n{"other":7}\n'):
        path.write_bytes(OF_SPARK + ends)
        for read in (read_plan, remove_torn_plans):
            with pytest.raises(UnknownFormat, match="offsets/0 has the offsets of several sources"):
                read(tmp_path, 0 if read is read_plan else -1)
        assert path.read_bytes() == OF_SPARK + ends


def test_entries_with_a_final_newline_are_whole(tmp_path: Path) -> None:
    write_plan(tmp_path, 0, Planned({"a": 2}, 0, 0))
    write_commit(tmp_path, 0)
    for name in ("offsets/0", "commits/0"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
    assert (remove_torn_plans(tmp_path, -1), remove_torn_commits(tmp_path)) == ([], [])
    assert read_plan(tmp_path, 0) == Planned({"a": 2}, 0, 0)


CHECKSUM_OF_SPARK = bytes.fromhex("6372630000000200f32abfdd")
"""``commits/.0.crc`` of Spark 4.2.0 for a commit with the content that ``write_commit`` writes, too."""


@pytest.mark.survives("landing from the log", "damaged bytes")
def test_flipped_bit_in_the_version_is_damage_if_the_checksum_says_so(tmp_path: Path) -> None:
    write_commit(tmp_path, 0)
    commit, checksum = tmp_path / "commits" / "0", tmp_path / "commits" / ".0.crc"
    whole, flipped = commit.read_bytes(), commit.read_bytes().replace(b"v1", b"v5")
    checksum.write_bytes(CHECKSUM_OF_SPARK)
    commit.write_bytes(flipped)
    assert remove_torn_commits(tmp_path) == [str(commit)]
    assert not checksum.exists()
    # Another format has its own checksum, or none, or another content.
    for content, stored in (
        (flipped, checksum_of(flipped)),
        (flipped, b""),
        (flipped, b"crc\x00\x00\x00\x00\x00"),
        (flipped[:-1], CHECKSUM_OF_SPARK),
    ):
        commit.write_bytes(content)
        checksum.write_bytes(stored)
        with pytest.raises(UnknownFormat, match="has Spark's format v5"):
            remove_torn_commits(tmp_path)
    assert checksum_of(whole) == CHECKSUM_OF_SPARK


def test_flipped_bit_in_the_version_of_a_long_plan_is_damage(tmp_path: Path) -> None:
    write_plan(tmp_path, 0, Planned({"a": 2}, 0, 0, {f"setting{n}": "x" for n in range(99)}))
    path = tmp_path / "offsets" / "0"
    path.with_name(".0.crc").write_bytes(checksum_of(path.read_bytes()))
    flipped = path.read_bytes().replace(b"v1", b"v3")
    path.write_bytes(flipped)
    with pytest.raises(DamagedFile, match="offsets/0"):
        read_plan(tmp_path, 0)
    path.with_name(".0.crc").write_bytes(checksum_of(flipped))
    with pytest.raises(UnknownFormat, match="has Spark's format v3"):
        read_plan(tmp_path, 0)


def checksum_of(content: bytes) -> bytes:
    """Return the checksums of Hadoop: of each 512 bytes."""
    parts = [content[begin : begin + 512] for begin in range(0, len(content), 512)]
    return b"crc\x00\x00\x00\x02\x00" + b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def test_ranges_begin_at_the_ends_of_the_plan_before(tmp_path: Path) -> None:
    write_plan(tmp_path, 0, Planned({"a": 2, "b": 1}, 0, 0))
    write_plan(tmp_path, 1, Planned({"a": 5, "b": 1, "c": 4}, 0, 0))
    assert planned_ranges(tmp_path, 0) == {"a": (0, 2), "b": (0, 1)}
    assert planned_ranges(tmp_path, 1) == {"a": (2, 5), "c": (0, 4)}
    assert planned_ranges(tmp_path, 2) == planned_ranges(tmp_path, 3) == {}


def test_names_that_are_no_batches_are_passed_over(tmp_path: Path) -> None:
    assert (planned_batches(tmp_path), committed_batches(tmp_path)) == ([], [])
    for batch in (10, 9):
        write_commit(tmp_path, batch)
    for name in (".10.crc", ".11.5a0b4a3c-8b0e-4d0f-a7b5-0d6c6c4a2a11.tmp", "12.compact"):
        (tmp_path / "commits" / name).touch()
    assert committed_batches(tmp_path) == [9, 10]


def test_replaced_plan_loses_the_checksum_of_the_one_before(tmp_path: Path) -> None:
    write_plan(tmp_path, 3, Planned({"a": 2}, 0, 0))
    (tmp_path / "offsets" / ".3.crc").write_bytes(b"crc\x00")
    write_plan(tmp_path, 3, Planned({"a": 1}, 0, 0))
    assert not (tmp_path / "offsets" / ".3.crc").exists()


def test_checksum_is_removed_before_its_entry(tmp_path: Path) -> None:
    """An entry without a checksum is read; a checksum without its entry would refuse the next one of this number."""
    write_commit(tmp_path, 3)
    entry, checksum = tmp_path / "commits" / "3", tmp_path / "commits" / ".3.crc"
    checksum.mkdir()
    with pytest.raises(OSError, match=r"\.3\.crc"):
        remove_commit(tmp_path, 3)
    assert entry.exists()
    checksum.rmdir()
    checksum.write_bytes(b"crc\x00")
    assert remove_commit(tmp_path, 3) == str(entry)
    assert not entry.exists()
    assert not checksum.exists()


def test_torn_entries_are_removed_down_to_the_newest_whole_one(tmp_path: Path) -> None:
    for batch in range(5):
        write_plan(tmp_path, batch, Planned({"a": batch}, 0, 0))
        write_commit(tmp_path, batch)
    for name in ("offsets/1", "offsets/3", "offsets/4", "commits/4"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: content.rindex(b"\n")])
    assert remove_torn_commits(tmp_path) == [str(tmp_path / "commits" / "4")]
    assert remove_torn_plans(tmp_path, 3) == [str(tmp_path / "offsets" / "4")]
    assert remove_torn_plans(tmp_path, -1) == [str(tmp_path / "offsets" / "3")]
    assert planned_batches(tmp_path) == [0, 1, 2]
