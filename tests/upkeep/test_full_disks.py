"""Merges, deletions and repairs on a disk that is full at any of their steps: no row is lost or doubled."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.files.disk_space import is_disk_full
from penstock.landing.damaged_files import REMOVING, REPAIRED, damaged_files
from penstock.landing.journal import Journal
from penstock.landing.requests.backfill_requests import load_requests
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.compaction.typed_compaction import compact_all
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.maintenance import Maintenance, Upkeep
from penstock.upkeep.repair.scrub import Scrub
from tests.landing.typed.typed_life import CLICK, Life, event, uuids
from tests.landing.writing.messages import source
from tests.small_disk import small_file_system
from tests.spark.spark_helpers import HandWritten, append, landed_message
from tests.upkeep.repair.test_scrub import flip_page

PAGE_BYTES = 4096
"""The unit in which the file system gives space."""
WINDOW = 600_000_000
BATCHES, EVENTS = 3, 4
ALL = sorted(f"{batch}-{n}" for batch in range(BATCHES) for n in range(EVENTS))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", "8m") as folder:
        yield folder


@pytest.fixture
def layout(disk: Path) -> Layout:
    """A landed and a typed table of three batches."""
    layout = Layout.for_tables(disk / "tables")
    life = Life(layout)
    for batch in range(BATCHES):
        payloads = [event(f"{batch}-{n}", path=f"/{n}") for n in range(EVENTS)]
        life.land(batch, [source(list(enumerate(payloads, batch * EVENTS)))])
    return layout


@contextlib.contextmanager
def full_disk(folder: Path, free_pages: int) -> Iterator[None]:
    """Fill the disk up to some pages."""
    filling = folder / "filling"
    space = os.statvfs(folder)
    with filling.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (space.f_bavail - free_pages) * PAGE_BYTES)
    try:
        yield
    finally:
        filling.unlink()


def attempt_with_rising_space(folder: Path, change: Callable[[], object], check: Callable[[], None]) -> None:
    """Attempt a change with one page more each time, until it has succeeded; check the tables after each."""
    for pages in itertools.count():
        try:
            with full_disk(folder, pages):
                change()
        except OSError as error:
            if not is_disk_full(error):
                raise
            check()
        else:
            break
    assert pages > 1
    check()


def tables_of(layout: Layout) -> list[DeltaTable]:
    return [table_of(layout), *existing_typed_tables(layout)]


def stored_files(table: DeltaTable) -> set[str]:
    assert isinstance(table.folder, Path)
    return {str(path.relative_to(table.folder)) for path in table.folder.glob("*=*/**/*.parquet")}


@pytest.mark.survives("merge, deletion, restore", "full disk")
def test_merge_on_a_full_disk_changes_no_row_and_leaves_no_file(layout: Layout) -> None:
    before = [stored_files(table) for table in tables_of(layout)]

    def check() -> None:
        assert uuids(layout.landed) == uuids(layout.typed("click")) == ALL
        for table, names in zip(tables_of(layout), before, strict=True):
            assert stored_files(table) == names | {*table.active()}

    attempt_with_rising_space(layout.tables.parent, lambda: compact_all(layout), check)
    assert [len(table.active()) for table in tables_of(layout)] == [1, 1]


@pytest.mark.survives("merge, deletion, restore", "full disk")
def test_deletion_on_a_full_disk_is_tried_again(layout: Layout) -> None:
    request_deletion(layout, REQUESTED, parse_conditions("uuid in ('0-1', '2-3')"))
    remaining = [uuid for uuid in ALL if uuid not in ("0-1", "2-3")]

    def check() -> None:
        # Typed tables lose the rows first.
        assert (uuids(layout.landed), uuids(layout.typed("click"))) in [(ALL, ALL), (ALL, remaining), (remaining,) * 2]

    attempt_with_rising_space(layout.tables.parent, lambda: execute_deletions(layout, WINDOW), check)
    assert uuids(layout.landed) == uuids(layout.typed("click")) == remaining
    assert (
        sum(fates.total() for _, deleted in DeletionRecord(layout).deleted() for fates in deleted.fates.values()) == 2
    )


def test_maintenance_names_the_full_disk(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    request_deletion(layout, REQUESTED, parse_conditions("uuid = '0-1'"))
    maintenance = Maintenance(layout, Upkeep(window=WINDOW), BelievedClock(layout, None))
    for pages in range(8):
        with full_disk(layout.tables.parent, pages):
            maintenance._try(maintenance._run_due_deletions)
    messages = [message for message in caplog.messages if message.startswith("maintenance failed")]
    assert len(messages) > 2
    assert {*messages} == {f"maintenance failed and is retried: no space left on device in {layout.tables}"}


@pytest.mark.survives("merge, deletion, restore", "full disk")
def test_rows_of_a_damaged_file_are_requested_once_after_a_full_disk(disk: Path, tmp_path: Path) -> None:
    topics, table = tmp_path / "topics", HandWritten(Layout.for_tables(disk / "tables"))
    append(topics, "t", [b"text", b"more", b"last"])
    table.commit({"t": 2}, [landed_message(0), landed_message(1)])
    table.commit({"t": 3}, [landed_message(2)])
    layout = table.layout
    Journal(layout).update()
    damaged, intact = table.files
    flip_page(layout.landed / damaged)

    def change() -> None:
        scrub = Scrub(layout, topics)
        for _ in table.files:
            scrub.check_next()

    def check() -> None:
        requested = [request.rows for request in load_requests(layout.backfills).values()]
        # Crash: an entry of the removal brings the request about, at the next check.
        assert damaged in table_of(layout).active() or requested == [2] or REMOVING in damaged_files(layout).values()

    attempt_with_rising_space(disk, change, check)
    assert table_of(layout).active() == [intact]
    assert [request.rows for request in load_requests(layout.backfills).values()] == [2]
    assert damaged_files(layout) == {f"{layout.landed}/{damaged}": REPAIRED}


@pytest.mark.survives("merge, deletion, restore", "full disk")
def test_damaged_file_of_a_typed_table_is_restored_once_after_a_full_disk(layout: Layout) -> None:
    (typed,) = existing_typed_tables(layout)
    damaged = typed.active()[0]
    flip_page(Path(str(typed.folder)) / damaged)
    names = stored_files(typed)

    def change() -> None:
        scrub = Scrub(layout)
        for table in tables_of(layout):
            for _ in table.active():
                scrub.check_next((CLICK,))

    def check() -> None:
        assert damaged in typed.active() or uuids(layout.typed("click")) == ALL
        assert stored_files(typed) == names | {*typed.active()}

    attempt_with_rising_space(layout.tables.parent, change, check)
    assert damaged not in typed.active()
    assert uuids(layout.landed) == uuids(layout.typed("click")) == ALL
    # The replacement is noted after its commit, and that may be the step at which the disk is full.
    assert {*damaged_files(layout).values()} <= {REPAIRED}
