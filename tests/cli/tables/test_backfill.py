"""``penstock pipeline backfill`` lands missing rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.tables.backfill import parse_position
from penstock.counts import Origin
from penstock.landing.table_paths import Layout
from penstock.log import Log
from penstock.records import body


def test_position_is_an_offset_or_a_time() -> None:
    assert parse_position("120", "--from") == 120
    assert parse_position("2026-01-01T00:00:00Z", "--from") == pytest.approx(1767225600.0)
    with pytest.raises(ValueError, match="--to"):
        parse_position("soon", "--to")


def test_backfill_of_kafka_tables_is_one_error_line(tmp_path: Path) -> None:
    offsets = Layout.for_tables(tmp_path / "tables").checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{"events":{"0":7}}')
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "backfill", "--from", "0"]
    process = subprocess.run([*command, "-o", f"data_dir={tmp_path}"], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith('they need pipeline.source = "kafka"')
    assert "Traceback" not in process.stderr


@pytest.mark.spark
def test_backfill_lands_all_missing_rows_of_a_topic_and_none_of_an_empty_one(tmp_path: Path) -> None:
    log = Log(tmp_path / "topics")
    log.topic("lines", create=True).append(body([b"1", b"2", b"3"]), Origin("http", 0, 0, 0)).result(10)
    log.topic("empty", create=True)
    log.close()
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "backfill", "--from", "0", "-o"]
    for topic, lines in (
        ("empty", ["empty, offsets 0 to 0: 0 to land"]),
        ("lines", ["lines, offsets 0 to 3: 3 to land"]),
    ):
        command_line = [*command, f"data_dir={tmp_path}", "--topic", topic]
        process = subprocess.run(command_line, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        rows = 3 if topic == "lines" else 0
        assert process.stdout.splitlines() == [*lines, f"{rows} rows landed, 0 duplicates, 0 gone, 0 unaccounted"]
