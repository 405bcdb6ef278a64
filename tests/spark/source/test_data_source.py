"""The data source in a real Spark: batch and stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.config import TokenConfig
from penstock.counts import Origin
from penstock.log import Log
from penstock.records import BODY, body
from penstock.server.auth.rights import TokenAuthenticator
from penstock.spark.source.data_source import StreamReader, share_rows
from penstock.spark.source.interfaces import ReadAllAvailable, ReadMaxRows
from penstock.spark.source.options import SourceOptions
from tests.spark.spark_flight import served
from tests.spark.spark_helpers import BUCKET, append, flip

pytestmark = pytest.mark.spark


def read(spark: SparkSession, topics: Path, **options: object) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(str(topics))


def offsets(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.topic, row.offset) for row in frame.select("topic", "offset").collect())


@pytest.fixture
def two(topics: Path) -> Path:
    append(topics, "a", [b"a0", b"a1"], [b"a2"])
    append(topics, "b", [b"b0", None], codec="syslog", source="tcp")
    return topics


def test_a_batch_read_has_every_row_with_its_origin(spark: SparkSession, two: Path) -> None:
    frame = read(spark, two)
    assert offsets(frame) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    row = frame.where("topic = 'b' and offset = 0").first()
    assert row is not None
    assert (row.payload, row.source, row.codec, row.key, row.type_url) == (b"b0", "tcp", "syslog", None, None)
    seconds = frame.selectExpr("unix_seconds(bucket) b", "unix_micros(received) r").distinct().collect()
    assert [(s.b, s.r) for s in seconds] == [(BUCKET, BUCKET * 1_000_000 + 5)]


def test_options_narrow_topics_offsets_and_columns(spark: SparkSession, two: Path) -> None:
    frame = read(spark, two, topic="a", startingOffsets='{"a": 1}', endingOffsets='{"a": 2}', columns="offset,payload")
    assert [tuple(row) for row in frame.collect()] == [(1, b"a1")]


def test_pushed_filters_are_exact(spark: SparkSession, two: Path) -> None:
    frame = read(spark, two).where("topic = 'a' and offset >= 1 and payload <> 'a1'")
    assert offsets(frame) == [("a", 2)]
    times = [row.timestamp for row in read(spark, two, topic="a").orderBy("offset").collect()]
    assert offsets(read(spark, two, topic="a").where(f"timestamp > timestamp'{times[0]}'")) == [("a", 1), ("a", 2)]


def test_a_folder_with_no_topics_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, tmp_path / "none").count() == 0


def test_a_bad_option_stops_the_query_with_its_name(spark: SparkSession, two: Path) -> None:
    with pytest.raises(AnalysisException, match="did you mean topic"):
        spark.read.format("penstock").option("topics", "a").load(str(two))


def test_a_corrupt_batch_does_not_end_the_query(spark: SparkSession, two: Path) -> None:
    flip(two, "a", b"a0")
    assert offsets(read(spark, two, topic="a")) == [("a", 2)]


def test_many_rows_are_read_by_several_tasks(spark: SparkSession, topics: Path) -> None:
    append(topics, "t", *[[b"x"] * 8_000] * 4)
    frame = read(spark, topics)
    assert frame.rdd.getNumPartitions() >= 2
    assert frame.selectExpr("count(distinct offset)", "min(offset)", "max(offset)").first() == (32_000, 0, 31_999)


@pytest.fixture
def streamed(spark: SparkSession, two: Path, tmp_path: Path) -> Callable[..., tuple[list[tuple[str, int]], list[int]]]:
    """Runs a stream until there is nothing new, and gives all rows so far with the rows of each batch."""

    def run(**options: object) -> tuple[list[tuple[str, int]], list[int]]:
        stream = spark.readStream.format("penstock").options(**options).load(str(two))
        query = (
            stream.select("topic", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination(60)
        sizes = [progress["numInputRows"] for progress in query.recentProgress]
        return offsets(spark.read.parquet(str(tmp_path / "out"))), [size for size in sizes if size]

    return run


def test_a_stream_reads_each_offset_once_also_of_topics_that_appear_later(
    streamed: Callable[..., tuple[list[tuple[str, int]], list[int]]], two: Path
) -> None:
    first, sizes = streamed(maxRowsPerTrigger=2)
    assert first == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    assert sizes == [2, 2, 1]
    append(two, "a", [b"a3"])
    append(two, "c", [b"c0"])
    second, sizes = streamed()
    assert second == sorted([*first, ("a", 3), ("c", 0)])
    assert sizes == [2]


def test_the_log_daemon_is_read_like_a_folder_and_its_token_is_shown_to_nobody_else(
    spark: SparkSession, two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = "sixteen letters at least"
    with served(two, TokenAuthenticator({"spark": TokenConfig(token=token, read=("*",))})) as server:
        options = {"uri": server.address, "token": token}
        frame = spark.read.format("penstock").options(**options).load()
        assert offsets(frame) == offsets(read(spark, two))
        frame.explain("extended")
        stream = spark.readStream.format("penstock").options(**options, maxRowsPerTrigger="3").load()
        writer = stream.writeStream.format("memory").queryName("served").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination(60)
        query.explain(True)
    assert offsets(spark.table("served")) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [3, 2]
    assert token not in capsys.readouterr().out + json.dumps(query.recentProgress, default=str)
    written = [path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert not any(token in text for text in written)


def test_a_stream_from_the_latest_offsets_sees_only_what_comes(two: Path) -> None:
    options = SourceOptions.from_options({"path": str(two), "startingOffsets": "latest"})
    reader = StreamReader(options, StructType([]))
    start = reader.initialOffset()
    assert start == {"a": 3, "b": 2}
    append(two, "a", [b"a3"])
    append(two, "new", [b"n0"])
    assert reader.latestOffset(start, ReadAllAvailable()) == {"a": 4, "b": 2, "new": 1}


def test_the_lag_is_reported_by_topic(two: Path) -> None:
    reader = StreamReader(SourceOptions.from_options({"path": str(two), "topic": "b"}), StructType([]))
    reader.latestOffset({"b": 1}, ReadMaxRows(1))
    append(two, "b", [b"b2", b"b3", b"b4"])
    progress = reader.reportLatestOffset()
    assert progress["b"] == 5
    assert progress["_lag"]["rows"] == 3
    assert 0 <= progress["_lag"]["seconds"] < 60
    reader.latestOffset({"b": 2}, ReadAllAvailable())
    assert json.dumps(reader.reportLatestOffset()) == '{"b": 5, "_lag": {"rows": 0, "seconds": 0.0}}'


def test_reading_begins_at_a_time_or_a_number_of_rows_before_the_end(spark: SparkSession, two: Path) -> None:
    assert offsets(read(spark, two, startingOffsets="latest-1")) == [("a", 2), ("b", 1)]
    assert offsets(read(spark, two, startingTimestamp="2100-01-01")) == []
    assert offsets(read(spark, two, startingTimestamp="1000", endingTimestamp="2100-01-01T00:00:00+01:00")) == [
        *(("a", n) for n in range(3)),
        *(("b", n) for n in range(2)),
    ]
    later = StreamReader(
        SourceOptions.from_options({"path": str(two), "startingTimestamp": "2100-01-01"}), StructType([])
    )
    assert later.initialOffset() == {"a": 3, "b": 2}


def test_a_filter_lets_through_rows_whose_annotations_match(spark: SparkSession, topics: Path) -> None:
    log = Log(topics)
    marks = pa.array([[("user", "vip-1")], [("user", "vip-x")], None], BODY.field("annotations").type)
    rows = body([b"0", b"1", b"2"], annotations=marks)
    log.topic("t", create=True).append(rows, Origin("grpc", 0, 0, 0)).result()
    log.close()
    assert offsets(read(spark, topics, filter="k:user v:vip-[0-9]+")) == [("t", 0)]
    assert offsets(read(spark, topics, filter="NOT k:user")) == [("t", 2)]
    with pytest.raises(AnalysisException, match="filter:"):
        read(spark, topics, filter="k:(")


def test_lost_data_ends_the_query_with_option_fail(spark: SparkSession, two: Path) -> None:
    flip(two, "a", b"a0")
    with pytest.raises(Exception, match="topic a: offsets 0 to 2 are corrupt"):
        offsets(read(spark, two, topic="a", onDataLoss="fail"))
    assert offsets(read(spark, two, topic="b", onDataLoss="fail")) == [("b", 0), ("b", 1)]


def test_available_now_ends_at_the_initial_ends(two: Path) -> None:
    reader = StreamReader(SourceOptions.from_options({"path": str(two)}), StructType([]))
    reader.prepareForTriggerAvailableNow()
    append(two, "a", [b"a3"])
    append(two, "c", [b"c0"])
    assert reader.latestOffset({}, ReadMaxRows(100)) == {"a": 3, "b": 2}


def test_limit_is_shared_in_proportion_and_never_exceeded() -> None:
    assert share_rows({"a": 90, "b": 10}, 10) == {"a": 9, "b": 1}
    assert sum(share_rows({"a": 5, "b": 5, "c": 5}, 2).values()) == 2
    assert share_rows({"a": 3}, 10) == {"a": 3}


def test_a_batch_has_about_as_many_bytes_as_asked_for_but_at_least_one_row(topics: Path) -> None:
    append(topics, "large", [b"x" * 100_000] * 150)
    append(topics, "small", [b"x"] * 150)
    for size, rows in ((1_000_000, range(15, 25)), (1, range(1, 2)), (1 << 30, range(300, 301))):
        options = SourceOptions.from_options({"path": str(topics), "maxBytesPerTrigger": str(size)})
        reader = StreamReader(options, StructType([]))
        planned = reader.latestOffset({}, reader.getDefaultReadLimit())
        assert sum(planned.values()) in rows
    assert sum(reader.latestOffset({}, ReadAllAvailable()).values()) == 300


def test_removed_topic_keeps_its_offset(two: Path) -> None:
    reader = StreamReader(SourceOptions.from_options({"path": str(two)}), StructType([]))
    assert reader.latestOffset({"gone": 7}, ReadAllAvailable()) == {"a": 3, "b": 2, "gone": 7}
    assert reader.partitions({"gone": 7, "a": 3}, {"gone": 7, "a": 3}) == []
