"""The same cases read from the folder and over Flight: the same rows, the same ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual
from pyspark.sql.datasource import Filter as PushedFilter
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.counts import Origin
from penstock.landing.topics.topic_store import DataLoss
from penstock.log import Log
from penstock.records import BODY, body
from penstock.spark.source.data_source import BatchReader, StreamReader
from penstock.spark.source.options import COLUMNS, SourceOptions
from tests.spark.spark_flight import served
from tests.spark.spark_helpers import append, flip

Rows = list[dict[str, object]]
ANNOTATIONS = MapType(StringType(), StringType())
TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "binary": BinaryType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


@pytest.fixture
def marked(topics: Path) -> Path:
    """Topics a (3 rows, and 2 with annotations), b (25,000 rows in batches of 5,000) and an internal one."""
    append(topics, "a", [b"a0", b"a1"], [None])
    log = Log(topics)
    marks = pa.array([[("user", "vip-1")], [("user", "vip-x")]], BODY.field("annotations").type)
    log.topic("a").append(body([b"a3", b"a4"], annotations=marks), Origin("grpc", 60, 5, 9, "raw")).result(20)
    log.topic("_inner", create=True, internal=True).append(body([b"i"]), Origin("grpc", 0, 0, 0)).result(20)
    log.close()
    append(topics, "b", *[[b"b%d" % n for n in range(5_000)]] * 5, codec="syslog", source="tcp")
    return topics


@pytest.fixture(params=["path", "uri"])
def where(request: pytest.FixtureRequest, marked: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """Opens the topics one way or the other (once nothing more is done to their files): the option for it."""
    with ExitStack() as opened:

        def opens() -> dict[str, str]:
            if request.param == "path":
                return {"path": str(marked)}
            return {"uri": opened.enter_context(served(marked)).address}

        yield opens


def schema(*names: str) -> StructType:
    return StructType([StructField(name, TYPES.get(COLUMNS[name], ANNOTATIONS)) for name in names or COLUMNS])


def rows(options: dict[str, str], *filters: PushedFilter) -> Rows:
    columns = [name for name in options.get("columns", "").split(",") if name]
    reader = BatchReader(SourceOptions.from_options(options), schema(*columns))
    assert list(reader.pushFilters(list(filters))) == []
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def sorted_offsets(read_rows: Rows) -> list[tuple[object, object]]:
    return sorted((row["topic"], row["offset"]) for row in read_rows)  # type: ignore[type-var]


def times(topics: Path) -> list[int]:
    return [row["timestamp"] for row in rows({"path": str(topics), "topic": "a"})]  # type: ignore[misc]


A = [("a", n) for n in range(5)]
CASES = [
    ({"topic": "a"}, A),
    ({"topic": "a,none", "startingOffsets": '{"a": 1}', "endingOffsets": '{"a": 4}'}, A[1:4]),
    ({"topic": "a", "startingOffsets": "latest-2"}, A[3:]),
    ({"startingOffsets": "latest"}, []),
    ({"startingTimestamp": "2100-01-01"}, []),
    ({"topic": "a", "startingTimestamp": "1000", "endingTimestamp": "2100-01-01"}, A),
    ({"topic": "[ab]", "startingOffsets": '{"b": 24999}', "filter": "NOT k:user"}, [*A[:3], ("b", 24_999)]),
    ({"topic": "a", "filter": "k:user v:vip-[0-9]+", "onDataLoss": "fail"}, [("a", 3)]),
    ({"topic": "_inner"}, [("_inner", 0)]),
]


def test_options_choose_same_rows_in_folder_and_over_flight(where: Callable[[], dict[str, str]]) -> None:
    opened = where()
    for options, expected in CASES:
        assert sorted_offsets(rows({**opened, **options, "columns": "topic,offset"})) == expected, options


def test_rows_have_the_same_values_in_all_columns(marked: Path) -> None:
    plain = rows({"path": str(marked)})
    with served(marked) as server:
        assert rows({"uri": server.address}) == plain
        few = {"topic": "a", "columns": "payload,codec,topic"}
        assert rows({"uri": f"grpc://{server.address}", **few}) == rows({"path": str(marked), **few})
    assert len(plain) == 25_005
    assert {row["codec"] for row in plain} == {"plog", "raw", "syslog"}


def test_filters_of_spark_bound_read_rows(where: Callable[[], dict[str, str]], marked: Path) -> None:
    third, opened = times(marked)[3], where()
    only_a = EqualTo(("topic",), "a")
    assert sorted_offsets(rows(opened, only_a, GreaterThan(("offset",), 2))) == A[3:]
    assert sorted_offsets(rows(opened, only_a, GreaterThanOrEqual(("timestamp",), third))) == A[3:]


def test_many_rows_are_split_over_tasks(where: Callable[[], dict[str, str]]) -> None:
    reader = BatchReader(SourceOptions.from_options({**where(), "topic": "b", "partitions": "2"}), schema("offset"))
    parts = reader.partitions()
    offsets_by_part = [[o for b in reader.read(part) for o in b.column("offset").to_pylist()] for part in parts]
    assert [len(offsets) for offsets in offsets_by_part] == [12_500, 12_500]
    assert [*offsets_by_part[0], *offsets_by_part[1]] == list(range(25_000))


def test_stream_has_same_ends_in_folder_and_over_flight(where: Callable[[], dict[str, str]]) -> None:
    options = {**where(), "topic": "a,b"}
    reader = StreamReader(SourceOptions.from_options(options), schema("topic", "offset"))
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadAllAvailable()) == {"a": 5, "b": 25_000}
    limited_ends = reader.latestOffset({"a": 1}, ReadMaxRows(100))
    assert sum(limited_ends.values()) == 101
    reported_ends = reader.reportLatestOffset()
    assert (reported_ends["a"], reported_ends["b"], reported_ends["_lag"]["rows"]) == (5, 25_000, 24_904)
    assert 0 < reported_ends["_lag"]["seconds"] < 600
    (part,) = reader.partitions({"a": 1}, {"a": 3, "b": 2})
    assert sorted_offsets([row for batch in reader.read(part) for row in batch.to_pylist()]) == [
        *A[1:3],
        ("b", 0),
        ("b", 1),
    ]
    small = SourceOptions.from_options({**options, "topic": "b", "maxBytesPerTrigger": "10000"})
    limited = StreamReader(small, schema("offset"))
    assert 20 <= limited.latestOffset({}, limited.getDefaultReadLimit())["b"] <= 300
    last = SourceOptions.from_options({**options, "startingOffsets": "latest-1"})
    assert StreamReader(last, schema("offset")).initialOffset() == {"a": 4, "b": 24_999}


def test_corrupt_rows_are_skipped_or_end_query(where: Callable[[], dict[str, str]], marked: Path) -> None:
    opened = where()
    assert sorted_offsets(rows({**opened, "topic": "a"})) == A
    flip(marked, "a", b"a0a1")
    with pytest.raises(DataLoss, match="topic a: offsets 0 to 2 are corrupt"):
        rows({**opened, "topic": "a", "onDataLoss": "fail"})
    assert sorted_offsets(rows({**opened, "topic": "a"})) == A[2:]
    assert len(rows({**opened, "topic": "b", "onDataLoss": "fail"})) == 25_000


def test_rows_of_gap_are_skipped_or_end_query(where: Callable[[], dict[str, str]], marked: Path) -> None:
    flip(marked, "a", b"a0a1")
    log = Log(marked)
    log.topic("a")  # when it is opened this becomes a gap
    log.close()
    options = {**where(), "topic": "a", "startingOffsets": '{"a": 1}'}
    assert sorted_offsets(rows(options)) == A[2:]
    with pytest.raises(DataLoss, match="topic a: offsets 0 to 2 are corrupt"):
        rows({**options, "onDataLoss": "fail"})


def test_deleted_topic_has_no_rows_or_ends_query(where: Callable[[], dict[str, str]]) -> None:
    opened = where()
    for fail, expected in (("count", []), ("fail", DataLoss)):
        reader = StreamReader(SourceOptions.from_options({**opened, "onDataLoss": fail}), schema("offset"))
        (part,) = reader.partitions({}, {"gone": 3})
        if expected is DataLoss:
            with pytest.raises(DataLoss, match="topic gone was deleted"):
                list(reader.read(part))
        else:
            assert list(reader.read(part)) == expected


def test_folder_without_topics_has_no_rows(tmp_path: Path) -> None:
    assert rows({"path": str(tmp_path / "none")}) == []
    with served(tmp_path / "empty") as server:
        assert rows({"uri": server.address}) == []
