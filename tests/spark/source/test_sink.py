"""Writing to a topic from Spark, with a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from penstock.client import Log, OutOfSequence
from penstock.landing.daemon_connection import DaemonConnection
from penstock.spark.source import sink
from penstock.spark.source.sink import BatchWriter, SinkOptions, bodies
from tests.spark.spark_daemon import Daemon, daemon

pytestmark = pytest.mark.spark


def entries(running: Daemon, topic: str) -> list[tuple[bytes, bytes | None, dict[str, str]]]:
    with Log(running.grpc) as log:
        return [(entry.payload, entry.key, dict(entry.annotations)) for entry in log.read(topic, 0, 10_000)]


def test_rows_are_appended_with_their_keys_and_annotations(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select cast(id as string) value, cast('k' as binary) key, map('n', cast(id as string)) annotations, "
        "if(id % 2 = 0, 'even', null) topic from range(10)"
    )
    with daemon(tmp_path) as running:
        to = {"uri": running.grpc, "topic": "odd"}
        frame.coalesce(1).write.format("penstock").options(**to).mode("append").save()
        assert entries(running, "even") == [(str(n).encode(), b"k", {"n": str(n)}) for n in range(0, 10, 2)]
        assert len(entries(running, "odd")) == 5


def test_repeated_task_appends_once(tmp_path: Path) -> None:
    rows = [pa.record_batch({"payload": pa.array([b"a", b"b"])}), pa.record_batch({"payload": pa.array([b"c"])})]
    with daemon(tmp_path) as running:
        writer = BatchWriter(SinkOptions(DaemonConnection(running.grpc), "t"))
        writer.write(iter(rows[:1]))
        assert writer.write(iter(rows)).rows == 3
        assert [payload for payload, _, _ in entries(running, "t")] == [b"a", b"b", b"c"]


def test_repeated_task_of_many_appends_appends_once(tmp_path: Path) -> None:
    rows = [pa.record_batch({"payload": [f"{n}-{m}".encode() for m in range(3)]}) for n in range(30)]
    with daemon(tmp_path) as running:
        writer = BatchWriter(SinkOptions(DaemonConnection(running.grpc), "t"))
        for _ in range(2):
            assert writer.write(iter(rows)).rows == 90
        assert [payload for payload, _, _ in entries(running, "t")] == [
            payload for batch in rows for payload in batch.column("payload").to_pylist()
        ]
        with pytest.raises(OutOfSequence, match="stored already, with other rows"):
            writer.write(iter([pa.record_batch({"payload": [b"other"]})]))


def test_failed_attempt_stores_nothing_and_may_be_replaced(tmp_path: Path) -> None:
    def rows(failing: bool) -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if failing and number == 15:
                raise RuntimeError("an executor is gone")
            yield pa.record_batch({"payload": [b"%d" % number], "topic": ["even" if number % 2 == 0 else "odd"]})

    with daemon(tmp_path) as running:
        writer = BatchWriter(SinkOptions(DaemonConnection(running.grpc), ""))
        with pytest.raises(RuntimeError):
            writer.write(rows(failing=True))
        assert running.log.names() == []
        writer.write(iter(reversed(list(rows(failing=False)))))
        assert [payload for payload, _, _ in entries(running, "odd")] == [b"%d" % n for n in range(19, 0, -2)]


def test_large_task_uses_several_transactions_and_appends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "PART_BYTES", 3_000)
    rows = [pa.record_batch({"payload": [b"%d" % n * 500]}) for n in range(9)]
    assert [len(part) for part in sink.parts(rows, "t")] == [5, 4]
    with daemon(tmp_path) as running:
        writer = BatchWriter(SinkOptions(DaemonConnection(running.grpc), "t"))
        for _ in range(2):
            writer.write(iter(rows))
        assert [payload for payload, _, _ in entries(running, "t")] == [b"%d" % n * 500 for n in range(9)]


def test_repeated_micro_batch_appends_once(spark: SparkSession, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    spark.range(100).selectExpr("cast(id as string) value").write.text(str(source))
    with daemon(tmp_path) as running:
        for _ in range(2):
            stream = spark.readStream.format("text").load(str(source))
            query = (
                stream.writeStream.format("penstock")
                .options(uri=running.grpc, topic="t", checkpointLocation=str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(120)
            (checkpoint / "commits" / "0").unlink()  # as if it had been killed before the commit
            (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
        assert sorted(int(payload) for payload, _, _ in entries(running, "t")) == list(range(100))


def test_bad_write_option_is_named(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) value")
    for options, message in (
        ({"topic": "t"}, "uri: missing"),
        ({"uri": "x:1"}, "topic: missing"),
        ({"uri": "x:1", "topic": "t", "tpic": "t"}, "tpic: unknown option"),
    ):
        with pytest.raises(AnalysisException, match=message):
            frame.write.format("penstock").options(**options).mode("append").save()
    with pytest.raises(AnalysisException, match="no column payload"):
        spark.range(1).write.format("penstock").options(uri="x:1", topic="t").mode("append").save()


def test_rows_without_a_topic_go_to_the_default_one() -> None:
    batch = pa.record_batch({"payload": [b"1", b"2", b"3"], "topic": ["a", None, "a"]})
    assert {topic: body.column("payload").to_pylist() for topic, body in bodies(batch, "rest")} == {
        "a": [b"1", b"3"],
        "rest": [b"2"],
    }
