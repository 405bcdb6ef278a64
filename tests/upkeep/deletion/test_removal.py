"""Deletion of rows: each row once, counted by fate, and for good."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import CommitFailedError

from penstock.config import PipelineConfig
from penstock.landing.duplicates.events_seen import key_hashes
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import (
    FOREIGN,
    REQUESTED,
    DeletionRecord,
    load_deletions,
    pending_deletions,
    request_deletion,
)
from penstock.landing.table.delta_table import DeltaTable, SchemaDiffers, TableChanged
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import TypedTable, configured_tables
from penstock.landing.writing.batch_commit import load_landed_keys
from penstock.ledger.book.book import Book
from penstock.ledger.receipt import receipt
from penstock.log.store.gaps import Gap, encode_gap
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient
from penstock.proof.posts.tables import posts_of
from penstock.proof.prover import rebuild
from penstock.proof.rollup import roll_up
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep import maintenance
from penstock.upkeep.backfill_planner import BackfillPlanner
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.compaction.compaction import compact_table, remove_old_files
from penstock.upkeep.deletion import removal
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import count_rows, execute_deletions, request_expired
from penstock.upkeep.maintenance import Follow, Maintenance, Upkeep
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET, HandWritten, append, event, landed_event, landed_message
from tests.upkeep.clocks import DaemonAnswers, Later, believed

WINDOW = 600_000_000
DAY = 86_400


@pytest.fixture
def table(tmp_path: Path, topics: Path) -> HandWritten:
    """Two batches: events u0 to u5, of which u2 came twice, a message and a quarantined one."""
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(0), event(1), event(2), b"text"], [event(2), event(3), b"{bad", event(4), event(5)])
    hosts = ["x", "x", "y"]
    table.commit({"t": 4}, [*(landed_event(n, f"u{n}", host=hosts[n]) for n in range(3)), landed_message(3)])
    bad = {"topic": "t", "offset": 6, "kind": "quarantine", "reason": "bad_json"}
    rows = [landed_event(5, "u3", host="x"), landed_event(7, "u4", host="y"), landed_event(8, "u5", host="y")]
    table.commit({"t": 9}, [*rows, bad])
    return table


def worker(topics: Path, table: HandWritten, running: Daemon | None = None) -> ProofWorker:
    proof_worker = ProofWorker(Landing(topics, table.layout.tables), LedgerClient(running.http) if running else None)
    assert proof_worker.step()
    return proof_worker


def read_offsets(layout: Layout) -> list[int]:
    """Return the offsets that deltalake reads."""
    return sorted(deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table()["offset"].to_pylist())


def fates(running: Daemon) -> dict[str, int]:
    (topic,) = running.ledger.balance().topics
    assert topic.unaccounted == 0
    return topic.fates


def rebuilt_sums(topics: Path, layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Return fates and uuids of the topic, rebuilt from table, log and deletions."""
    book = Book()
    for post in posts_of(topics, layout):
        book.post(post)
    landed = book.snapshot().landed["t"]
    counts: dict[str, int] = {}
    uuids: dict[str, int] = {}
    for sums_by_origin, total in ((landed.counts, counts), (landed.uuids, uuids)):
        for sums in sums_by_origin.values():
            for name, n in sums.items():
                total[name] = (total.get(name, 0) + n) % (1 << 64)
    return {name: n for name, n in counts.items() if n}, {name: n for name, n in uuids.items() if n}


def ledger_sums(running: Daemon) -> tuple[dict[str, int], dict[str, int]]:
    """Return fates and uuids of the topic in the ledger."""
    landed = running.ledger.landed()["t"]
    totals: list[dict[str, int]] = []
    for sums_by_origin in (landed.counts, landed.uuids):
        total: dict[str, int] = {}
        for sums in sums_by_origin.values():
            for name, n in sums.items():
                total[name] = (total.get(name, 0) + n) % (1 << 64)
        totals.append({name: n for name, n in total.items() if n})
    return totals[0], totals[1]


BEFORE = {"landed.event": 6, "landed.message": 1, "quarantined.bad_json": 1, "duplicate": 1}
AFTER = {"landed.event": 3, "landed.message": 1, "quarantined.bad_json": 1, "duplicate": 1, "deleted.asked": 3}


