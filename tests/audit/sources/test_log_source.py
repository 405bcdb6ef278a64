"""Topics of Penstock are audited from their folder, by Flight and by the Kafka protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.log import Log, TopicSettings
from penstock.testing import FakeClock
from tests.audit.audited import MINUTE, RECORDS, append_orders, run_audit, write_parquet
from tests.log.log_helpers import UNSYNCED
from tests.server.running import Running

ADDRESSES: dict[str, Callable[[Running], str]] = {
    "folder": lambda running: str(running.folder / "orders"),
    "flight": lambda running: f"grpc://{running.bound.flight}/orders",
    "kafka": lambda running: f"kafka://{running.bound.kafka}/orders",
}


@pytest.fixture
def daemon(tmp_path: Path) -> Running:
    running = Running(tmp_path / "topics", kafka=True)
    append_orders(running.log, RECORDS)
    return running


@pytest.mark.parametrize("kind", ADDRESSES)
def test_lost_doubled_and_differing_rows_of_a_topic_of_penstock_are_found(
    daemon: Running, tmp_path: Path, kind: str
) -> None:
    ids = pa.table(
        {"id": [0, 1, 2, 3, 3, 5, 7, *range(7, RECORDS)], "offset": [0, 1, 2, 3, 3, 5, 6, *range(7, RECORDS)]}
    )
    pq.write_table(ids, tmp_path / "t.parquet")
    try:
        status, report, errors = run_audit("", ADDRESSES[kind](daemon), tmp_path / "t.parquet", "--all")
        by_ids = run_audit("", ADDRESSES[kind](daemon), tmp_path / "t.parquet", "--id", "id")[1]
    finally:
        daemon.stop()
    assert (status, report.get("missing"), report.get("doubled"), report.get("differing")) == (1, 1, 1, 1), errors
    (part,) = report["partitions"]
    assert (part["missing"], part["doubled"], part["differing"]) == ([[4, 5]], [[3, 4]], [[6, 7]])
    assert (by_ids["partitions"][0]["missing"], by_ids["doubled"]) == ([[4, 5], [6, 7]], 2)


def test_complete_table_has_no_finding_and_messages_within_the_grace_need_no_row(
    daemon: Running, tmp_path: Path
) -> None:
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(RECORDS)])
    try:
        address = ADDRESSES["flight"](daemon)
        assert run_audit("", address, tmp_path / "t", "--topic-column", "kafka_topic")[0] == 0
        append_orders(daemon.log, 5)
        assert run_audit("", address, tmp_path / "t", "--grace", "1h")[0] == 0
        assert run_audit("", address, tmp_path / "t", "--grace", "0s")[1]["missing"] == 5
        missing = run_audit("", address.replace("orders", "nowhere"), tmp_path / "t")
        assert (missing[0], "nowhere: there is no such topic" in missing[2]) == (2, True)
    finally:
        daemon.stop()


@pytest.mark.survives("audit", "wrong clock")
@pytest.mark.parametrize("kind", ADDRESSES)
def test_messages_of_a_clock_that_is_ahead_are_not_taken_for_too_young(
    daemon: Running, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(RECORDS) if offset != 7])
    behind = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: behind)
    try:
        address = ADDRESSES[kind](daemon)
        status, report, errors = run_audit("", address, tmp_path / "t", "--grace", "15m")
        assert (status, report, "have times in the future" in errors) == (2, {}, True), errors
        status, report, errors = run_audit("", address, tmp_path / "t", "--grace", "0s")
        assert (status, report.get("required"), report.get("missing")) == (1, RECORDS, 1), errors
    finally:
        daemon.stop()


@pytest.mark.survives("audit", "wrong clock")
def test_messages_behind_those_of_a_clock_that_was_ahead_are_not_taken_for_too_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(1_790_000_000.0)
    log = Log(tmp_path / "topics", TopicSettings(segment_size_limit=1), clock=clock, fs=UNSYNCED)
    append_orders(log, 2)
    clock.jump(86_400.0)
    append_orders(log, 1)
    clock.jump(-86_400.0)
    for _ in range(10):
        clock.advance(120.0)
        log.sweep()
    append_orders(log, 1)
    clock.advance(3_600.0)
    for _ in range(3):
        append_orders(log, 1)
    log.close()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    write_parquet(tmp_path / "t", [(0, 0), (0, 1), (0, 2)])
    status, _, errors = run_audit("", str(tmp_path / "topics" / "orders"), tmp_path / "t", "--grace", "30m")
    assert (status, "from offset 2 on have times in the future" in errors) == (2, True), errors


def test_messages_of_a_damaged_batch_are_not_decided(daemon: Running, tmp_path: Path) -> None:
    daemon.stop()
    (segment,) = (tmp_path / "topics" / "orders").glob("*.arrows")
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"id": 7}')] ^= 1
    segment.write_bytes(content)
    write_parquet(tmp_path / "t", [(0, offset) for offset in range(10, RECORDS)])
    status, report, errors = run_audit("", str(tmp_path / "topics" / "orders"), tmp_path / "t")
    assert (status, report.get("missing"), report.get("undecided")) == (2, 0, 10), errors
    ids = pa.table({"id": range(10, RECORDS), "at": pa.array([MINUTE * 1000] * 50)})
    pq.write_table(ids, tmp_path / "ids.parquet")
    status, report, errors = run_audit("", str(tmp_path / "topics" / "orders"), tmp_path / "ids.parquet", "--id", "id")
    assert (status, report.get("undecided"), report.get("required")) == (2, RECORDS, RECORDS), errors
    assert (report["unexplained"], report["rows_of_no_record"]) == (0, 50)
    status, report, errors = run_audit(
        "", str(tmp_path / "topics" / "orders"), tmp_path / "ids.parquet", "--count-by", "at"
    )
    assert (status, report.get("undecided"), report.get("hours")) == (2, RECORDS, []), errors
