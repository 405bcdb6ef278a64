"""The pipeline on a Spark cluster without the package and the topics' folder is exact after any failure."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.landing.table_paths import Layout
from penstock.testing.pipe import Pipe, wait_until
from tests.landing.transform import functions
from tests.system.cluster import SMALL_JVM, Cluster
from tests.system.landing import Driver, landed_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
TCP = "events-tcp"


class Landing:
    """Cluster, pipe and pipeline, with the events that were sent."""

    def __init__(self, cluster: Cluster, pipe: Pipe, driver: Driver) -> None:
        self.cluster, self.pipe, self.driver = cluster, pipe, driver
        self.layout = Layout.for_tables(pipe.data_dir / "tables")
        self.uuids: list[str] = []
        self.broken = self.repeated = self.dropped = 0

    @property
    def sent(self) -> int:
        return len(self.uuids) + self.broken + self.repeated + self.dropped

    def send(self, events: int) -> None:
        """Send events over TCP, the first ten of them twice, five invalid ones, and three that are dropped."""
        uuids = [f"u{len(self.uuids) + number}" for number in range(events)]
        self.uuids += uuids
        lines = [json.dumps({"type": "t", "uuid": uuid, "timestamp": 1}) for uuid in [*uuids, *uuids[:10]]]
        lines += ['{"type": "t", '] * 5 + [json.dumps({"type": "debug", "uuid": "u0", "timestamp": 1})] * 3
        self.repeated, self.broken, self.dropped = self.repeated + 10, self.broken + 5, self.dropped + 3
        self.pipe.lines("".join(line + "\n" for line in lines).encode())

    def planned(self) -> int:
        folder = self.layout.checkpoint / "offsets"
        return len([p for p in folder.iterdir() if p.name.isdecimal()]) if folder.exists() else 0

    def check(self) -> None:
        """Check that each sent event is in the table once, and the balance closes."""
        wait_until(self._landed, 500, f"all has landed, see {self.driver.output}")
        balance = self.pipe.settled(60)
        assert balance["unaccounted"] == 0
        fates = {"landed.event": len(self.uuids), "duplicate": self.repeated, "quarantined.bad_json": self.broken}
        fates["transformed.dropped"] = self.dropped
        assert self.pipe.fates("events") == fates
        rows = landed_rows(self.layout.tables)
        assert max(Counter(row["offset"] for row in rows).values()) == 1
        assert sorted(row["uuid"] for row in rows if row["kind"] == "event") == sorted(self.uuids)
        assert self.driver.process
        assert self.driver.process.poll() is None, "it was never started again"

    def _landed(self) -> bool:
        assert self.driver.process
        assert self.driver.process.poll() is None, self.driver.output.read_text()[-3000:]
        balance = self.pipe.balance()
        topics = [topic for topic in balance["topics"] if topic["topic"] == "events"]
        return (
            bool(topics and topics[0]["logged"] == self.sent and topics[0]["read_by_pipeline"])
            and not balance["pending"]
        )


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Landing]:
    folder = tmp_path_factory.mktemp("cluster")
    pipe = Pipe(folder / "pipe", "pipeline.target_lag=200ms", "pipeline.topics=['events']")
    pipe.output.parent.mkdir()
    cluster = Cluster(folder)
    spark = {"driver.memory": "768m", "executor.memory": "512m", "executor.cores": "1"}
    spark |= dict.fromkeys(("driver.extraJavaOptions", "executor.extraJavaOptions"), SMALL_JVM)
    (folder / "own_rows.py").write_text(Path(functions.__file__).read_text())
    spark_options = [f"pipeline.uri={pipe.flight}", "pipeline.transform=own_rows:drop_debug"]
    options = [*spark_options, *(f"pipeline.spark.{name}={value}" for name, value in spark.items())]
    driver = Driver(pipe, "--master", cluster.master, *(part for option in options for part in ("-o", option)))
    try:
        pipe.start(wait=False)
        cluster.start()
        wait_until(pipe.answers, 240, f"the daemon answers, see {pipe.output}")
        with pytest.MonkeyPatch.context() as patch:  # of the driver alone
            patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
            driver.start()
        yield Landing(cluster, pipe, driver)
    finally:
        driver.stop()
        pipe.stop()
        cluster.stop()


def test_cluster_lands_events_of_the_log_daemon_with_the_shipped_package(landing: Landing) -> None:
    landing.send(1000)
    landing.check()
    assert list(landing.cluster.folder.glob("worker*/app-*/*/penstock-*.zip")), "so few rows are a task of one of them"
    assert f"from {landing.pipe.flight} into" in landing.driver.output.read_text()


def test_table_is_exact_after_an_executor_was_killed(landing: Landing) -> None:
    before = landing.planned()
    landing.send(5000)
    wait_until(lambda: landing.planned() > before, 120, "a batch is under way")
    landing.cluster.kill_executor()
    landing.send(1000)
    landing.check()
    assert "Lost executor" in landing.driver.output.read_text()


def test_log_daemon_away_for_five_seconds_stops_nothing(landing: Landing) -> None:
    landing.send(3000)
    with landing.pipe.paused("log daemon"):
        landing.send(1000)
        time.sleep(5)  # what is promised
    landing.pipe.kill("log daemon")
    landing.send(1000)
    landing.check()
