"""The check of all files of the tables, and the repair of damaged ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.cli.balance import BalanceQuery, exit_status, receipt_lines
from penstock.cli.run.doctor import tables
from penstock.cli.tables.pipeline import status as pipeline_status
from penstock.config import Settings
from penstock.config.daemon_keys import DaemonKeys
from penstock.landing.damaged_files import PUT_BACK, damaged_files
from penstock.landing.journal import Journal
from penstock.landing.requests.backfill_requests import load_requests
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.log import Log
from penstock.proof.status import status
from penstock.upkeep.compaction.compaction import compact_table, sweep_table
from penstock.upkeep.repair.scrub import Scrub, find_damage, find_damaged_files
from tests.engines.foreign_spark import ForeignSpark
from tests.landing.typed.typed_life import CLICK, Life, read
from tests.landing.typed.typed_life import event as typed_event
from tests.landing.writing.messages import source
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message


def flip_page(path: Path, column: str = "") -> None:
    """Flip a bit in the middle of the pages of the second column, or the last bit of the pages of a column."""
    file = pq.ParquetFile(path)
    chunk = file.metadata.row_group(0).column(file.schema_arrow.names.index(column) if column else 1)
    position = chunk.data_page_offset + chunk.total_compressed_size // 2
    if column:
        position = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.fixture
def landed(table: HandWritten, topics: Path) -> HandWritten:
    """Two files of a topic whose rows are all in the log."""
    append(topics, "t", [b"text", event(1), b"more", event(2)])
    table.commit({"t": 2}, [landed_message(0), landed_event(1, "u-1")])
    table.commit({"t": 4}, [landed_message(2), landed_event(3, "u-2")])
    Journal(table.layout).update()
    return table


def check_all(layout: object, topics: Path | None) -> None:
    scrub = Scrub(layout, topics)  # type: ignore[arg-type]
    for _ in range(len(table_of(layout).active())):  # type: ignore[arg-type]
        scrub.check_next()


@pytest.mark.survives("merge, deletion, restore", "damaged bytes")
@pytest.mark.parametrize("name", [0, -1])
def test_each_flipped_bit_of_a_page_is_found(landed: HandWritten, name: int) -> None:
    path = landed.layout.landed / sorted(landed.files)[name]
    good, metadata = path.read_bytes(), pq.ParquetFile(path).metadata.row_group(0)
    chunks = [metadata.column(number) for number in range(metadata.num_columns)]
    begins = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks]
    inside = np.concatenate([np.arange(b, b + c.total_compressed_size) for b, c in zip(begins, chunks, strict=True)])
    dice = random.Random(1)
    missed = 0
    rows = pq.ParquetFile(path).read()
    for position in dice.sample(inside.tolist(), 150):
        content = bytearray(good)
        content[position] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        if not find_damage(landed.layout.landed, TableFile(sorted(landed.files)[name])):
            # The header of a page has no checksum. In so small a file it is a third of all bytes.
            assert pq.ParquetFile(path).read().equals(rows), f"byte {position}"
            missed += 1
    assert missed < 50


def test_damaged_file_leaves_the_table_and_its_rows_are_asked_for_again(
    landed: HandWritten, topics: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout, name = landed.layout, next(name for name in landed.files if name.startswith("kind=message"))
    flip_page(layout.landed / name)
    assert [path for path, _ in find_damaged_files(layout)] == [f"{layout.landed}/{name}"]
    check_all(layout, topics)
    assert name not in table_of(layout).active()
    assert len(table_of(layout).active()) == 3
    [request] = load_requests(layout.backfills).values()
    assert (request.topic, request.runs, request.lost) == ("t", ((0, 1),), True)
    assert damaged_files(layout) == {f"{layout.landed}/{name}": "repaired"}
    assert find_damaged_files(layout) == []
    assert f"{name} is damaged and has left the table; its 1 rows land again" in caplog.text
    assert status(topics, layout, ["t"]).damaged_files == 1
    check_all(layout, topics)
    assert len(load_requests(layout.backfills)) == 1


def test_rows_are_asked_for_after_a_kill_behind_the_removal(
    landed: HandWritten, topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, name = landed.layout, landed.files[0]
    flip_page(layout.landed / name)
    with monkeypatch.context() as patch:
        patch.setattr(Scrub, "_request_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            check_all(layout, topics)
    assert name not in table_of(layout).active()
    assert not load_requests(layout.backfills)
    Scrub(layout, topics).check_next()
    assert [request.rows for request in load_requests(layout.backfills).values()] == [1]
    assert set(damaged_files(layout).values()) == {"repaired"}


def test_damaged_file_stays_if_the_log_lacks_its_rows(
    landed: HandWritten, topics: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(Log(topics)) as log:
        log.delete("t")
    name = landed.files[0]
    flip_page(landed.layout.landed / name)
    for folder in (topics, None):
        check_all(landed.layout, folder)
    assert name in table_of(landed.layout).active()
    assert not load_requests(landed.layout.backfills)
    assert damaged_files(landed.layout) == {f"{landed.layout.landed}/{name}": "reported"}
    assert "is damaged and stays in the table, because the log lacks some of its rows" in caplog.text


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [flip_page, cut_short])
def test_unreadable_file_is_named_with_the_next_step_until_it_is_back(
    landed: HandWritten,
    topics: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout, path = landed.layout, landed.layout.landed / landed.files[0]
    settings = Settings.model_validate({"data_dir": tmp_path, "pipeline": {"tables": str(layout.tables)}})
    query = BalanceQuery(DaemonKeys(tables=str(layout.tables), load_all=lambda: settings), {}, None, rebuild=False)
    balance: dict[str, Any] = {"topics": [], "listeners": [], "routes": [], "unaccounted": 0}
    assert query.local_facts(balance) == {}
    content = path.read_bytes()
    damage(path)
    check_all(layout, None)
    (line,) = query.local_facts(balance)["unreadable"]
    assert line.startswith(f"{path} is damaged, and its rows cannot be read: ")
    seen = balance | {"unreadable": [line]}
    assert exit_status(seen) == 1
    assert "1 file of the tables cannot be read" in receipt_lines(seen)[0]
    assert [(finding.state, finding.text, finding.advice) for finding in tables(settings)] == [("bad", line, PUT_BACK)]
    pipeline_status(settings)
    printed = capsys.readouterr().out
    assert line in printed
    assert f"next: {PUT_BACK}" in printed
    path.write_bytes(content)
    assert query.local_facts(balance) == {}
    assert [*tables(settings)] == []
    check_all(layout, None)
    assert damaged_files(layout) == {str(path): "repaired"}


@pytest.mark.parametrize("is_missing", [False, True])
def test_rows_land_again_without_a_footer(landed: HandWritten, topics: Path, is_missing: bool) -> None:
    layout, name = landed.layout, next(name for name in landed.files if name.startswith("kind=event"))
    path = layout.landed / name
    path.unlink() if is_missing else path.write_bytes(path.read_bytes()[:-9])
    check_all(layout, topics)
    assert name not in table_of(layout).active()
    [request] = load_requests(layout.backfills).values()
    assert (request.topic, request.runs, request.lost) == ("t", ((1, 2),), True)
    assert damaged_files(layout) == {f"{layout.landed}/{name}": "repaired"}


def test_rows_that_a_vector_deleted_do_not_come_back(
    table: HandWritten, topics: Path, foreign_spark: ForeignSpark, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither from the log, nor by a merge, which delta-rs would do without a look at the checksums."""
    layout, folder = table.layout, table.layout.landed
    append(topics, "t", [b"text %d" % number for number in range(6)])
    table.commit({"t": 3}, [landed_message(number) for number in range(3)])
    table.commit({"t": 6}, [landed_message(number) for number in range(3, 6)])
    Journal(layout).update()
    scrub = Scrub(layout, topics)
    scrub.check_next()  # lists the files before the vector is there
    foreign_spark.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", folder)
    foreign_spark.sql("DELETE FROM {} WHERE `offset` in (1, 4)", folder)
    files = table_of(layout).active()
    assert len([file for file in files if file.live is not None]) == 2
    for file in files:
        flip_page(folder / file, "message")
    for _ in range(3):
        scrub.check_next()
    compact_table(folder)
    sweep_table(table_of(layout))
    assert table_of(layout).active() == files
    assert set(damaged_files(layout).values()) == {"reported"}
    assert load_requests(layout.backfills) == {}
    assert "is damaged and stays in the table, because another program deleted rows of it by a deletion" in caplog.text
    assert [row["offset"] for row in foreign_spark.sql("SELECT `offset` FROM {} ORDER BY 1", folder)] == [0, 2, 3, 5]
    # A restore of the files by hand: the rows are intact, and the vectors are applied.
    for file in files:
        flip_page(folder / file, "message")
    compact_table(folder)
    assert [file.live for file in table_of(layout).active()] == [None]
    assert [row["offset"] for row in foreign_spark.sql("SELECT `offset` FROM {} ORDER BY 1", folder)] == [0, 2, 3, 5]


