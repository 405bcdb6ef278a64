"""The command that lands what the tables do not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.tables.backfill import place
from penstock.landing.table_paths import Layout


def test_a_place_is_an_offset_or_a_time() -> None:
    assert place("120", "--from") == 120
    assert place("2026-01-01T00:00:00Z", "--from") == pytest.approx(1767225600.0)
    with pytest.raises(ValueError, match="--to"):
        place("soon", "--to")


def test_tables_that_are_landed_from_kafka_are_refused_in_one_line(tmp_path: Path) -> None:
    offsets = Layout.of(tmp_path / "tables").checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{"events":{"0":7}}')
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "backfill", "--from", "0"]
    done = subprocess.run([*command, "-o", f"data_dir={tmp_path}"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith('they need pipeline.source = "kafka"')
    assert "Traceback" not in done.stderr
