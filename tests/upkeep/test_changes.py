"""Changes since a position: a consumer that applies them has the rows of the table after any work on it."""

from __future__ import annotations

import random
import runpy
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest

import penstock.tables
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import write_starts
from penstock.upkeep.changes import RELANDED, BadPosition, NoSuchSource, Position, read_changes
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.fill import fill
from penstock.upkeep.typed.refill import refill
from tests.landing.table.foreign_writer import delete_by_vector
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source

EVENTS = 4
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def life(tmp_path: Path) -> typed_life.Life:
    """A table with a typed table of clicks, and two batches."""
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    land(life, 1)
    return life


def land(life: typed_life.Life, batch: int) -> None:
    """Land a batch of clicks and a message."""
    payloads = [*(typed_life.event(f"{batch}-{n}", path=f"/{n}", ms=n) for n in range(EVENTS)), b"text"]
    life.land(batch, [source(list(enumerate(payloads, batch * 10)))], landed_at=AT + batch)


def lose_and_reland(life: typed_life.Life, batch: int) -> None:
    """Remove the files of batch 0, as of damaged ones, and land its rows again in a batch that also has new ones."""
    table = table_of(life.layout)
    table.replace(dict(table.files())[0], [])
    payloads = [*(typed_life.event(f"0-{n}", path=f"/{n}", ms=n) for n in range(EVENTS)), b"text"]
    new = [(batch * 10 + n, typed_life.event(f"{batch}-{n}", path=f"/{n}", ms=n)) for n in range(EVENTS)]
    life.land(batch, [source(list(enumerate(payloads)), relands=True), source(new)], landed_at=AT + batch)


def uuids(*batches: int) -> list[str]:
    return sorted(f"{batch}-{n}" for batch in batches for n in range(EVENTS))


def delete(layout: Layout, conditions: str) -> None:
    request_deletion(layout, REQUESTED, parse_conditions(conditions))
    assert execute_deletions(layout, typed_life.WINDOW) == 1


@dataclass
class Consumer:
    """A program that applies changes to its own copy of a view."""

    layout: Layout
    view: str
    position: Position | None = None
    rows: dict[tuple[str, int], str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)

    def read(self) -> list[str]:
        """Apply the changes since the last call, and return the uuids that were added."""
        changes = read_changes(self.layout, self.view, self.position)
        if changes.is_complete:
            self.rows.clear()
        for run in changes.deleted.to_pylist():
            for offset in range(run["begin"], run["end"]):
                self.rows.pop((run["topic"], offset), None)
        new = [row for batch in changes.added() for row in batch.to_pylist()]
        for row in new:
            key = (row["topic"], row["offset"])
            assert key not in self.rows, "a row comes once"
            self.rows[key] = row.get("uuid")
        self.position = Position.parse(str(changes.next))
        return sorted(row["uuid"] for row in new if row.get("uuid") is not None)

    @property
    def uuids(self) -> list[str]:
        return sorted(uuid for uuid in self.rows.values() if uuid is not None)


@pytest.mark.parametrize("view", ["landed", "events", "events_click"])
def test_changes_are_batches_and_deletions_but_not_merges(life: typed_life.Life, view: str) -> None:
    consumer = Consumer(life.layout, view)
    assert consumer.read() == uuids(0, 1)
    assert consumer.read() == []
    land(life, 2)
    compact_all(life.layout)
    assert consumer.read() == uuids(2)
    compact_all(life.layout)
    assert consumer.read() == []
    delete(life.layout, "uuid in ('0-1', '2-1')")
    assert consumer.read() == []
    assert consumer.uuids == sorted({*uuids(0, 1, 2)} - {"0-1", "2-1"})


def test_messages_view_has_rows_of_its_kind_only(life: typed_life.Life) -> None:
    changes = read_changes(life.layout, "messages")
    assert sorted(row["offset"] for rows in changes.added() for row in rows.to_pylist()) == [4, 14]


def test_rows_are_listed_by_batch_after_a_batch_number(life: typed_life.Life) -> None:
    land(life, 2)
    compact_all(life.layout)
    changes = read_changes(life.layout, "events", Position.parse("0"))
    rows = pa.Table.from_batches(changes.added_with_batch(), changes.schema_with_batch).to_pylist()
    assert not changes.is_complete
    assert sorted((row["_batch"], row["uuid"]) for row in rows) == [(int(u[0]), u) for u in uuids(1, 2)]
    assert [row["date"].year for row in rows] == [2026] * len(rows)


def test_deletions_after_a_batch_number_are_those_since_that_batch(life: typed_life.Life) -> None:
    delete(life.layout, "uuid = '0-1'")
    land(life, 2)
    delete(life.layout, "uuid = '1-1'")
    deleted = read_changes(life.layout, "landed", Position.parse("2")).deleted.to_pylist()
    assert [(run["batch"], run["begin"], run["end"], run["why"]) for run in deleted] == [(2, 11, 12, "asked")]


