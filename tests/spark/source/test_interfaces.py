"""A stream's reader under Spark 4.0 and 4.1, which name neither the start nor the limit of a batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from penstock.errors import PenstockError
from penstock.spark.source import data_source, interfaces
from penstock.spark.source.data_source import PenstockSource, StreamReader
from penstock.spark.source.interfaces import PlanGoesBack, StartKeeper, arrow_schema
from penstock.spark.source.landing_ranges import RangeReader
from penstock.spark.source.options import BadOption, SourceOptions
from tests.spark.spark_helpers import append


@pytest.fixture
def ten(topics: Path) -> Path:
    append(topics, "a", [b"%d" % number for number in range(10)])
    return topics


def keeper(topics: Path, folder: Path, *, until_available: bool = False, **options: str) -> StartKeeper:
    asked = SourceOptions.from_options({"path": str(topics), **options})
    return StartKeeper(
        RangeReader(asked, StructType(), folder / "hold", (folder, False), until_available=until_available)
    )


def test_batches_follow_each_other_within_their_limit(ten: Path, tmp_path: Path) -> None:
    reader = keeper(ten, tmp_path, maxRowsPerTrigger="4")
    ends = [reader.latestOffset()]
    assert reader.initialOffset() == {}
    for _ in range(3):
        reader.partitions(ends[-2] if len(ends) > 1 else {}, ends[-1])
        ends.append(reader.latestOffset())
    assert ends == [{"a": 4}, {"a": 8}, {"a": 10}, {"a": 10}]


def test_a_started_query_continues_at_the_newest_plan(ten: Path, tmp_path: Path) -> None:
    reader = keeper(ten, tmp_path, maxRowsPerTrigger="4")
    assert reader.partitions({"a": 8}, {"a": 8}) == [], "what Spark asks first, if the checkpoint has a plan"
    (part,) = reader.partitions({"a": 4}, {"a": 8})
    assert [(planned.begin, planned.end) for planned in part.ranges] == [(4, 8)], "the plan that was not committed"
    assert reader.latestOffset() == {"a": 10}


def test_a_batch_that_ends_before_its_start_is_refused(ten: Path, tmp_path: Path) -> None:
    with pytest.raises(
        PlanGoesBack, match=r"^the batch of a begins at offset 8 and ends at 4: nothing is read$"
    ) as back:
        keeper(ten, tmp_path).partitions({"a": 8}, {"a": 4})
    assert isinstance(back.value, PenstockError)


def test_nothing_is_planned_behind_the_ends_at_the_start_if_so_asked(ten: Path, tmp_path: Path) -> None:
    reader = keeper(ten, tmp_path, until_available=True, maxRowsPerTrigger="8")
    assert reader.latestOffset() == {"a": 8}
    append(ten, "a", [b"late"])
    append(ten, "b", [b"late"])
    assert [reader.latestOffset(), reader.latestOffset()] == [{"a": 10}, {"a": 10}]


def test_a_stream_from_the_latest_offsets_has_one_start(ten: Path) -> None:
    reader = StartKeeper(
        StreamReader(SourceOptions.from_options({"path": str(ten), "startingOffsets": "latest"}), StructType())
    )
    end = reader.latestOffset()
    append(ten, "a", [b"late"])
    assert (reader.initialOffset(), end) == ({"a": 10}, {"a": 10})
    assert reader.latestOffset() == {"a": 11}


def test_limits_that_spark_ignores_are_refused(ten: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (data_source, interfaces):
        monkeypatch.setattr(module, "HAS_READ_LIMITS", False)
    assert isinstance(PenstockSource({"path": str(ten)}).streamReader(StructType()), StartKeeper)
    with pytest.raises(BadOption, match=r"^maxRowsPerTrigger, maxBytesPerTrigger: they need Spark 4\.2 or later"):
        PenstockSource({"path": str(ten), "maxRowsPerTrigger": "5"}).streamReader(StructType())


def test_times_are_in_utc() -> None:
    schema = StructType([StructField("at", TimestampType()), StructField("offset", LongType())])
    assert arrow_schema(schema).types == [pa.timestamp("us", "UTC"), pa.int64()]
