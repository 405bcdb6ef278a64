"""A topic of a real Kafka and tables that a sink could have written from it."""

from __future__ import annotations

import json
import secrets
import shutil
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from typer.testing import CliRunner

from penstock.cli.audit import audit
from penstock.counts import Origin
from penstock.log import Log
from penstock.records import body
from tests.kafka.kafka_helpers import Topics

Row = tuple[int, int]
"""Partition and offset."""
RECORDS = 60
MINUTE = 1_767_225_600


def filled_topic(topics: Topics, partitions: int = 1) -> tuple[str, list[Row]]:
    """Return a topic with 60 records per partition, and all their positions."""
    topic = topics.new(partitions)
    topics.plain(topic, [b"order %d" % number for number in range(RECORDS)], range(partitions))
    return topic, [(partition, offset) for partition in range(partitions) for offset in range(RECORDS)]


def send_transactions(topics: Topics, topic: str, aborted: Iterable[int], count: int = 10, records: int = 3) -> None:
    """Send ``count`` transactions of some records each; those whose number is in ``aborted`` are aborted."""
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.address, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for record in range(records):
            producer.produce(topic, b"%d.%d" % (number, record), partition=0)
        producer.flush(30)
        producer.abort_transaction(30) if number in aborted else producer.commit_transaction(30)


def rows_table(rows: Iterable[Row], topic: str = "orders") -> pa.Table:
    partitions, offsets = zip(*rows, strict=True)
    return pa.table(
        {
            "kafka_topic": pa.array([topic] * len(offsets)),
            "kafka_partition": pa.array(partitions, pa.int32()),
            "kafka_offset": pa.array(offsets, pa.int64()),
            "total": pa.array([offset * 1.5 for offset in offsets]),
        }
    )


def write_delta(folder: Path, rows: Sequence[Row], topic: str = "orders", files: int = 2) -> Path:
    """Append the rows to a Delta table in ``files`` commits."""
    step = -(-len(rows) // files)
    for begin in range(0, len(rows), step):
        deltalake.write_deltalake(str(folder), rows_table(rows[begin : begin + step], topic), mode="append")
    return folder


def write_parquet(folder: Path, rows: Sequence[Row], topic: str = "orders", files: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    step = -(-len(rows) // files)
    for begin in range(0, len(rows), step):
        pq.write_table(rows_table(rows[begin : begin + step], topic), folder / f"part-{begin}.parquet")
    return folder


def write_iceberg(folder: Path, *batches: pa.Table) -> Table:
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=batches[0].schema)
    for batch in batches:
        table.append(batch)
    return table


def run_audit(broker: Topics | str, topic: str, table: object, *options: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit status, the report as JSON, and the errors. ``topic``: also the address of another source."""
    app = typer.Typer()
    app.command()(audit)
    address = broker if isinstance(broker, str) else broker.address
    source = topic if "/" in topic else f"kafka://{address}/{topic}"
    command = [source, str(table), "--json", "--grace", "0s", *options]
    completed = CliRunner().invoke(app, command)
    assert completed.exception is None or isinstance(completed.exception, SystemExit), "".join(
        traceback.format_exception(completed.exception)
    )
    report = json.loads(completed.stdout) if completed.stdout else {}
    return completed.exit_code, report, completed.stderr


def run_for_people(topics: Topics, topic: str, table: object, *options: str) -> tuple[str, str]:
    """Return the report as text, and the errors."""
    app = typer.Typer()
    app.command()(audit)
    command = [f"kafka://{topics.address}/{topic}", str(table), "--grace", "0s", *options]
    completed = CliRunner().invoke(app, command)
    return completed.stdout, completed.stderr


def copy_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def append_orders(log: Log, count: int) -> None:
    """Append a batch of orders with an id each."""
    payloads: list[bytes | None] = [json.dumps({"id": number}).encode() for number in range(count)]
    origin = Origin("events-udp", MINUTE, MINUTE * 1_000_000 + 5, MINUTE * 1_000_000 + 9, "plog", {"taken": count})
    log.topic("orders", create=True).append(body(payloads), origin).result(20)
