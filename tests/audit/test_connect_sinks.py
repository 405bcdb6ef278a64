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
from tests.audit.connect_worker import APPENDED, UPSERTED, ConnectWorker, postgresql_server
from tests.kafka.kafka_helpers import Topics

WAIT_S = 600.0
Counts = tuple[int, int, int]
"""Exit status, missing and doubled records."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3000)]


class Sinks:
    """A topic with numbered records, and what the sinks made of it."""

    def __init__(self, topics: Topics, folder: Path, database: str) -> None:
        self.topics, self.topic, self.folder, self.sent = topics, topics.new(2), folder, 0
        self.worker = ConnectWorker(topics, self.topic, folder, database)

    def ids(self) -> list[list[int]]:
        """Return the ids of each sink's rows: Iceberg's, the file's, and two tables of PostgreSQL."""
        lines: list[int] = self.worker.read_lines()["id"].to_pylist()
        return [self.worker.ids(), lines, *map(self.worker.ids_of, (APPENDED, UPSERTED))]

    def send(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.topics.address})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, json.dumps({"id": number}), partition=number % 2)
        assert producer.flush(30) == 0
        self.sent += count

    def wait_for(self, ids: Sequence[int]) -> None:
        def have_arrived() -> bool:
            return all({*ids} <= {*written} for written in self.ids())

        wait_until(have_arrived, WAIT_S, f"the sinks have written {len(ids)} records")

    def audit(self) -> list[Counts]:
        """Return the audit's outcome for each sink: by ids for the file, by offsets for the others."""
        lines = self.folder / "lines.parquet"
        pq.write_table(self.worker.read_lines(), lines)
        counted = []
        for command in (
            [self.worker.address, *self.worker.options()],
            [str(lines), "--id", "id"],
            [self.worker.address_of(APPENDED)],
            [self.worker.address_of(UPSERTED)],
        ):
            status, report, errors = run_audit(self.topics, self.topic, *command)
            assert report, errors
            counted.append((status, report["missing"], report["doubled"]))
        return counted

    def count_by_hand(self) -> list[Counts]:
        counted = []
        for ids in self.ids():
            times = Counter(ids)
            missing = sum(number not in times for number in range(self.sent))
            doubled = sum(count > 1 for count in times.values())
            counted.append((1 if missing or doubled else 0, missing, doubled))
        return counted


def test_kills_and_reset_offsets_of_real_sinks_are_found(topics: Topics, tmp_path: Path) -> None:
    with postgresql_server() as database:
        sinks = Sinks(topics, tmp_path, database)
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
        outcomes = sinks.audit()
        assert outcomes == sinks.count_by_hand()
        assert [outcome[:2] for outcome in outcomes] == [(1, 50)] * 4
        sinks.worker.reset_offsets({0: 1000, 1: 1000})
        with sinks.worker:
            sinks.wait_for(range(2260))
        outcomes = sinks.audit()
        assert outcomes == sinks.count_by_hand()
        # All but the 50 records that were lost before are written twice, except where the position is the key.
        table, lines, appended, upserted = outcomes
        assert (table[0], table[1], table[2] >= 210, lines[1]) == (1, 0, True, 0)
        assert (appended[0], appended[1], appended[2] >= 210, upserted) == (1, 0, True, (0, 0, 0))