def test_deleted_rows_are_counted_in_balance(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        assert fates(running) == BEFORE
        assert count_rows(table.layout, parse_conditions("host = 'x'")) == (3, 2)
        request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
        assert execute_deletions(table.layout, WINDOW) == 1
        assert proof_worker.step()
        assert fates(running) == AFTER
        assert read_offsets(table.layout) == [2, 3, 6, 7, 8]
        summary = receipt(running.ledger.balance().document())
        assert (summary.parts["deleted"], summary.lost, summary.parts["unaccounted"]) == (3, 0, 0)
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert execute_deletions(table.layout, WINDOW) == 0
        assert proof_worker.step()
        assert fates(running) == AFTER


def test_condition_without_rows_deletes_nothing(topics: Path, table: HandWritten) -> None:
    version = deltalake.DeltaTable(str(table.layout.landed)).version()
    request = request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'nobody'"))
    assert execute_deletions(table.layout, WINDOW) == 1
    assert (DeletionRecord(table.layout).rows(request.number), len(read_offsets(table.layout))) == (0, 8)
    assert deltalake.DeltaTable(str(table.layout.landed)).version() == version + 1


def test_deletion_of_whole_files_rewrites_none(topics: Path, table: HandWritten) -> None:
    before = set(table_of(table.layout).active())
    request_deletion(table.layout, REQUESTED, parse_conditions("kind in ('message', 'quarantine')"))
    execute_deletions(table.layout, WINDOW)
    after = set(table_of(table.layout).active())
    assert after < before
    assert {name.partition("/")[0] for name in after} == {"kind=event"}


def test_open_reader_finds_its_files_after_deletion(topics: Path, table: HandWritten) -> None:
    reader = deltalake.DeltaTable(str(table.layout.landed))
    request_deletion(table.layout, REQUESTED, parse_conditions("topic = 't'"))
    execute_deletions(table.layout, WINDOW)
    compact_table(table.layout.landed)
    assert len(reader.to_pyarrow_table()) == 8
    assert read_offsets(table.layout) == []


def test_batch_that_lands_during_deletion_stays(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = removal.write_record

    def slow(*arguments: Any) -> None:
        real(*arguments)
        table.commit({"t": 10}, [landed_event(9, "u9", host="x")])

    monkeypatch.setattr(removal, "write_record", slow)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [2, 3, 6, 7, 8, 9]
    assert table_of(table.layout).newest() == 2


@pytest.mark.parametrize("step", ["landed_offsets", "prepare_files", "delete_typed_rows"])
def test_batch_that_lands_before_the_rows_are_read_stays(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real = getattr(removal, step)

    def slow(*arguments: Any) -> Any:
        result = real(*arguments)
        table.commit({"t": 11}, [landed_event(9, "u9", host="x"), landed_event(10, "u10", host="y")])
        return result

    layout = table.layout
    deltalake.DeltaTable(str(layout.landed)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    first = table_of(layout).version()
    monkeypatch.setattr(removal, step, slow)
    request_deletion(layout, REQUESTED, parse_conditions("host = 'x'"))
    execute_deletions(layout, WINDOW)
    assert read_offsets(layout) == [2, 3, 6, 7, 8, 9, 10]
    assert table_of(layout).version() == first + len(["the rows in files of their own", "the batch", "the deletion"])
    feed = pa.table(deltalake.DeltaTable(str(layout.landed)).load_cdf(starting_version=first)).to_pylist()
    changes = sorted((row["_change_type"], row["offset"]) for row in feed)
    assert changes == [("delete", 0), ("delete", 1), ("delete", 5), ("insert", 9), ("insert", 10)]
    (record,) = DeletionRecord(layout).deletions
    assert DeletionRecord(layout).rows(record.number) == 3


def test_merge_waits_for_deletion(topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch) -> None:
    real, merging = removal.write_record, threading.Thread(target=compact_table, args=[table.layout.landed])

    def slow(*arguments: Any) -> None:
        real(*arguments)
        merging.start()
        merging.join(0.2)
        assert merging.is_alive()

    monkeypatch.setattr(removal, "write_record", slow)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    execute_deletions(table.layout, WINDOW)
    merging.join(20)
    assert read_offsets(table.layout) == [2, 3, 6, 7, 8]


def test_deletion_retries_after_merge_by_another_engine(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = removal.write_record

    def slow(*arguments: Any) -> None:
        real(*arguments)
        deltalake.DeltaTable(str(table.layout.landed)).optimize.compact()

    monkeypatch.setattr(removal, "write_record", slow)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    with pytest.raises(TableChanged):
        execute_deletions(table.layout, WINDOW)
    monkeypatch.undo()
    assert len(read_offsets(table.layout)) == 8
    assert execute_deletions(table.layout, WINDOW) == 1
    assert read_offsets(table.layout) == [2, 3, 6, 7, 8]


@pytest.mark.parametrize("rows", ["kind = 'event'", "true"])
def test_deletion_of_rows_that_another_program_deletes_at_its_commit_is_repeated(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch, rows: str
) -> None:
    note_foreign_changes(table.layout)
    before = read_offsets(table.layout)
    real = removal.write_record

    def slow(*arguments: Any) -> None:
        real(*arguments)
        deltalake.DeltaTable(str(table.layout.landed)).delete(rows)

    monkeypatch.setattr(removal, "write_record", slow)
    number = request_deletion(table.layout, REQUESTED, parse_conditions("kind = 'event'")).number
    with pytest.raises(TableChanged):
        execute_deletions(table.layout, WINDOW)
    monkeypatch.undo()
    assert [deletion.number for deletion in pending_deletions(table.layout)] == [number]
    note_foreign_changes(table.layout)
    assert execute_deletions(table.layout, WINDOW) == 2
    record = DeletionRecord(table.layout)
    assert [deletion.why for deletion in record.deletions] == [REQUESTED, FOREIGN]
    assert [record.rows(deletion.number) for deletion in record.deletions] == [
        0,
        len(before) - len(read_offsets(table.layout)),
    ]


def test_deletion_whose_answer_is_lost_is_done_although_another_program_changes_its_files(
    topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_foreign_changes(table.layout)
    write = DeltaTable._write

    def write_without_answer(self: DeltaTable, *arguments: Any, **more: Any) -> None:
        write(self, *arguments, **more)
        monkeypatch.undo()
        deltalake.DeltaTable(str(self.folder)).delete("uuid in ('u2', 'u4')")
        raise CommitFailedError

    monkeypatch.setattr(DeltaTable, "_write", write_without_answer)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    assert execute_deletions(table.layout, WINDOW) == 1
    note_foreign_changes(table.layout)
    assert execute_deletions(table.layout, WINDOW) == 1
    record = DeletionRecord(table.layout)
    rows = {deletion.why: record.rows(deletion.number) for deletion in record.deletions}
    assert (rows, read_offsets(table.layout)) == ({REQUESTED: 3, FOREIGN: 2}, [3, 6, 8])


def test_deleted_uuid_stays_a_landed_key(topics: Path, table: HandWritten) -> None:
    """Load keys that were lost from the table and the deletions."""
    layout = table.layout
    before = load_landed_keys(table_of(layout), layout.keys, WINDOW)
    request_deletion(layout, REQUESTED, parse_conditions("uuid in ('u1', 'u5')"))
    execute_deletions(layout, WINDOW)
    shutil.rmtree(layout.keys)
    rebuilt_keys = load_landed_keys(table_of(layout), layout.keys, WINDOW, DeletionRecord(layout).keys)

    def keys(landed_keys: Any) -> set[tuple[int, int]]:
        return {(int(h), int(low)) for run in landed_keys.runs for h, low in zip(run.high, run.low, strict=True)}

    assert keys(rebuilt_keys) == keys(before)
    assert len(keys(rebuilt_keys)) == 6


def test_deleted_message_id_stays_a_landed_key(topics: Path, table: HandWritten) -> None:
    layout = table.layout
    rows = [landed_message(20, uuid="c-0"), landed_message(21), landed_message(22, uuid="c-1"), landed_message(23)]
    table.commit({"t": 24}, rows)
    request_deletion(layout, REQUESTED, parse_conditions("uuid = 'c-1'"))
    execute_deletions(layout, WINDOW)
    shutil.rmtree(layout.keys, ignore_errors=True)
    rebuilt_keys = load_landed_keys(table_of(layout), layout.keys, WINDOW, DeletionRecord(layout).keys)
    expected_keys = key_hashes(pa.array(["t", "t"]), pa.array(["c-0", "c-1"]))[0]
    assert set(expected_keys.tolist()) <= {int(high) for run in rebuilt_keys.runs for high in run.high}
    assert read_offsets(layout)[-3:] == [20, 21, 23]


def test_backfill_skips_deleted_rows(topics: Path, table: HandWritten) -> None:
    worker(topics, table)
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid in ('u2', 'u3')"))
    execute_deletions(table.layout, WINDOW)
    plan = BackfillPlanner(topics, table.layout, ["t"], running=False).survey("t", 0, None)
    assert (plan.lost.tolist(), plan.ahead.tolist()) == ([], [])
    assert plan.fates["deleted"] == 2
    assert plan.fates["duplicate"] == 1, "the duplicate of a deleted event"


def test_rebuild_counts_duplicate_of_deleted_row(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u2'"))
        execute_deletions(table.layout, WINDOW)
        assert proof_worker.step()
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert fates(running)["duplicate"] == 1
        table.commit({"t": 10}, [])
    append(topics, "t", [event(2)])
    second_worker = ProofWorker(Landing(topics, table.layout.tables), None)
    assert second_worker.step()
    assert (second_worker.progress.duplicates, second_worker.progress.unaccounted) == (1, 0)


def test_rebuild_equals_ledger_after_expiry_and_rollup(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        roll_up(table.layout, 1, time.time)
        for where in ("host = 'x'", "kind = 'quarantine'"):
            request_deletion(table.layout, REQUESTED, parse_conditions(where))
            execute_deletions(table.layout, WINDOW)
        assert proof_worker.step()
        compact_table(table.layout.landed)
        expected = ledger_sums(running)
    gap = Gap(0, 9, "expired_read", {"events-udp": {BUCKET: 9}})
    (topics / "t" / "gaps.jsonl").write_bytes(encode_gap(gap))
    assert rebuilt_sums(topics, table.layout) == expected
    assert expected[0] == {"landed.event": 3, "landed.message": 1, "duplicate": 1, "deleted.asked": 4}


def test_row_missing_from_file_is_unaccounted(topics: Path, table: HandWritten) -> None:
    worker(topics, table)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    execute_deletions(table.layout, WINDOW)
    # No commit names this row: a row that another program deletes in a commit is ``deleted.foreign`` instead.
    for file in deltalake.DeltaTable(str(table.layout.landed)).file_uris():
        rows = pq.read_table(file, partitioning=None)
        pq.write_table(rows.filter(pc.field("offset") != 3), file)
    lost = [offset for proof in rebuild(topics, table.layout) for offset in getattr(proof, "unaccounted", [])]
    assert lost == [3]


class Killed(BaseException):
    """A stand-in for SIGKILL."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """End this thread before or after its n-th sync of a file of the tables."""
    remaining, real, test_thread = {"before": -1, "after": -1}, os.fsync, threading.get_ident()

    def fsync(handle: int) -> None:
        here = threading.get_ident() == test_thread and str(tmp_path / "tables") in os.readlink(
            f"/proc/self/fd/{handle}"
        )
        for moment in ("before", "after"):
            if here:
                remaining[moment] -= 1
                if remaining[moment] == 0:
                    raise Killed
            if moment == "before":
                real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return remaining


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_deletion_is_executed_and_counted_once(
    tmp_path: Path, topics: Path, table: HandWritten, kill_at: dict[str, int], moment: str
) -> None:
    with daemon(tmp_path) as running:
        expected, stop, kills = dict(BEFORE), 1, 0
        for number, uuid in enumerate([f"u{n}" for n in range(6)] * 3):
            proof_worker = worker(topics, table, running)
            request_deletion(table.layout, REQUESTED, parse_conditions(f"uuid = '{uuid}'"))
            kill_at[moment] = stop
            try:
                execute_deletions(table.layout, WINDOW)
                proof_worker.step()
            except Killed:
                kills += 1
            stop = stop + 1 if kill_at[moment] <= 0 else 1
            kill_at[moment] = -1
            table_of(table.layout).begin()
            execute_deletions(table.layout, WINDOW)
            worker(topics, table, running)
            if number < 6:
                expected["landed.event"] -= 1
                expected["deleted.asked"] = expected.get("deleted.asked", 0) + 1
            assert fates(running) == {name: n for name, n in expected.items() if n}
            assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
        assert read_offsets(table.layout) == [3, 6]
        assert kills > 8


def test_next_worker_posts_deletion_after_kill(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    with daemon(tmp_path) as running:
        worker(topics, table, running)
        request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
        execute_deletions(table.layout, WINDOW)
        for _ in range(2):
            worker(topics, table, running)
            assert fates(running) == AFTER
    with daemon(tmp_path) as running:
        assert fates(running) == AFTER, "the ledger's checkpoint has it"
        worker(topics, table, running)
        assert fates(running) == AFTER
    for path in (tmp_path / "topics" / "_ledger").iterdir():
        path.unlink()
    with daemon(tmp_path) as running:
        worker(topics, table, running)
        assert fates(running) == AFTER, "a lost ledger gets the posts again"


def test_retention_deletes_whole_days_by_kind(topics: Path, table: HandWritten) -> None:
    now = time.time()
    assert request_expired(table.layout, {"event": 10 * DAY, "message": 3 * DAY}, now + 2 * DAY) == []
    requests = request_expired(table.layout, {"event": 10 * DAY, "message": 3 * DAY}, now + 5 * DAY)
    assert [request.why for request in requests] == ["retention"]
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [0, 1, 2, 5, 6, 7, 8]
    assert request_expired(table.layout, {"event": 10 * DAY, "message": 3 * DAY}, now + 5 * DAY) == []


def test_retention_deletes_many_days_in_few_requests(tmp_path: Path, topics: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    for day in range(16):
        landed_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
        table.commit({"t": 1 + day}, [landed_event(day, f"u{day}", timestamp=landed_at.timestamp())])
    requests = request_expired(table.layout, {"event": DAY}, datetime(2026, 1, 17, 12, tzinfo=UTC).timestamp())
    assert len(requests) == 3
    assert execute_deletions(table.layout, WINDOW) == 3
    assert read_offsets(table.layout) == [15]
    assert rebuilt_sums(topics, table.layout)[0]["deleted.retention"] == 15
    assert DeletionRecord(table.layout).runs()["t"].tolist() == [[0, 15]]


def test_retention_keeps_rows_of_an_unknown_time(tmp_path: Path, topics: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    for offset, made_at in enumerate((0.0, 2 * DAY, time.time())):
        table.commit({"t": offset + 1}, [landed_event(offset, f"u{offset}", timestamp=made_at)])
    request_expired(table.layout, {"event": DAY}, time.time())
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [0, 2]
    assert rebuilt_sums(topics, table.layout)[0]["deleted.retention"] == 1
    request_deletion(table.layout, REQUESTED, parse_conditions("date = '1970-01-01'"))
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [2]


def test_retention_deletes_rows_of_dropped_messages(tmp_path: Path, topics: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    rows = [landed_event(0, "u0"), landed_event(1, None, kind="dropped", reason="transformed", type=None)]
    table.commit({"t": 2}, rows)
    request_expired(table.layout, {"dropped": 5 * DAY}, time.time() + 10 * DAY)
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [0]
    assert rebuilt_sums(topics, table.layout)[0]["deleted.retention"] == 1


def test_retention_of_a_type_overrides_its_kind(tmp_path: Path, topics: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    table.commit({"t": 3}, [landed_event(n, f"u{n}", type=name) for n, name in enumerate(("click", "view", "click"))])
    ages = {"event": 5 * DAY, "event/click": 20 * DAY}
    request_expired(table.layout, ages, time.time() + 10 * DAY)
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == [0, 2]
    request_expired(table.layout, ages, time.time() + 30 * DAY)
    execute_deletions(table.layout, WINDOW)
    assert read_offsets(table.layout) == []


def test_maintenance_deletes_only_proved_rows(topics: Path, table: HandWritten) -> None:
    settled = False
    upkeep = Maintenance(table.layout, Upkeep(0.0, WINDOW, {"event": 0.0}), believed(table.layout), lambda: settled)
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    upkeep.step()
    assert len(read_offsets(table.layout)) == 8
    settled = True
    upkeep.step()
    assert read_offsets(table.layout) == [2, 3, 6, 7, 8]
    assert pending_deletions(table.layout) == []


def away() -> PipelineConfig:
    raise LedgerAway("GET /config: connection refused")


def test_restarted_pipeline_waits_for_the_settings_after_a_reload(table: HandWritten) -> None:
    stale, clock = Upkeep(0.0, WINDOW, {"event": 1.0}), believed(table.layout, DAY)
    under_up = Maintenance(table.layout, stale, clock, follow=Follow(away, is_binding=True))
    with pytest.raises(LedgerAway):
        under_up.step()
    under_up.step()
    assert load_deletions(table.layout) == [], "the retention may have been longer since a reload"
    longer = Follow(lambda: PipelineConfig(merge_files_every=0, retention={"event": 400.0 * DAY}), is_binding=True)
    Maintenance(table.layout, stale, clock, follow=longer).step()
    assert load_deletions(table.layout) == []
    alone = Maintenance(table.layout, stale, clock, follow=Follow(away, is_binding=False))
    with pytest.raises(LedgerAway):
        alone.step()
    alone.step()
    assert len(load_deletions(table.layout)) == 1, "its own configuration counts"


def test_pipeline_with_other_options_keeps_its_own(table: HandWritten) -> None:
    clock, settings = believed(table.layout, DAY), PipelineConfig(merge_files_every=0, retention={"event": 1.0})
    other = Follow(lambda: settings, is_binding=False)
    Maintenance(table.layout, Upkeep(0.0, WINDOW, {"event": 400.0 * DAY}), clock, follow=other).step()
    assert load_deletions(table.layout) == []


def test_pipeline_follows_typed_tables_once_its_query_runs(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "FOLLOW_INTERVAL_S", 0.0)
    own, answers, changes = PipelineConfig(retention={"event": 1.0}), [PipelineConfig()], []
    upkeep = Upkeep(own.merge_files_every, WINDOW, {"event": 400.0 * DAY})
    running = Maintenance(
        table.layout, upkeep, believed(table.layout, DAY), follow=Follow(lambda: answers[0], is_binding=False)
    )
    running.step()
    answers[0] = PipelineConfig.model_validate({"typed": {"click": {"columns": {"path": "string"}}}})
    running.step()
    assert running.typed == (), "no query runs"
    running.attach(changes.append)
    running.step()
    running.step()
    assert changes == [running.typed] == [configured_tables(answers[0])], "another retention is not a reason to differ"

    def refuse(tables: Sequence[TypedTable]) -> None:
        changes.append(tables)
        raise SchemaDiffers("column path: string, not int")

    running.attach(refuse)
    answers[0] = PipelineConfig.model_validate({"typed": {"click": {"columns": {"path": "int"}}}})
    running.step()
    running.step()
    assert len(changes) == 2, "a refused change is not tried again"
    assert running.typed == changes[0]
    assert "are not written: column path: string, not int" in caplog.text


def test_unfinished_request_file_is_not_skipped(topics: Path, table: HandWritten) -> None:
    upkeep = Maintenance(table.layout, Upkeep(0.0, WINDOW), believed(table.layout))
    table.layout.deletions.mkdir(parents=True)
    being_written = table.layout.deletions / "000001.json.new"
    being_written.write_bytes(b"")
    upkeep.step()
    being_written.unlink()
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    upkeep.step()
    assert pending_deletions(table.layout) == []


def test_damaged_request_is_named(topics: Path, table: HandWritten) -> None:
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    (table.layout.deletions / "000001.json").write_text(json.dumps({"why": "asked"}))
    with pytest.raises(ValueError, match=r"000001\.json is damaged"):
        load_deletions(table.layout)


def test_maintenance_deletes_expired_rows_while_clock_is_trusted(
    tmp_path: Path, topics: Path, table: HandWritten
) -> None:
    with daemon(tmp_path) as running:
        proof_worker = worker(topics, table, running)
        upkeep = Upkeep(0.0, WINDOW, {"quarantine": 30.0 * DAY})
        clock = believed(table.layout, 40 * DAY)
        Maintenance(table.layout, upkeep, clock, lambda: proof_worker.all_proved).step()
        assert proof_worker.step()
        assert fates(running) == {"landed.event": 6, "landed.message": 1, "duplicate": 1, "deleted.retention": 1}
        assert ledger_sums(running) == rebuilt_sums(topics, table.layout)
    assert len(load_deletions(table.layout)) == 1


@pytest.mark.survives("merge, deletion, restore", "wrong clock")
def test_maintenance_deletes_no_row_by_untrusted_clock(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    worker(topics, table)
    ages = dict.fromkeys(("event", "message", "quarantine"), 400.0 * DAY)
    for answers in (
        DaemonAnswers(Later(730 * DAY), right=False),
        DaemonAnswers(Later(730 * DAY), is_away=True),
        DaemonAnswers(Later(0)),
        DaemonAnswers(Later(730 * DAY)),  # its folder is new: it cannot know that its clock is wrong
    ):
        clock = BelievedClock(table.layout, answers, Later(730 * DAY))
        Maintenance(table.layout, Upkeep(0.0, WINDOW, ages), clock).step()
        assert load_deletions(table.layout) == []
    assert len(read_offsets(table.layout)) == 8


@pytest.mark.parametrize("right", [True, False])
def test_maintenance_removes_replaced_files_only_while_clock_is_trusted(
    table: HandWritten, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "FIRST_SWEEP_DELAY_S", 0.0)
    replaced = {path for path in table.layout.landed.rglob("*.parquet") if "kind=event" in str(path)}
    request_deletion(table.layout, REQUESTED, parse_conditions("type = 'x'"))
    execute_deletions(table.layout, WINDOW)
    delta = deltalake.DeltaTable(str(table.layout.landed))
    delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    delta.create_checkpoint()
    long_ago = time.time() - 7 * 3600
    for path in replaced:
        os.utime(path, (long_ago, long_ago))
    clock = believed(table.layout) if right else BelievedClock(table.layout, None)
    Maintenance(table.layout, Upkeep(window=WINDOW), clock).step()
    assert any(path.exists() for path in replaced) != right


def test_maintenance_starts_with_later_table(tmp_path: Path, topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "REQUEST_POLL_S", 0.01)
    monkeypatch.setattr(maintenance, "RETENTION_INTERVAL_S", 0.1)  # so long it waits after looks at a table half begun
    layout = Layout.for_tables(tmp_path / "later")
    upkeep = Maintenance(layout, Upkeep(window=WINDOW), believed(layout))
    upkeep.start()
    table = HandWritten(layout)
    append(topics, "t", [event(0), event(1)])
    table.commit({"t": 2}, [landed_event(0, "u0", host="x"), landed_event(1, "u1", host="y")])
    assert worker(topics, table)
    request_deletion(layout, REQUESTED, parse_conditions("host = 'x'"))
    deadline = time.monotonic() + 30
    while pending_deletions(layout):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    upkeep.stop(10)
    assert read_offsets(layout) == [1]


def test_failed_deletion_leaves_no_files_and_merging_continues(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "REQUEST_POLL_S", 0.005)
    files = sorted(table.layout.landed.rglob("*.parquet"))
    request_deletion(table.layout, REQUESTED, parse_conditions("host = 'x'"))
    damaged = max(files, key=lambda path: path.name if "kind=event" in str(path) else "")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-8] + bytes(8))
    merged: list[Layout] = []
    monkeypatch.setattr(maintenance, "compact_all", lambda layout: merged.append(layout) or (0, 0))
    upkeep = Maintenance(table.layout, Upkeep(merge_every=0.01, window=WINDOW), believed(table.layout))
    upkeep.start()
    deadline = time.monotonic() + 30
    while len(merged) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    upkeep.stop(10)
    assert pending_deletions(table.layout)
    assert sorted(table.layout.landed.rglob("*.parquet")) == files
    damaged.write_bytes(content)
    assert execute_deletions(table.layout, WINDOW) == 1


def test_old_files_are_removed_after_checkpoint_without_them(table: HandWritten) -> None:
    old = {path for path in table.layout.landed.rglob("*.parquet") if "kind=event" in str(path)}
    request_deletion(table.layout, REQUESTED, parse_conditions("type = 'x'"))
    execute_deletions(table.layout, WINDOW)
    delta = deltalake.DeltaTable(str(table.layout.landed))
    delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    delta.create_checkpoint()
    long_ago = time.time() - 7 * 3600
    for path in old:
        os.utime(path, (long_ago, long_ago))
    before = read_offsets(table.layout)
    remove_old_files(table.layout.landed)
    assert not any(path.exists() for path in old)
    assert read_offsets(table.layout) == before
