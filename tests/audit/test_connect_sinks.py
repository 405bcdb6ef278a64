"""Kafka Connect with real sinks: kills and reset offsets are seen as a count by hand sees them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pyarrow.parquet as pq
import pytest

from penstock.testing.pipe import wait_until
from tests.audit.audited import run_audit
from tests.audit.connect_worker import ConnectWorker
from tests.kafka.kafka_helpers import Topics

WAIT_S = 180.0
Counts = tuple[int, int, int]
"""Exit status, missing and doubled records."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


class Sinks:
    """A topic with numbered records, and what the sinks made of it."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self.topics, self.topic, self.folder, self.sent = topics, topics.new(2), folder, 0
        self.worker = ConnectWorker(topics, self.topic, folder)

    def send(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.topics.address})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, json.dumps({"id": number}), partition=number % 2)
        assert producer.flush(30) == 0
        self.sent += count

    def wait_for(self, ids: Sequence[int]) -> None:
        def have_arrived() -> bool:
            return {*ids} <= {*self.worker.ids()} and {*ids} <= {*self.worker.read_lines()["id"].to_pylist()}

        wait_until(have_arrived, WAIT_S, f"the sinks have written {len(ids)} records")

    def audit(self) -> tuple[Counts, Counts]:
        """Return the audit's outcome for the table and for the file, by ids."""
        status, report, errors = run_audit(self.topics, self.topic, self.worker.address, *self.worker.options())
        assert report, errors
        lines = self.folder / "lines.parquet"
        pq.write_table(self.worker.read_lines(), lines)
        status_by_id, by_id, errors = run_audit(self.topics, self.topic, lines, "--id", "id")
        assert by_id, errors
        return (status, report["missing"], report["doubled"]), (status_by_id, by_id["missing"], by_id["doubled"])

    def count_by_hand(self) -> tuple[Counts, Counts]:
        counted = []
        for ids in (self.worker.ids(), self.worker.read_lines()["id"].to_pylist()):
            times = Counter(ids)
            missing = sum(number not in times for number in range(self.sent))
            doubled = sum(count > 1 for count in times.values())
            counted.append((1 if missing or doubled else 0, missing, doubled))
        return counted[0], counted[1]


def test_kills_and_reset_offsets_of_real_sinks_are_found(topics: Topics, tmp_path: Path) -> None:
    sinks = Sinks(topics, tmp_path)
    sinks.send(200)
    with sinks.worker as worker:
        sinks.wait_for(range(200))
        sinks.send(2000)
        wait_until(lambda: len(worker.read_lines()) > 200, WAIT_S, "the sinks have read further records")
        worker.kill()
    with sinks.worker:
        sinks.wait_for(range(2200))
        assert sinks.audit() == sinks.count_by_hand()
    # The offsets skip 50 records, as after a reset to the latest ones.
    sinks.send(50)
    sinks.worker.reset_offsets({0: 1125, 1: 1125})
    with sinks.worker:
        sinks.send(10)
        sinks.wait_for(range(2250, 2260))
    table, lines = sinks.audit()
    assert (table, lines) == sinks.count_by_hand()
    assert (table[:2], lines[:2]) == ((1, 50), (1, 50))
    sinks.worker.reset_offsets({0: 1000, 1: 1000})
    with sinks.worker:
        sinks.wait_for(range(2260))
    table, lines = sinks.audit()
    assert (table, lines) == sinks.count_by_hand()
    # All but the 50 records that were lost before are written twice.
    assert (table[0], table[1], table[2] >= 210, lines[1]) == (1, 0, True, 0)
