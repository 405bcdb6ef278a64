"""The driver commits each batch once, and of events with one key the first, even if several tasks wrote them."""

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
from tests.landing.writing.messages import AT, DAY, event, source, with_protocol_ids

WINDOW = 600_000_000
FEW_EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=12)
RowPosition = tuple[str, int]


class Landed:
    """A table, and a landing into it."""

    def __init__(self, tables: Path) -> None:
        self.layout = Layout.for_tables(tables)
        self.restart()

    def restart(self) -> None:
        self.table: DeltaTable = begin_table(self.layout)
        self.commit = BatchCommit(self.table, self.layout.keys, WINDOW)
        self.job = Job(self.table.folder, self.layout.keys, WINDOW)

    def write(self, tasks: Sequence[Sequence[MessageBatch]], blind: Sequence[bool] = ()) -> list[PartResult]:
        """Return the files of tasks; ``blind`` tasks do not know the landed keys, as on another machine."""
        blind_tasks = [*blind, *[False] * len(tasks)]
        without_keys = replace(self.job, keys=Path("/nowhere/keys"))
        return [
            write_part(task, without_keys if is_blind else self.job, AT)
            for task, is_blind in zip(tasks, blind_tasks, strict=False)
        ]

    def land(self, batch: int, *tasks: Sequence[MessageBatch], blind: Sequence[bool] = ()) -> None:
        self.commit.land(batch, lambda: self.write(tasks, blind))

    def rows(self, kind: str = MessageKind.EVENT) -> list[RowPosition]:
        """Return topic and offset of all rows of a kind."""
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
    raise AssertionError("a committed batch is written again")


def test_resent_chunk_lands_once(
    landed: Landed,
) -> None:
    chunk = ["c-0", "c-1"]
    landed.land(0, [with_protocol_ids(enumerate(chunk)), with_protocol_ids([(2, None), (3, None)])])
    landed.land(
        1,
        [with_protocol_ids(enumerate(chunk, 4))],
        [with_protocol_ids(enumerate(["d", *chunk], 6))],
        blind=[False, True],
    )
    assert landed.rows("message") == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("t", 6)]
    compact_table(landed.layout.landed)
    shutil.rmtree(landed.layout.keys)
    landed.restart()
    landed.land(2, [with_protocol_ids(enumerate([*chunk, "d", "e"], 9)), with_protocol_ids(enumerate(chunk), "other")])
    assert landed.rows("message") == [("other", 0), ("other", 1), *(("t", n) for n in (0, 1, 2, 3, 6, 12))]


def test_committed_batch_is_not_written_again(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a")), (1, b"text"), (2, b"{bad")])])
    for _ in range(2):
        landed.commit.land(0, never)
        landed.restart()
    assert landed.rows() == [("t", 0)]
    assert (landed.rows("message"), landed.rows("quarantine")) == ([("t", 1)], [("t", 2)])


def test_duplicates_of_other_tasks_are_dropped(landed: Landed) -> None:
    first = [source([(0, event("a")), (1, event("b"))])]
    second = [source([(2, event("c")), (3, event("a")), (4, event("d", "other"))])]
    third = [source([(5, event("c")), (6, event("b"))])]
    landed.land(0, first, second, third)
    assert landed.offsets() == [0, 1, 2, 4]
    files = [path for path in landed.table.folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == len(landed.table.active())
    landed.land(1, [source([(7, event("a")), (8, event("d")), (9, event("e"))])])
    assert landed.offsets() == [0, 1, 2, 4, 9]


def test_repeat_of_a_duplicate_stays_beyond_the_window(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    times = [AT + WINDOW, AT + 2 * WINDOW]
    landed.land(1, [source([(1, event("a")), (2, event("a"))], at=times)], blind=[True])
    assert landed.offsets() == [0, 2]


def test_blind_tasks_land_no_duplicates(landed: Landed) -> None:
    landed.land(0, [source([(n, event(f"u{n}")) for n in range(4)])])
    landed.land(1, [source([(4, event("u0")), (5, event("x"))])], [source([(6, event("u1"))])], blind=[True, False])
    assert landed.offsets() == [0, 1, 2, 3, 5]


def test_relanded_rows_stay_and_enter_the_keys(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(0, event("a"))], relands=True), source([(1, event("a")), (2, event("b"))])])
    assert landed.offsets() == [0, 0, 2]
    landed.land(2, [source([(3, event("a")), (4, event("b"))])])
    assert landed.offsets() == [0, 0, 2]


def test_uuid_in_other_topic_or_beyond_window_stays(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])], [source([(0, event("a"))], topic="s")])
    landed.land(1, [source([(1, event("a"))], at=AT + DAY)])
    assert landed.rows() == [("s", 0), ("t", 0), ("t", 1)]


