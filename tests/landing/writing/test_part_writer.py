"""Files that a task writes from messages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.landed_keys import LandedKeys
from penstock.landing.rows.table_rows import Rules
from penstock.landing.table.table_file import TableFile
from penstock.landing.transform.rules import Transformation, TransformRules
from penstock.landing.writing import part_writer
from penstock.landing.writing.batch_commit import read_events
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, rows_to_land, write_part
from penstock.landing.writing.written_file import FileRole
from tests.landing.writing.messages import AT, DAY, event, source, with_protocol_ids

WINDOW = 600_000_000
ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "table", tmp_path / "keys", WINDOW)


def write(job: Job, *sources: MessageBatch) -> PartResult:
    return write_part(sources, job, AT)


def offsets_by_file(job: Job, part: PartResult) -> dict[tuple[str, str, str], list[int]]:
    """Return offsets by kind, day and role."""
    offsets: dict[tuple[str, str, str], list[int]] = {}
    for file in part.files:
        rows = pq.read_table(job.table / file.name, partitioning=None)["offset"].to_pylist()
        offsets.setdefault((file.kind, file.date, file.role), []).extend(rows)
    return {key: sorted(rows) for key, rows in offsets.items()}


def roles(job: Job, part: PartResult) -> dict[str, list[int]]:
    """Return offsets of events by role."""
    return {role: rows for (kind, _, role), rows in offsets_by_file(job, part).items() if kind == "event"}


def test_task_writes_a_file_for_each_kind_and_day(job: Job) -> None:
    rows = [(0, event("u0")), (1, b"{bad"), (2, b"text"), (3, event("u3"))]
    syslog = source([(7, b"<34>1 x")], topic="s", codec="syslog")
    part = write(job, source(rows, at=[AT, AT, AT, AT + DAY]), syslog)
    days = "2026-02-02", "2026-02-03"
    assert offsets_by_file(job, part) == {
        ("event", days[0], FileRole.NORMAL): [0],
        ("event", days[1], FileRole.NORMAL): [3],
        ("quarantine", days[0], FileRole.NORMAL): [1],
        ("message", days[0], FileRole.NORMAL): [2],
        ("syslog", days[0], FileRole.NORMAL): [7],
    }
    assert part.through == -1


def test_no_messages_make_no_files(job: Job) -> None:
    assert write(job).files == []
    assert write(job, source([])).files == []


def test_repeat_is_written_to_separate_file(job: Job) -> None:
    part = write(job, source([(0, event("u")), (1, event("v")), (2, event("u", "other"))]), source([(3, event("v"))]))
    assert roles(job, part) == {FileRole.NORMAL: [0, 1], FileRole.SEPARATE: [2, 3]}


def test_messages_with_one_protocol_id_are_repeats(job: Job) -> None:
    part = write(
        job,
        with_protocol_ids([(0, "a"), (1, None), (2, "b"), (3, "a"), (4, None)]),
        with_protocol_ids([(5, "b")]),
        with_protocol_ids([(6, "a"), (7, "a")], codec="loki"),
    )
    normal = ("message", "2026-02-02", FileRole.NORMAL)
    offsets = offsets_by_file(job, part)
    assert offsets[normal] == [0, 1, 2, 4, 6, 7]
    assert offsets["message", "2026-02-02", FileRole.SEPARATE] == [3, 5]
    assert all(file.seen is None or len(file.seen) == file.rows for file in part.files)
    (complete,) = (
        file for file in part.files if file.kind == "message" and file.role == FileRole.NORMAL and file.seen is not None
    )
    assert len(read_events(job.table, TableFile(complete.name))) == 2


def test_other_topic_or_beyond_window_is_no_repeat(job: Job) -> None:
    part = write(
        job,
        source([(0, event("u")), (1, event("u"))], at=[AT, AT + WINDOW + 1]),
        source([(5, event("u"))], topic="other"),
        source([(9, event("u"))], partition=3, topic="k"),
    )
    assert roles(job, part) == {FileRole.NORMAL: [0, 1, 5, 9]}


def test_landed_events_are_dropped(job: Job) -> None:
    first = write(job, source([(0, event("u")), (1, event("v"))]))
    (file,) = first.files
    LandedKeys(job.keys, WINDOW).add(4, read_events(job.table, TableFile(file.name)))
    second = write(job, source([(2, event("u")), (3, event("w")), (4, b"text")]))
    assert second.through == 4
    assert roles(job, second) == {FileRole.NORMAL: [3]}
    later = write(job, source([(5, event("u"))], at=AT + WINDOW + 1))
    assert roles(job, later) == {FileRole.NORMAL: [5]}


def test_relanded_rows_stay(job: Job) -> None:
    first = write(job, source([(0, event("u"))]))
    LandedKeys(job.keys, WINDOW).add(0, read_events(job.table, TableFile(first.files[0].name)))
    part = write(job, source([(0, event("u")), (1, event("u"))], relands=True), source([(7, event("u"))]))
    assert roles(job, part) == {FileRole.RELANDED: [0, 1]}


def test_unreachable_keys_are_reported_as_unknown(job: Job) -> None:
    assert Job(job.table, Path("/nowhere/keys"), WINDOW).keys != job.keys
    part = write(Job(job.table, Path("/nowhere/keys"), WINDOW), source([(0, event("u"))]))
    assert (part.through, roles(job, part)) == (-1, {FileRole.NORMAL: [0]})


@ANY_PATH
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), min_size=1, max_size=60),
    st.randoms(),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_rows_in_pieces_of_any_size_are_written_once(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, bool]],
    random_source: random.Random,
    at_once: int,
    group: int,
) -> None:
    folder = tmp_path_factory.mktemp("part")
    job = Job(folder / "table", folder / "keys", WINDOW)
    payloads = [event(f"u{uuid}", "ab"[odd]) if uuid < 6 else b"{bad" for uuid, _, odd in rows]
    times = [AT + day * DAY for _, day, _ in rows]
    cuts = sorted({0, len(rows), *(random_source.randrange(len(rows) + 1) for _ in range(4))})
    sources = [source(list(enumerate(payloads))[a:b], at=times[a:b]) for a, b in pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_writer, "MIN_JOINED_ROWS", at_once)
        patch.setattr(part_writer, "ROW_GROUP", group)
        part = write(job, *sources)
    counted = Counter(offset for offsets_of_file in offsets_by_file(job, part).values() for offset in offsets_of_file)
    assert counted == Counter(range(len(rows)))
    firsts = {(uuid, day): n for n, (uuid, day, _) in reversed([*enumerate(rows)]) if uuid < 6}
    normal = [
        n
        for (kind, _, role), offsets in offsets_by_file(job, part).items()
        if (kind, role) == ("event", FileRole.NORMAL)
        for n in offsets
    ]
    assert sorted(normal) == sorted(firsts.values())
    for file in part.files:
        rows_of_file = pq.read_table(job.table / file.name, partitioning=None)
        assert file.rows == rows_of_file.num_rows
        assert rows_of_file["timestamp"].cast("date32[day]").unique().to_pylist() == [date.fromisoformat(file.date)]
        assert file.seen is None or file.seen.offset.tolist() == rows_of_file["offset"].to_pylist()


def test_small_batches_share_a_row_group(job: Job) -> None:
    sources = [source([(n * 10 + m, event(f"u{n}.{m}")) for m in range(10)]) for n in range(100)]
    (file,) = write(job, *sources).files
    metadata: Any = pq.read_metadata(job.table / file.name)
    assert (metadata.num_rows, metadata.num_row_groups) == (1000, 1)


@pytest.mark.parametrize("micros", [-62_135_596_800_000_000, -1, 0, 253_402_300_799_999_999])
def test_message_of_any_year_is_written(job: Job, micros: int) -> None:
    rows = source([(0, event("u")), (1, b"text"), (2, b"{bad")], at=micros)
    assert sum(file.rows for file in write(job, rows).files) == 3


def test_failing_transformation_quarantines_rows(job: Job) -> None:
    failing = replace(job, transform=TransformRules("tests.landing.transform.functions:fails_on_bad"))
    part = write(failing, source([(0, event("a")), (1, b"bad text"), (2, event("b", "bad"))]))
    assert part.failures == ["pipeline.transform failed on 2 rows: RuntimeError: something bad"]
    day = "2026-02-02"
    assert offsets_by_file(job, part) == {
        ("event", day, FileRole.NORMAL): [0],
        ("quarantine", day, FileRole.NORMAL): [1, 2],
    }


def test_transformation_and_quarantine_have_payloads_without_keep_payload(job: Job) -> None:
    failing = replace(
        job, rules=Rules(keep_payload=False), transform=TransformRules("tests.landing.transform.functions:fails_on_bad")
    )
    part = write(failing, source([(0, event("a")), (1, event("b", "bad"))]))
    rows = [row for file in part.files for row in pq.read_table(job.table / file.name, partitioning=None).to_pylist()]
    assert {row["offset"]: row["payload"] for row in rows} == {0: None, 1: event("b", "bad")}


def test_keep_payload_false_drops_only_payloads_of_events() -> None:
    messages = source(enumerate([event("a"), b"{bad", b"text"])).rows
    parts = rows_to_land(messages, Rules(keep_payload=False), Transformation([]), AT)
    rows_by_offset = sorted((row for _, rows in parts for row in rows.to_pylist()), key=lambda row: row["offset"])
    assert [row["payload"] for row in rows_by_offset] == [None, b"{bad", b"text"]