def test_all_rows_are_read_again_once_a_typed_table_was_filled(life: typed_life.Life) -> None:
    (click,) = life.tables
    write_starts(life.layout, {"click": 0})
    consumer = Consumer(life.layout, "events_click")
    consumer.read()
    land(life, 2)
    fill(life.layout, click)
    assert read_changes(life.layout, "events_click", consumer.position).is_complete
    consumer.read()
    assert consumer.uuids == uuids(0, 1, 2)


def test_all_rows_are_read_again_after_each_refill_of_a_typed_table(life: typed_life.Life) -> None:
    (click,) = life.tables
    consumer = Consumer(life.layout, "events_click")
    consumer.read()
    for _ in range(2):
        refill(life.layout, click)
        assert consumer.read() == uuids(0, 1)
        fill(life.layout, click)
        assert consumer.read() == []
    land(life, 2)
    assert consumer.read() == uuids(2)


@pytest.mark.parametrize("view", ["landed", "events", "messages", "events_click"])
def test_lost_rows_that_land_again_replace_the_rows_that_were_read(life: typed_life.Life, view: str) -> None:
    consumers = [Consumer(life.layout, view), Consumer(life.layout, view), Consumer(life.layout, view)]
    consumers[0].read()
    lose_and_reland(life, 2)
    consumers[1].position = consumers[0].position
    consumers[1].rows = dict(consumers[0].rows)
    consumers[0].read()
    delete(life.layout, "uuid in ('0-1', '2-1')")
    compact_all(life.layout)
    for consumer in consumers:
        consumer.read()
        assert consumer.uuids == ([] if view == "messages" else sorted({*uuids(0, 1, 2)} - {"0-1", "2-1"}))
        assert len([offset for _, offset in consumer.rows if offset in (4, 14)]) == (view in ("landed", "messages")) * 2


def test_offsets_that_land_again_are_deleted_in_the_batch_that_adds_them(life: typed_life.Life) -> None:
    since = read_changes(life.layout, "messages").next
    lose_and_reland(life, 2)
    changes = read_changes(life.layout, "messages", since)
    row = {"deletion": None, "why": RELANDED, "batch": 2, "topic": "t", "partition": None, "begin": 4, "end": 5}
    assert (changes.is_complete, changes.deleted.to_pylist()) == (False, [row])
    runs = read_changes(life.layout, "events", since).deleted.to_pylist()
    assert sorted((run["begin"], run["end"]) for run in runs) == [(0, 4), (20, 24)]
    assert read_changes(life.layout, "events", read_changes(life.layout, "events").next).is_empty


def test_offsets_of_partitions_that_land_again_are_runs_of_each_partition(life: typed_life.Life) -> None:
    since = read_changes(life.layout).next
    tasks = [
        source([(n, b"text") for n in offsets], topic=topic, partition=partition, relands=True)
        for topic, partition, offsets in (("b", 1, (7, 8)), ("a", 1, (9,)), ("b", 0, (5, 6)), ("b", None, (9,)))
    ]
    life.land(2, tasks, landed_at=AT + 2)
    runs = read_changes(life.layout, "landed", since).deleted.select(["topic", "partition", "begin", "end"])
    assert {tuple(run.values()) for run in runs.to_pylist()} == {
        ("a", 1, 9, 10),
        ("b", None, 9, 10),
        ("b", 0, 5, 7),
        ("b", 1, 7, 9),
    }


def test_filled_rows_come_to_a_position_of_a_time_without_the_table_in_the_configuration(
    life: typed_life.Life,
) -> None:
    unconfigured = typed_life.Life(life.layout, ())
    land(unconfigured, 2)
    consumer = Consumer(life.layout, "events_click")
    assert consumer.read() == uuids(0, 1)
    configured = typed_life.Life(life.layout)
    fill(life.layout, configured.tables[0])
    consumer.read()
    assert consumer.uuids == uuids(0, 1, 2)


def test_all_rows_are_read_again_when_the_log_no_longer_reaches_back(life: typed_life.Life) -> None:
    consumer = Consumer(life.layout, "events")
    consumer.read()
    land(life, 2)
    land(life, 3)
    table = table_of(life.layout)
    table._table.create_checkpoint()
    for version in range(table.version() - 1):
        Path(str(table.commit_path(version))).unlink()
    assert read_changes(life.layout, "events", consumer.position).is_complete
    consumer.read()
    assert consumer.uuids == uuids(0, 1, 2, 3)


def test_all_rows_are_read_again_from_other_tables(life: typed_life.Life, tmp_path: Path) -> None:
    consumer = Consumer(life.layout, "events")
    consumer.read()
    other = typed_life.Life(Layout.for_tables(tmp_path / "restored"))
    other.land(0, [source([(0, typed_life.event("x"))])], landed_at=AT)
    consumer.layout = other.layout
    assert consumer.read() == ["x"]
    assert consumer.uuids == ["x"], "the position is of a later batch"
    other.land(1, [source([(10, typed_life.event("y"))])], landed_at=AT + 77)
    consumer.position = Position(1, 0, -1, AT + 1)
    assert consumer.read() == ["x", "y"], "the batch has another time"