def test_batch_of_duplicates_is_committed_without_rows(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(1, event("a"))])], blind=[True])
    landed.land(2)
    assert (landed.table.newest(), landed.offsets()) == (2, [0])
    landed.restart()
    landed.land(3, [source([(2, event("a")), (3, event("b"))])])
    assert landed.offsets() == [0, 3]


def test_dropped_event_has_a_row_and_no_key(landed: Landed) -> None:
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
    """Return the offsets that stay if events are handled one after the other."""
    times_by_uuid: dict[int, list[int]] = {}
    kept_offsets = []
    for batch in batches:
        for offset, (uuid, minute) in batch:
            times = times_by_uuid.setdefault(uuid, [])
            if all(abs(minute - time) * 60_000_000 > WINDOW for time in times):
                times.append(minute)
                kept_offsets.append(offset)
    return kept_offsets


LOSSES: list[Callable[[Landed], object]] = [
    lambda landed: shutil.rmtree(landed.layout.keys, ignore_errors=True),
    lambda landed: [path.write_bytes(b"torn") for path in landed.layout.keys.glob("*")],
    lambda landed: compact_table(landed.layout.landed),
    lambda landed: None,
]


@FEW_EXAMPLES
@given(st.data())
def test_table_matches_model_across_losses(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
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
    """The end of the process."""


@pytest.mark.parametrize("when", ["before the commit", "before the keys"])
def test_landing_continues_exactly_after_a_kill_around_commit(
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


def test_keys_of_lost_batch_are_dropped(tmp_path: Path) -> None:
    """A power cut may leave the commit torn, and the keys whole."""
    landed = Landed(tmp_path)
    landed.land(0, [source([(0, event("a"))])])
    landed.land(1, [source([(1, event("b"))])])
    max((landed.layout.landed / "_delta_log").glob("*.json")).write_bytes(b"")
    landed.restart()
    assert landed.table.newest() == 0
    landed.land(1, [source([(1, event("b")), (2, event("a"))])])
    assert landed.offsets() == [0, 1]


def test_rebuilt_keys_match_stored_keys(landed: Landed, tmp_path: Path) -> None:
    random_source = random.Random(15)
    for batch in range(20):
        uuids = [random_source.randrange(200) for _ in range(20)]
        rows = [(batch * 20 + n, event(f"u{uuid}")) for n, uuid in enumerate(uuids)]
        landed.land(batch, [source(rows, at=AT + batch * 60_000_000)])
    stored_keys = LandedKeys.load(landed.layout.keys, WINDOW)
    rebuilt_keys = load_landed_keys(landed.table, tmp_path / "elsewhere", WINDOW)
    assert stored_keys is not None
    assert stored_keys.batch == rebuilt_keys.batch == 19
    payloads = [event(f"u{uuid}") for uuid in range(250)]
    part = write_part([source(list(enumerate(payloads)), at=AT + 19 * 60_000_000)], Job(tmp_path, tmp_path, WINDOW), AT)
    seen = EventsSeen.concat([file.seen for file in part.files if file.seen is not None])
    answers = [landed_before(seen, keys.runs, WINDOW).tolist() for keys in (stored_keys, rebuilt_keys)]
    assert answers[0] == answers[1]
    assert 0 < sum(answers[0]) < 250


@pytest.mark.survives("landing from the log", "changed configuration")
def test_changed_window_rebuilds_keys(landed: Landed) -> None:
    landed.land(0, [source([(0, event("a"))])])
    wider = BatchCommit(landed.table, landed.layout.keys, 3 * WINDOW)
    job = replace(landed.job, window=3 * WINDOW)
    wider.land(1, lambda: [write_part([source([(1, event("a"))], at=AT + 2 * WINDOW)], job, AT)])
    assert landed.offsets() == [0]


def test_removed_file_has_no_events(landed: Landed, tmp_path: Path) -> None:
    assert len(read_events(tmp_path, TableFile("gone"))) == 0
    landed.land(0, [source([(0, event("a"))])], [source([(1, event("b"))])])
    files: list[NewFile] | list[str] = landed.table.active()
    (landed.layout.landed / str(files[0])).unlink()
    shutil.rmtree(landed.layout.keys)
    landed.restart()
    landed.land(1, [source([(2, event("a")), (3, event("b"))])])
    assert landed.table.newest() == 1
