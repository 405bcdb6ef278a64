"""Each operation of another library in docs/tables.md, run between Penstock's commits, has the result of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import FOREIGN, REQUESTED, DeletionRecord, request_deletion
from penstock.landing.table.features import FeatureNotWritten
from penstock.landing.table_paths import Layout
from penstock.proof.commit_notes import TYPED_COMPLAINTS, noted_complaints
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.typed.refill import refill
from tests.engines.foreign_operations import COUNTED, DELETED_AGAIN, NAMED, REFUSED
from tests.engines.library_operations import (
    DUCKDB_OPERATIONS,
    OPERATIONS,
    LibraryOperation,
    append,
    merge,
    other_rows,
    rows_of,
    table_lines,
)
from tests.landing.typed.typed_life import CLICK, WINDOW, Life, event, uuids
from tests.landing.writing.messages import source

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_page_has_the_table_of_these_operations() -> None:
    assert "\n".join(table_lines()) in PAGE.read_text(), "run `python -m tests.engines.library_operations`"


class Landing:
    """A table with a typed table, written by the pipeline's own code."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.life, self._batches = layout, Life(layout), 0

    def land(self, batches: int = 1) -> None:
        for batch in range(self._batches, self._batches + batches):
            rows = [(number, event(f"a-{number:03}", ms=number)) for number in range(batch * 10, batch * 10 + 10)]
            self.life.land(batch, [source(rows)])
        self._batches += batches

    def delete(self, uuid: str) -> None:
        request_deletion(self.layout, REQUESTED, parse_conditions(f"uuid = '{uuid}'"))
        self.look()

    def look(self) -> None:
        """Examine the commits of others and carry out deletions, as the pipeline's maintenance does."""
        note_foreign_changes(self.layout)
        execute_deletions(self.layout, WINDOW)

    def uuids(self) -> list[str]:
        """Return the uuids as delta-rs reads them; `penstock sql` has the same."""
        rows = uuids(self.layout.tables / "landed")
        with Query(Tables(self.layout, typed=(CLICK,)), "SELECT uuid FROM landed ORDER BY 1") as query:
            assert query.answer()["uuid"].to_pylist() == rows
        return rows

    def complaints(self, key: str = "complaints") -> list[str]:
        return [complaint.text for complaint in noted_complaints(self.layout, key)]


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Four batches of ten events; before the last one, ``a-001`` was deleted and files were merged."""
    written = Landing(Layout.for_tables(tmp_path / "tables"))
    written.land(3)
    return written


CASES = [*OPERATIONS, *(pytest.param(operation, marks=pytest.mark.soak) for operation in DUCKDB_OPERATIONS)]


@pytest.mark.parametrize("operation", CASES, ids=lambda operation: f"{operation.library} {operation.shown}"[:60])
def test_operation_has_the_result_of_the_page(landing: Landing, operation: LibraryOperation) -> None:
    before = landing.life.table.version()
    landing.delete("a-001")
    compact_all(landing.layout)
    landing.land()
    landing.look()
    operation.run(str(landing.layout.landed), before)
    if operation.result == REFUSED:
        for attempt in (landing.life.table.begin, landing.land, lambda: compact_all(landing.layout)):
            with pytest.raises(FeatureNotWritten, match=operation.words):
                attempt()
        return
    landing.look()
    if operation.result in (NAMED, DELETED_AGAIN):
        (text,) = landing.complaints()
        assert operation.words in text
        assert ("DuckDB" if operation.library == "DuckDB" else "delta-rs") in text
    else:
        assert landing.complaints() == []
    record = DeletionRecord(landing.layout)
    counted = sum(record.rows(deletion.number) for deletion in record.deletions if deletion.why == FOREIGN)
    is_removal = operation.result == COUNTED or operation.rows < 0
    assert counted == (-operation.rows if is_removal else 0)
    rows = landing.uuids()
    assert len(rows) == len({*rows}) == 39 + operation.rows
    assert "a-001" not in rows
    others = {uuid for uuid in rows if uuid.startswith("other-")}
    landing.land()
    landing.delete("a-002")
    compact_all(landing.layout)
    landing.land()
    last = [f"a-{number:03}" for number in range(40, 60)]
    assert landing.uuids() == sorted({*rows, *others, *last} - {"a-002"}), "nothing is lost or comes back"


def merge_rows(folder: str, rows: pa.Table) -> None:
    """Update a row and insert others in one commit."""
    merging = merge(folder, pa.concat_tables([rows_of(folder, ["a-006"]), rows]))
    merging.when_matched_update({"host": "'changed'"}).when_not_matched_insert_all().execute()


@pytest.mark.parametrize(("insert", "operation"), [(append, "WRITE"), (merge_rows, "MERGE")])
def test_rows_inserted_into_a_typed_table_are_named_and_gone_after_a_refill(
    landing: Landing, insert: Callable[[str, pa.Table], None], operation: str
) -> None:
    folder = landing.layout.typed("click")
    landing.look()
    insert(str(folder), other_rows(str(folder), "a-005"))
    version = deltalake.DeltaTable(str(folder)).version()
    landing.land()
    landing.look()
    landing.delete("a-002")
    compact_all(landing.layout)
    assert landing.complaints() == []
    (text,) = landing.complaints(TYPED_COMPLAINTS)
    assert f"{folder}: version {version} is {operation} of delta-rs" in text
    assert text.endswith("it inserted rows, which stay until `penstock tables refill click`")
    assert uuids(folder) == sorted([*landing.uuids(), "other-a-005"])
    assert refill(landing.layout, CLICK) == 39
    assert uuids(folder) == landing.uuids()
