"""What a task writes: messages in, files out."""

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
from penstock.landing.writing.written_file import AGAIN, ASIDE, KEPT
from tests.landing.writing.messages import AT, DAY, event, known_by, source

WINDOW = 600_000_000
ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "table", tmp_path / "keys", WINDOW)


def write(job: Job, *sources: MessageBatch) -> PartResult:
    return write_part(sources, job, AT)


def places(job: Job, part: PartResult) -> dict[tuple[str, str, str], list[int]]:
    """By kind, day and role the offsets."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for file in part.files:
        rows = pq.read_table(job.table / file.name, partitioning=None)["offset"].to_pylist()
        found.setdefault((file.kind, file.date, file.role), []).extend(rows)
    return {place: sorted(rows) for place, rows in found.items()}


def roles(job: Job, part: PartResult) -> dict[str, list[int]]:
    """By role the offsets of events."""
    return {role: rows for (kind, _, role), rows in places(job, part).items() if kind == "event"}


def test_a_file_for_each_kind_and_day(job: Job) -> None:
    rows = [(0, event("u0")), (1, b"{bad"), (2, b"text"), (3, event("u3"))]
    syslog = source([(7, b"<34>1 x")], topic="s", codec="syslog")
    part = write(job, source(rows, at=[AT, AT, AT, AT + DAY]), syslog)
    days = "2026-02-02", "2026-02-03"
    assert places(job, part) == {
        ("event", days[0], KEPT): [0],
        ("event", days[1], KEPT): [3],
        ("quarantine", days[0], KEPT): [1],
        ("message", days[0], KEPT): [2],
        ("syslog", days[0], KEPT): [7],
    }
    assert part.through == -1


def test_nothing_makes_no_files(job: Job) -> None:
    assert write(job).files == []
    assert write(job, source([])).files == []


def test_a_repeat_is_put_aside_and_not_lost(job: Job) -> None:
    part = write(job, source([(0, event("u")), (1, event("v")), (2, event("u", "other"))]), source([(3, event("v"))]))
    assert roles(job, part) == {KEPT: [0, 1], ASIDE: [2, 3]}


def test_messages_that_their_protocol_knows_by_an_id_repeat_each_other_and_others_do_not(job: Job) -> None:
    part = write(
        job,
        known_by([(0, "a"), (1, None), (2, "b"), (3, "a"), (4, None)]),
        known_by([(5, "b")]),
        known_by([(6, "a"), (7, "a")], codec="loki"),
    )
    kept = ("message", "2026-02-02", KEPT)
    found = places(job, part)
    assert found[kept] == [0, 1, 2, 4, 6, 7]
    assert found["message", "2026-02-02", ASIDE] == [3, 5]
    assert all(file.seen is None or len(file.seen) == file.rows for file in part.files)
    (whole,) = (file for file in part.files if file.kind == "message" and file.role == KEPT and file.seen is not None)
    assert len(read_events(job.table, TableFile(whole.name))) == 2


def test_of_other_topics_and_beyond_the_window_it_is_no_repeat(job: Job) -> None:
    part = write(
        job,
        source([(0, event("u")), (1, event("u"))], at=[AT, AT + WINDOW + 1]),
        source([(5, event("u"))], topic="other"),
        source([(9, event("u"))], partition=3, topic="k"),
    )
    assert roles(job, part) == {KEPT: [0, 1, 5, 9]}


def test_what_landed_before_is_left_out_and_said_through_which_batch_it_was_known(job: Job) -> None:
    first = write(job, source([(0, event("u")), (1, event("v"))]))
    (file,) = first.files
    LandedKeys(job.keys, WINDOW).add(4, read_events(job.table, TableFile(file.name)))
    second = write(job, source([(2, event("u")), (3, event("w")), (4, b"text")]))
    assert second.through == 4
    assert roles(job, second) == {KEPT: [3]}
    later = write(job, source([(5, event("u"))], at=AT + WINDOW + 1))
    assert roles(job, later) == {KEPT: [5]}


def test_what_lands_again_stays_whatever_landed_before(job: Job) -> None:
    first = write(job, source([(0, event("u"))]))
    LandedKeys(job.keys, WINDOW).add(0, read_events(job.table, TableFile(first.files[0].name)))
    part = write(job, source([(0, event("u")), (1, event("u"))], again=True), source([(7, event("u"))]))
    assert roles(job, part) == {AGAIN: [0, 1]}


def test_keys_that_cannot_be_read_from_here_are_not_known(job: Job) -> None:
    assert Job(job.table, Path("/nowhere/keys"), WINDOW).keys != job.keys
    part = write(Job(job.table, Path("/nowhere/keys"), WINDOW), source([(0, event("u"))]))
    assert (part.through, roles(job, part)) == (-1, {KEPT: [0]})


@ANY_PATH
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), min_size=1, max_size=60),
    st.randoms(),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_in_pieces_of_any_size_every_row_is_there_once_and_the_first_of_a_key_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, bool]],
    chance: random.Random,
    at_once: int,
    group: int,
) -> None:
    folder = tmp_path_factory.mktemp("part")
    job = Job(folder / "table", folder / "keys", WINDOW)
    payloads = [event(f"u{uuid}", "ab"[odd]) if uuid < 6 else b"{bad" for uuid, _, odd in rows]
    times = [AT + day * DAY for _, day, _ in rows]
    cuts = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(4))})
    sources = [source(list(enumerate(payloads))[a:b], at=times[a:b]) for a, b in pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_writer, "AT_ONCE_ROWS", at_once)
        patch.setattr(part_writer, "ROW_GROUP", group)
        part = write(job, *sources)
    everything = Counter(offset for of_place in places(job, part).values() for offset in of_place)
    assert everything == Counter(range(len(rows)))
    firsts = {(uuid, day): n for n, (uuid, day, _) in reversed([*enumerate(rows)]) if uuid < 6}
    kept = [n for (kind, _, role), of in places(job, part).items() if (kind, role) == ("event", KEPT) for n in of]
    assert sorted(kept) == sorted(firsts.values())
    for file in part.files:
        found = pq.read_table(job.table / file.name, partitioning=None)
        assert file.rows == found.num_rows
        assert found["timestamp"].cast("date32[day]").unique().to_pylist() == [date.fromisoformat(file.date)]
        assert file.seen is None or file.seen.offset.tolist() == found["offset"].to_pylist()


def test_row_groups_are_large_however_small_the_pieces_are(job: Job) -> None:
    sources = [source([(n * 10 + m, event(f"u{n}.{m}")) for m in range(10)]) for n in range(100)]
    (file,) = write(job, *sources).files
    metadata: Any = pq.read_metadata(job.table / file.name)
    assert (metadata.num_rows, metadata.num_row_groups) == (1000, 1)


@pytest.mark.parametrize("micros", [-62_135_596_800_000_000, -1, 0, 253_402_300_799_999_999])
def test_the_log_may_have_stored_a_message_in_any_year(job: Job, micros: int) -> None:
    rows = source([(0, event("u")), (1, b"text"), (2, b"{bad")], at=micros)
    assert sum(file.rows for file in write(job, rows).files) == 3


def test_what_fails_in_a_transformation_is_told_once_and_its_rows_are_in_quarantine(job: Job) -> None:
    failing = replace(job, transform=TransformRules("tests.landing.transform.functions:fails_on_bad"))
    part = write(failing, source([(0, event("a")), (1, b"bad text"), (2, event("b", "bad"))]))
    assert part.failures == ["pipeline.transform failed on 2 rows: RuntimeError: something bad"]
    day = "2026-02-02"
    assert places(job, part) == {("event", day, KEPT): [0], ("quarantine", day, KEPT): [1, 2]}


def test_payloads_are_there_for_the_transformation_and_for_quarantine_also_where_events_keep_none(job: Job) -> None:
    failing = replace(
        job, rules=Rules(keep_payload=False), transform=TransformRules("tests.landing.transform.functions:fails_on_bad")
    )
    part = write(failing, source([(0, event("a")), (1, event("b", "bad"))]))
    rows = [row for file in part.files for row in pq.read_table(job.table / file.name, partitioning=None).to_pylist()]
    assert {row["offset"]: row["payload"] for row in rows} == {0: None, 1: event("b", "bad")}


def test_payloads_of_events_may_be_left_out_and_no_others() -> None:
    messages = source(enumerate([event("a"), b"{bad", b"text"])).rows
    parts = rows_to_land(messages, Rules(keep_payload=False), Transformation([]), AT)
    found = sorted((row for _, rows in parts for row in rows.to_pylist()), key=lambda row: row["offset"])
    assert [row["payload"] for row in found] == [None, b"{bad", b"text"]