def test_intact_tables_are_checked_in_silence(
    landed: HandWritten, topics: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_all(landed.layout, topics)
    assert (caplog.messages, damaged_files(landed.layout)) == ([], {})


@pytest.fixture
def typed(tmp_path: Path) -> Layout:
    """Two batches of a typed table; all of their rows are in ``landed``, and the log has none."""
    layout = Layout.for_tables(tmp_path / "typed-tables")
    life = Life(layout)
    for batch in range(2):
        life.land(batch, [source([(batch, typed_event(f"u{batch}", ms=batch))])])
    return layout


@pytest.mark.parametrize("column", ["ms", "offset"])
def test_damaged_file_of_a_typed_table_is_replaced_by_rows_of_landed(
    typed: Layout, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    folder, rows = typed.typed("click"), read(typed.typed("click"))
    name = TypedDelta(folder).active()[0]
    flip_page(folder / name, column)
    scrub = Scrub(typed)
    for _ in range(4):
        scrub.check_next([CLICK])
    assert read(folder) == rows
    assert name not in TypedDelta(folder).active()
    assert damaged_files(typed) == {f"{folder}/{name}": "repaired"}
    assert f"{name} is damaged and has been replaced by its 1 rows of landed" in caplog.text
    assert find_damaged_files(typed) == []


def test_damaged_file_of_a_typed_table_stays_if_landed_is_damaged_or_the_table_is_not_configured(
    typed: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    folder = typed.typed("click")
    name = TypedDelta(folder).active()[0]
    flip_page(folder / name)
    for _ in range(4):
        (scrub := Scrub(typed)).check_next()
        for _ in range(3):
            scrub.check_next()
    assert "(not replaced: the table is no longer configured)" in caplog.text
    for file in table_of(typed).active():
        flip_page(typed.landed / file)
    scrub = Scrub(typed)
    for _ in range(4):
        scrub.check_next([CLICK])
    assert name in TypedDelta(folder).active()
    assert damaged_files(typed)[f"{folder}/{name}"] == "reported"


def test_damaged_rows_of_kafka_are_reported_with_their_offsets(
    table: HandWritten, topics: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table.commit({"k/0": 7}, [landed_message(5, "k"), landed_message(6, "k")])
    Journal(table.layout).update()
    flip_page(table.layout.landed / table.files[0])
    check_all(table.layout, topics)
    assert "its rows are from Kafka, which is not read again (topic k, offsets 5 to 6)" in caplog.text
    assert damaged_files(table.layout) == {f"{table.layout.landed}/{table.files[0]}": "reported"}
