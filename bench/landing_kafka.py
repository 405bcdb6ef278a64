"""Landing from Kafka beside a plain Spark job, in turn: CPU of an event, of the start, and after the last event.

Both read the same two partitions of a broker on this machine with Spark in ``local[2]`` and write Delta. The plain job
parses JSON with ``from_json`` and does nothing else: it finds no duplicates, and proves nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from bench.landing import spent, written_events
from penstock.java.runtime import find_java
from penstock.kafka.broker import Broker
from penstock.landing.table_paths import Layout
from penstock.testing.spark_extensions import DELTA, KAFKA, package_settings

WARM_UP, EVENTS = 300_000, 1_500_000
ROUNDS, PARTITIONS = 2, 2
LEAST_SHARE = 0.98
"""Rows of Penstock's table of all events: one of 100 is a duplicate."""
QUIET_S, TAIL_S, POLL_S, PATIENCE_S = 4.0, 9.0, 0.25, 300.0
PLAIN_JOB = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
settings, address, topic, folder = json.loads(os.environ["SPARK_SETTINGS"]), *sys.argv[1:]
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
data = "struct<user string, n long, path string, ok boolean>"
schema = f"type string, uuid string, host string, timestamp long, data {data}"
event = F.from_json(F.col("value").cast("string"), schema).alias("event")
rows = source.option("startingOffsets", "earliest").load().select("partition", "offset", event)
rows = rows.select("partition", "offset", "event.*")
stream = rows.writeStream.format("delta").option("checkpointLocation", folder + "/checkpoint")
stream.start(folder + "/table").awaitTermination()
"""
Side = Callable[[Path, str, str], "tuple[list[str], dict[str, str], Path]"]


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Return the median of the rounds of each side."""
    figures: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Broker(Path(folder, "kafka")) as broker:
        for number in range(rounds):
            for name in list(SIDES)[:: 1 if number % 2 == 0 else -1]:
                topic = f"{name}-{number}"
                for figure, value in _measure_side(SIDES[name], Path(folder, topic), broker.address, topic).items():
                    figures[f"landing_kafka_{name}_{figure}"].append(value)
    return {name: round(statistics.median(values), 2) for name, values in sorted(figures.items())}


def _measure_side(side: Side, folder: Path, address: str, topic: str) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    _produce(address, topic, written_events(0, WARM_UP))
    events = written_events(WARM_UP, EVENTS)
    folder.mkdir()
    command, environment, table = side(folder, address, topic)
    began = time.monotonic()
    with _running(command, environment) as process:
        first_rows_s = _wait_for_rows(table, 1) - began
        _wait_for_rows(table, int(LEAST_SHARE * WARM_UP))
        time.sleep(QUIET_S)
        before, produced = sum(spent(process).values()), time.monotonic()
        _produce(address, topic, events)
        ended = _wait_for_rows(table, int(LEAST_SHARE * (WARM_UP + EVENTS)))
        used = sum(spent(process).values()) - before
        time.sleep(QUIET_S)
        before = sum(spent(process).values())
        time.sleep(TAIL_S)
        tail = sum(spent(process).values()) - before
    return {
        "first_rows_s": first_rows_s,
        "cpu_us_per_event": 1e6 * used / EVENTS,
        "events_per_s": EVENTS / (ended - produced),
        "cores_after_the_last_batch": tail / TAIL_S,
    }


def _produce(address: str, topic: str, events: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "batch.size": 1 << 20,
        }
    )
    for number, event in enumerate(events):
        producer.produce(topic, event, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, "not everything was sent"


def _wait_for_rows(table: Path, count: int) -> float:
    """Return the time at which the table has ``count`` rows."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if _rows_of(table) >= count:
            return time.monotonic()
        time.sleep(POLL_S)
    raise AssertionError("not landed in time")


def _rows_of(table: Path) -> int:
    try:
        adds = DeltaTable(str(table)).get_add_actions(flatten=True)
    except (DeltaError, FileNotFoundError):
        return 0  # the first commit has not come
    return sum(count or 0 for count in adds.column("num_records").to_pylist())


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _plain(folder: Path, address: str, topic: str) -> tuple[list[str], dict[str, str], Path]:
    settings = {**package_settings([DELTA, KAFKA]), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    environment = {"SPARK_SETTINGS": json.dumps(settings), "JAVA_HOME": str(find_java().home)}
    return [sys.executable, "-c", PLAIN_JOB, address, topic, str(folder)], environment, folder / "table"


def _penstock(folder: Path, address: str, topic: str) -> tuple[list[str], dict[str, str], Path]:
    settings = {
        "data_dir": folder / "data",
        "pipeline.source": "kafka",
        "pipeline.topics": json.dumps([topic]),
        "pipeline.kafka.bootstrap.servers": address,
        "pipeline.target_lag": "1s",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    table = Layout.for_tables(folder / "data" / "tables").landed
    return [sys.executable, "-m", "penstock.spark.pipeline", *options, "--no-ledger"], {}, Path(str(table))


SIDES: dict[str, Side] = {"penstock": _penstock, "spark": _plain}
