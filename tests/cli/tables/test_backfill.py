"""``penstock pipeline backfill`` lands missing rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.tables.backfill import parse_position
from penstock.landing.table_paths import Layout


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
