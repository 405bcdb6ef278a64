"""The HTML report shows the verdict and a picture of the records by minute."""

from __future__ import annotations

import re
import time
from pathlib import Path

import confluent_kafka

from penstock.audit.audit import audit as run
from penstock.audit.outcome import Request
from penstock.audit.reports.html_report import bars, render
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.audit.tables.table import open_table
from tests.audit.audited import write_parquet
from tests.kafka.kafka_helpers import Topics


def test_picture_counts_expected_missing_and_doubled_records_by_minute(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address})
    now_ms = time.time_ns() // 60_000_000_000 * 60_000
    for number in range(30):
        producer.produce(topic, b"<order>", timestamp=now_ms - (3 - number // 10) * 60_000, partition=0)
    producer.flush(30)
    write_parquet(tmp_path / "t", [(0, n) for n in (*range(12), *range(14, 30), 25)], topic)
    source = KafkaSource(topic, {"bootstrap.servers": topics.address})
    report = run(source, open_table(str(tmp_path / "t")), str(tmp_path / "t"), Request(grace_s=0))
    shown = bars(source, report)
    source.close()
    assert [(bar.expected, bar.missing, bar.doubled) for bar in shown[:3]] == [(10, 0, 0), (10, 2, 0), (10, 0, 1)]
    assert shown[0].begin_s == now_ms / 1000 - 180
    page = render(report, shown)
    assert f"<h1>{topic}: 2 missing, 1 doubled of 30 records checked" in page
    assert "10 expected, 2 missing, 0 doubled" in page
    assert "<order>" not in page
    assert len(re.findall('rect class="present"', page)) == 3
