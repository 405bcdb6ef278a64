"""A repeated audit serves the outcome of its last check as metrics; an undecided one never looks complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow.parquet as pq

from penstock.testing.pipe import free_ports, wait_until
from tests.audit.audited import filled_topic, rows_table, write_parquet
from tests.kafka.kafka_helpers import Topics


def test_metrics_follow_the_checks(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_parquet(tmp_path / "t", rows[2:], topic)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "penstock.cli.main", "audit", f"kafka://{topics.address}/{topic}"]
    watching = subprocess.Popen([*command, str(tmp_path / "t"), "--grace", "0s", "--every", "1s", "--listen", address])

    def shows(line: str) -> bool:
        try:
            return line in httpx.get(f"http://{address}/metrics").text
        except httpx.TransportError:
            return False

    labels = f'{{topic="{topic}",table="{tmp_path}/t"}}'
    try:
        wait_until(lambda: shows(f"penstock_audit_missing_records{labels} 2\n"), 60)
        assert shows(f"penstock_audit_status{labels} 1\n")
        page = httpx.get(f"http://{address}/").text
        assert f"{topic}: 2 missing of 60 records checked" in page
        assert "order 0" not in page
        pq.write_table(rows_table(rows[:2], topic), tmp_path / "t" / "late.parquet")
        wait_until(lambda: shows(f"penstock_audit_status{labels} 0\n"), 60)
        shutil.rmtree(tmp_path / "t")
        wait_until(lambda: shows(f"penstock_audit_status{labels} 2\n"), 60)
        assert not shows("penstock_audit_missing_records")
        assert "was not decided" in httpx.get(f"http://{address}/").text
        assert httpx.get(f"http://{address}/other").status_code == 404
    finally:
        watching.terminate()
        watching.wait(30)