def test_batch_that_only_a_typed_table_has_comes_once_it_landed(life: typed_life.Life) -> None:
    from penstock.landing.writing.part_writer import write_part

    part = write_part([source([(20, typed_life.event("2-0", path="/", ms=0))])], life.job, AT + 5)
    life.typed.commit(2, part.files)
    consumer = Consumer(life.layout, "events_click")
    assert consumer.read() == uuids(0, 1)
    land(life, 2)
    assert consumer.read() == uuids(2)


@pytest.mark.survives("typed tables and contracts", "foreign writer")
@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_rows_that_another_program_deleted_are_deleted_once_they_are_accounted_for(life: typed_life.Life) -> None:
    consumer, clicks = Consumer(life.layout, "events"), Consumer(life.layout, "events_click")
    consumer.read()
    clicks.read()
    name = next(name for name in table_of(life.layout).active() if name.startswith("kind=event"))
    delete_by_vector(life.layout.tables / "landed", name, [0])
    note_foreign_changes(life.layout)
    execute_deletions(life.layout, typed_life.WINDOW)
    consumer.read()
    clicks.read()
    assert len(consumer.uuids) == 2 * EVENTS - 1
    assert len(clicks.uuids) == 2 * EVENTS, "rows of typed tables stay"


@pytest.mark.parametrize("seed", range(3))
def test_consumers_of_any_speed_have_the_rows_of_the_table(tmp_path: Path, seed: int) -> None:
    chance, life = random.Random(seed), typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    consumers = [Consumer(life.layout, view) for view in ("events", "events_click")]
    batch = 0
    for _ in range(14):
        choice = chance.random()
        if choice < 0.5:
            land(life, batch)
            batch += 1
        elif choice < 0.65:
            compact_all(life.layout)
        elif choice < 0.85 and batch:
            delete(life.layout, f"uuid = '{chance.randrange(batch)}-{chance.randrange(EVENTS)}'")
        else:
            DeltaTable(life.layout.landed).vacuum(0)
        for consumer in consumers:
            if chance.random() < 0.4:
                consumer.read()
    for consumer in consumers:
        consumer.read()
        table = "landed" if consumer.view == "events" else consumer.view
        assert consumer.uuids == typed_life.uuids(life.layout.tables / table)


def test_unknown_views_and_positions_are_refused(life: typed_life.Life) -> None:
    with pytest.raises(NoSuchSource, match=r"existing views: landed, events, .*events_click"):
        read_changes(life.layout, "clicks")
    for text in ("", "x", "1.2", "1.2.3", "1" * 100, "1.2.3.4.5"):
        with pytest.raises(BadPosition):
            Position.parse(text)


def test_tables_without_a_commit_have_no_changes(tmp_path: Path) -> None:
    changes = read_changes(Layout.for_tables(tmp_path / "tables"), "events")
    assert list(changes.added()) == []
    assert str(changes.next) == "-1.0.-1.0"


def test_example_for_schedulers_applies_changes(life: typed_life.Life, tmp_path: Path) -> None:
    load_changes = runpy.run_path(str(EXAMPLES / "incremental.py"))["load_changes"]
    for view in ("events", "events_click"):
        assert load_changes(life.layout.tables, view, tmp_path / "copy.duckdb") == 2 * EVENTS
    land(life, 2)
    delete(life.layout, "uuid = '0-1'")
    for view in ("events", "events_click"):
        assert load_changes(life.layout.tables, view, tmp_path / "copy.duckdb") == EVENTS
        with duckdb.connect(str(tmp_path / "copy.duckdb")) as connection:
            rows = connection.execute(f"select uuid from {view} order by 1").fetchall()
        assert [uuid for (uuid,) in rows] == [uuid for uuid in uuids(0, 1, 2) if uuid != "0-1"]


def test_python_function_returns_the_same_changes(life: typed_life.Life) -> None:
    first = penstock.tables.changes(life.layout.tables, "events")
    assert sum(rows.num_rows for rows in first.added()) == 2 * EVENTS
    land(life, 2)
    second = penstock.tables.changes(life.layout.tables, "events", since=str(first.next))
    assert sorted(u for rows in second.added() for u in rows["uuid"].to_pylist()) == uuids(2)


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
@pytest.mark.parametrize("view", ["landed", "events", "events_click"])
def test_deleted_rows_that_another_program_brought_back_are_in_no_copy(life: typed_life.Life, view: str) -> None:
    folder = str(life.layout.tables / ("events_click" if view == "events_click" else "landed"))
    version = deltalake.DeltaTable(folder).version()
    note_foreign_changes(life.layout)
    delete(life.layout, "uuid = '0-1'")
    deltalake.DeltaTable(folder).restore(version)
    rows = pa.Table.from_batches(read_changes(life.layout, view).added())
    assert sorted(uuid for uuid in rows["uuid"].to_pylist() if uuid) == [uuid for uuid in uuids(0, 1) if uuid != "0-1"]
