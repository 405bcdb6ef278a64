"""What the driver commits: each batch once, and of several of one key the first, whoever wrote them and when."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.decision import landed_before
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import LandedKeys
from penstock.landing.event_rules import MessageKind
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table.table_file import NewFile, TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.transform.rules import TransformRules
from penstock.landing.writing.batch_commit import BatchCommit, load_landed_keys, read_events
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.writing.messages import AT, DAY, event, known_by, source

WINDOW = 600_000_000
SEVERAL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=12)
Place = tuple[str, int]


class Landed:
    """A table, and who lands into it."""

    def __init__(self, tables: Path) -> None:
        self.layout = Layout.for_tables(tables)
        self.restart()

    def restart(self) -> None:
        self.table: DeltaTable = begin_table(self.layout)
        self.commit = BatchCommit(self.table, self.layout.keys, WINDOW)
        self.job = Job(self.table.folder, self.layout.keys, WINDOW)

    def write(self, tasks: Sequence[Sequence[MessageBatch]], blind: Sequence[bool] = ()) -> list[PartResult]:
        """What the tasks write; ``blind``: which of them do not know what landed, as on another machine."""
        unknown = [*blind, *[False] * len(tasks)]
        away = replace(self.job, keys=Path("/nowhere/keys"))
        return [write_part(task, away if gone else self.job, AT) for task, gone in zip(tasks, unknown, strict=False)]

    def land(self, batch: int, *tasks: Sequence[MessageBatch], blind: Sequence[bool] = ()) -> None:
        self.commit.land(batch, lambda: self.write(tasks, blind))

    def rows(self, kind: str = MessageKind.EVENT) -> list[Place]:
        """Topic and offset of all rows of the table."""
        tables = [
            pq.read_table(self.layout.landed / name, columns=["topic", "offset"], partitioning=None)
            for name in self.table.active()
            if name.startswith(f"kind={kind}/")
        ]
        return sorted((row["topic"], row["offset"]) for table in tables for row in table.to_pylist())

    def offsets(self) -> list[int]:
        return [offset for _, offset in self.rows()]


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    return Landed(tmp_path / "tables")


def never() -> list[PartResult]:
    raise AssertionError("it is not to be written again")


def test_a_chunk_that_was_sent_again_lands_once_whoever_has_it_and_whatever_was_kept_of_the_keys(
    landed: Landed,
) -> None:
    chunk = ["c-0", "c-1"]
    landed.land(0, [known_by(enumerate(chunk)), known_by([(2, None), (3, None)])])
    landed.land(1, [known_by(enumerate(chunk, 4))], [known_by(enumerate(["d", *chunk], 6))], blind=[False, True])
    assert landed.rows("message") == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t", 6)]
    compact_table(landed.layout.landed)
    shutil.rmtree(landed.layout.keys)
    landed.restart()
    landed.land(2, [known_by(enumerate([*chunk, "d", "e"], 9)), known_by(enumerate(chunk), "other")])
    assert landed.rows("message") == [("other", 0), ("other", 1), *(("t", n) for n in (0, 1, 2, 3, 6, 12))]


def test_a_batch_lands_once_and_is_not_even_written_again(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a")), (1, b"text"), (2, b"{bad")])])
    for _ in range(2):
        landed.commit.land(0, never)
        landed.restart()
    assert landed.rows() == [("t", 0)]
    assert (landed.rows("message"), landed.rows("quarantine")) == ([("t", 1)], [("t", 2)])


def test_duplicates_across_tasks_are_found_and_their_rows_taken_out(landed: Landed) -> None:
    first = [source([(0, event("a")), (1, event("b"))])]
    second = [source([(2, event("c")), (3, event("a")), (4, event("d", "other"))])]
    third = [source([(5, event("c")), (6, event("b"))])]
    landed.land(0, first, second, third)
    assert landed.offsets() == [0, 1, 2, 4]
    files = [path for path in landed.table.folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == len(landed.table.active())
    landed.land(1, [source([(7, event("a")), (8, event("d")), (9, event("e"))])])
    assert landed.offsets() == [0, 1, 2, 4, 9]


def test_a_repeat_whose_first_is_a_duplicate_itself_stays_where_it_is_beyond_the_window(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    times = [AT + WINDOW, AT + 2 * WINDOW]
    landed.land(1, [source([(1, event("a")), (2, event("a"))], at=times)], blind=[True])
    assert landed.offsets() == [0, 2]


def test_tasks_that_do_not_know_what_landed_change_nothing(landed: Landed) -> None:
    landed.land(0, [source([(n, event(f"u{n}")) for n in range(4)])])
    landed.land(1, [source([(4, event("u0")), (5, event("x"))])], [source([(6, event("u1"))])], blind=[True, False])
    assert landed.offsets() == [0, 1, 2, 3, 5]


def test_rows_that_land_again_stay_and_are_known(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(0, event("a"))], again=True), source([(1, event("a")), (2, event("b"))])])
    assert landed.offsets() == [0, 0, 2]
    landed.land(2, [source([(3, event("a")), (4, event("b"))])])
    assert landed.offsets() == [0, 0, 2]


def test_the_same_uuid_in_other_topics_and_on_other_days_stays(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])], [source([(0, event("a"))], topic="s")])
    landed.land(1, [source([(1, event("a"))], at=AT + DAY)])
    assert landed.rows() == [("s", 0), ("t", 0), ("t", 1)]


def test_a_batch_of_nothing_but_duplicates_is_one(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(1, event("a"))])], blind=[True])
    landed.land(2)
    assert (landed.table.newest(), landed.offsets()) == (2, [0])
    landed.restart()
    landed.land(3, [source([(2, event("a")), (3, event("b"))])])
    assert landed.offsets() == [0, 3]


def test_a_dropped_event_is_not_the_first_of_its_key_and_has_a_row_that_says_so(landed: Landed) -> None:
    landed.job = replace(landed.job, transform=TransformRules("tests.landing.transform.functions:drop_debug"))
    first = [source([(0, event("a", "debug")), (1, event("a")), (2, event("b"))])]
    landed.land(0, first, [source([(3, event("a")), (4, event("c", "debug")), (5, event("c", "debug"))])])
    landed.land(1, [source([(6, event("a", "debug")), (7, event("c"))])])
    assert landed.offsets() == [1, 2, 7]
    assert landed.rows("dropped") == [("t", 0), ("t", 4), ("t", 5), ("t", 6)]
    shutil.rmtree(landed.layout.keys)
    landed.restart()
    landed.land(2, [source([(8, event("c")), (9, event("b"))])])
    assert landed.offsets() == [1, 2, 7]


Event = tuple[int, int]
"""Uuid and minute."""


def model(batches: Sequence[Sequence[tuple[int, Event]]]) -> list[int]:
    """Offsets that stay, one after the other."""
    stay: dict[int, list[int]] = {}
    found = []
    for batch in batches:
        for offset, (uuid, minute) in batch:
            times = stay.setdefault(uuid, [])
            if all(abs(minute - at) * 60_000_000 > WINDOW for at in times):
                times.append(minute)
                found.append(offset)
    return found


LOSSES: list[Callable[[Landed], object]] = [
    lambda landed: shutil.rmtree(landed.layout.keys, ignore_errors=True),
    lambda landed: [path.write_bytes(b"torn") for path in landed.layout.keys.glob("*")],
    lambda landed: compact_table(landed.layout.landed),
    lambda landed: None,
]


@SEVERAL
@given(st.data())
def test_whatever_is_lost_between_batches_the_table_is_that_of_one_loop_over_all(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    landed, minute, offset, batches = Landed(tmp_path_factory.mktemp("tables")), 0, 0, []
    for number in range(data.draw(st.integers(1, 5))):
        rows = []
        for _ in range(data.draw(st.integers(0, 12))):
            minute += data.draw(st.integers(0, 4))
            rows.append((offset, (data.draw(st.integers(0, 3)), minute)))
            offset += 1
        batches.append(rows)
        tasks = [
            [source([(o, event(f"u{uuid}"))], at=AT + m * 60_000_000) for o, (uuid, m) in rows[part::3]]
            for part in range(3)
        ]
        if data.draw(st.booleans()):  # a try that came to nothing
            landed.write(tasks)
            landed.restart()
        landed.land(number, *tasks, blind=data.draw(st.lists(st.booleans(), min_size=3, max_size=3)))
        if data.draw(st.booleans()):
            data.draw(st.sampled_from(LOSSES))(landed)
            landed.restart()
        assert landed.offsets() == model(batches)


class Killed(BaseException):
    """Nothing runs any more."""


@pytest.mark.parametrize("when", ["before the commit", "before the keys"])
def test_killed_around_the_commit_it_goes_on_exactly(
    landed: Landed, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    landed.land(0, [source([(0, event("a"))])])
    landed.job = replace(landed.job, transform=TransformRules("tests.landing.transform.functions:drop_debug"))
    rows = [source([(1, event("a")), (2, event("b")), (9, event("d", "debug"))])]
    with monkeypatch.context() as patch:
        patch.setattr(*((type(landed.table), "commit") if when == "before the commit" else (LandedKeys, "add")), killed)
        with pytest.raises(Killed):
            landed.land(1, rows)
    before = landed.job
    landed.restart()
    landed.job = before
    landed.land(1, rows)
    landed.land(2, [source([(3, event("a")), (4, event("b")), (5, event("c"))])])
    assert (landed.offsets(), landed.rows("dropped")) == ([0, 2, 5], [("t", 9)])


def test_keys_of_a_batch_that_the_table_lost_are_forgotten(tmp_path: Path) -> None:
    """A power cut may leave the commit torn, and the keys whole."""
    landed = Landed(tmp_path)
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(1, event("b"))])])
    max((landed.layout.landed / "_delta_log").glob("*.json")).write_bytes(b"")
    landed.restart()
    assert landed.table.newest() == 0
    landed.land(1, [source([(1, event("b")), (2, event("a"))])])
    assert landed.offsets() == [0, 1]


def test_keys_from_the_table_answer_as_those_that_were_kept(landed: Landed, tmp_path: Path) -> None:
    chance = random.Random(15)
    for batch in range(20):
        uuids = [chance.randrange(200) for _ in range(20)]
        rows = [(batch * 20 + n, event(f"u{uuid}")) for n, uuid in enumerate(uuids)]
        landed.land(batch, [source(rows, at=AT + batch * 60_000_000)])
    kept = LandedKeys.load(landed.layout.keys, WINDOW)
    made = load_landed_keys(landed.table, tmp_path / "elsewhere", WINDOW)
    assert kept is not None
    assert kept.batch == made.batch == 19
    asked = [event(f"u{uuid}") for uuid in range(250)]
    part = write_part([source(list(enumerate(asked)), at=AT + 19 * 60_000_000)], Job(tmp_path, tmp_path, WINDOW), AT)
    seen = EventsSeen.concat([file.seen for file in part.files if file.seen is not None])
    answers = [landed_before(seen, keys.runs, WINDOW).tolist() for keys in (kept, made)]
    assert answers[0] == answers[1]
    assert 0 < sum(answers[0]) < 250


def test_a_table_of_another_window_is_read_for_its_keys(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    wider = BatchCommit(landed.table, landed.layout.keys, 3 * WINDOW)
    job = replace(landed.job, window=3 * WINDOW)
    wider.land(1, lambda: [write_part([source([(1, event("a"))], at=AT + 2 * WINDOW)], job, AT)])
    assert landed.offsets() == [0]


def test_a_file_that_is_gone_has_no_events(landed: Landed, tmp_path: Path) -> None:
    assert len(read_events(tmp_path, TableFile("gone"))) == 0
    landed.land(0, [source([(0, event("a"))])], [source([(1, event("b"))])])
    files: list[NewFile] | list[str] = landed.table.active()
    (landed.layout.landed / str(files[0])).unlink()
    shutil.rmtree(landed.layout.keys)
    landed.restart()
    landed.land(1, [source([(2, event("a")), (3, event("b"))])])
    assert landed.table.newest() == 1
