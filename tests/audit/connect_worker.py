"""A worker of Kafka Connect with real sinks from Maven Central: Iceberg's, and Kafka's own file sink."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyspark
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from pyarrow import json as arrow_json
from pyiceberg.catalog.sql import SqlCatalog

from penstock.java.jars import KAFKA_BROKER, Library, fetch_all
from penstock.java.runtime import find_java
from tests.kafka.kafka_helpers import Topics

LIBRARIES = (
    Library("org.apache.kafka", "connect-runtime", "4.3.1"),
    Library("org.apache.kafka", "connect-file", "4.3.1", alone=True),
    Library("org.apache.iceberg", "iceberg-kafka-connect", "1.10.1"),
    Library("org.apache.iceberg", "iceberg-kafka-connect-transforms", "1.10.1", alone=True),
    Library("org.apache.iceberg", "iceberg-parquet", "1.10.1", alone=True),
    Library("org.xerial", "sqlite-jdbc", "3.50.3.0", alone=True),
)
TABLE = "shop.orders"
SINKS = ("lake", "lines")
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "500",
    "listeners": "http://127.0.0.1:0",
    "plugin.discovery": "only_scan",
    # A killed member is replaced once its session has expired.
    "consumer.session.timeout.ms": "6000",
    "consumer.auto.offset.reset": "earliest",
}


class ConnectWorker:
    """A worker whose sinks write a topic to an Iceberg table and to a file of lines; in a ``with``, it runs."""

    def __init__(self, topics: Topics, topic: str, folder: Path) -> None:
        self._topics, self._topic, self._folder = topics, topic, folder
        self.warehouse = folder / "warehouse"
        self.lines = folder / "lines.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{self.warehouse}")
        self.catalog.create_namespace(TABLE.partition(".")[0])
        names = {jar.name: jar for jar in [*fetch_all(KAFKA_BROKER), *fetch_all(LIBRARIES)]}
        hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
        self._classpath = os.pathsep.join(map(str, [*names.values(), *hadoop]))
        self._files = [self._write("worker", WORKER | self._worker())]
        self._files += [self._write("lake", self._iceberg_sink()), self._write("lines", self._file_sink())]

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._topics.address,
            "offset.storage.file.filename": str(self._folder / "offsets"),
        }

    def _iceberg_sink(self) -> dict[str, str]:
        return {
            "name": "lake",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self._topic,
            "iceberg.catalog": "lake",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": f"jdbc:sqlite:{self._folder}/catalog.db",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.warehouse": f"file://{self.warehouse}",
            "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            "iceberg.tables": TABLE,
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.topic": self._topics.new(),
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "5000",
            "transforms": "kafka",
            "transforms.kafka.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        }

    def _file_sink(self) -> dict[str, str]:
        return {
            "name": "lines",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": self._topic,
            "file": str(self.lines),
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }

    def _write(self, name: str, properties: Mapping[str, str]) -> str:
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
        return str(path)

    def __enter__(self) -> Self:
        java = [str(find_java().home / "bin" / "java"), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
        command = [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *self._files]
        with (self._folder / "connect.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the worker as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def reset_offsets(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets that the sinks begin with; only while the worker does not run."""
        positions = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
        for sink in SINKS:
            request = ConsumerGroupTopicPartitions(f"connect-{sink}", positions)
            (answer,) = self._topics.admin.alter_consumer_group_offsets([request]).values()
            answer.result(60)

    @property
    def address(self) -> str:
        """The Iceberg table as the command takes it."""
        return f"iceberg://lake/{TABLE}"

    def options(self) -> list[str]:
        """Return the options of the command that describe the catalog."""
        properties = {"type": "sql", "uri": f"sqlite:///{self._folder}/catalog.db"}
        return [part for name, text in properties.items() for part in ("--store", f"{name}={text}")]

    def ids(self) -> list[int]:
        """Return the ids of the rows of the Iceberg table; none before the sink has created it."""
        if not self.catalog.table_exists(TABLE):
            return []
        ids: list[int] = self.catalog.load_table(TABLE).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        return ids

    def read_lines(self) -> pa.Table:
        """Return the complete lines of the file sink as columns."""
        text = self.lines.read_bytes() if self.lines.exists() else b""
        complete = text[: text.rfind(b"\n") + 1]
        columns: Any = (
            arrow_json.read_json(pa.BufferReader(complete)) if complete else pa.table({"id": pa.array([], pa.int64())})
        )
        return columns
