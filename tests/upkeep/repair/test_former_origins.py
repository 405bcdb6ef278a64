"""Origins that a file may have for records whose header is read today."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.kafka.origin_header import ORIGIN_HEADER, OriginReader, encode_origin
from penstock.landing.from_kafka.rows import RECORD, rows_from_records
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.upkeep.repair.former_origins import with_former_origins
from penstock.upkeep.repair.lost_column import LostColumn

MOMENT = datetime(2026, 11, 27, 12, 5, 30, tzinfo=UTC)
MINUTE = MOMENT.replace(second=0)
RECEIVED = MINUTE - timedelta(minutes=1)
EDGE, OTHER_EDGE, KAFKA, OTHER = "edge-1/web", "edge-2/web", "kafka", "other/other"


def reread(*hosts: str | None, limit: int = 10, partition: int | None = 0) -> pa.RecordBatch:
    """Return rows as the landing makes them today of records with the header of a host, or without one."""
    records = []
    for offset, host in enumerate(hosts):
        text = encode_origin(host or "", "web", round(RECEIVED.timestamp())).encode()
        headers = [{"key": ORIGIN_HEADER, "value": text}] if host else []
        records.append(
            {"topic": "t", "partition": partition, "offset": offset, "timestamp": MOMENT, "headers": headers}
        )
    rows = rows_from_records(pa.RecordBatch.from_pylist(records, RECORD), OriginReader(limit))
    return pa.RecordBatch.from_pylist(rows.to_pylist(), FILE_SCHEMA)


def origins(
    rows: pa.RecordBatch, source: list[str] | None, bucket: list[datetime] | None, *bounds: Any
) -> list[tuple[str, datetime]]:
    """Return the origins with a file's columns; ``bounds`` of the source if it is lost."""
    columns = {"source": pa.array(source or ()), "bucket": pa.array(bucket or (), FILE_SCHEMA.field("bucket").type)}
    readable = {name: column for name, column in columns.items() if len(column)}
    lost = {name: LostColumn(None, None, None) for name in columns if name not in readable}
    if source is None and bounds:
        lost["source"] = LostColumn(*bounds, 0)
    restored = with_former_origins(rows, readable, lost)
    assert restored.drop_columns([*columns]) == rows.drop_columns([*columns])
    return list(zip(restored["source"].to_pylist(), restored["bucket"].to_pylist(), strict=True))


def test_readable_origins_from_before_the_header_stay() -> None:
    former = [(KAFKA, MINUTE), (OTHER, MINUTE), (EDGE, RECEIVED)]
    sources, buckets = [source for source, _ in former], [bucket for _, bucket in former]
    rows = reread("edge-1", "edge-1", "edge-1")
    assert origins(rows, sources, buckets) == former
    assert origins(rows, sources, None) == former
    assert origins(reread("edge-1", "edge-1", None), None, [MINUTE] * 3) == [
        (KAFKA, MINUTE),
        (KAFKA, MINUTE),
        (KAFKA, MINUTE),
    ]


def test_readable_origin_beyond_todays_limit_stays() -> None:
    rows = reread("edge-2", "edge-1", limit=1)
    assert rows["source"].to_pylist() == [OTHER_EDGE, OTHER]
    former = [(OTHER_EDGE, RECEIVED), (EDGE, RECEIVED)]
    assert origins(rows, [OTHER_EDGE, EDGE], [RECEIVED, RECEIVED]) == former
    # Its minute is not certain: the caller sees another source, and refuses.
    assert origins(rows, [OTHER_EDGE, EDGE], None) == [(OTHER_EDGE, RECEIVED), (OTHER, MINUTE)]


def test_origin_that_no_landing_writes_differs() -> None:
    rows = reread("edge-1")
    assert origins(rows, ["edge-3/web"], [RECEIVED]) == [(EDGE, RECEIVED)]
    assert origins(rows, [EDGE], [RECEIVED - timedelta(minutes=1)]) == [(EDGE, RECEIVED)]


def test_rows_of_the_log_are_compared_as_they_are() -> None:
    rows = reread("edge-1", partition=None)
    assert origins(rows, [KAFKA], [MINUTE]) == [(EDGE, RECEIVED)]
    assert origins(rows, None, None, KAFKA, KAFKA) == [(EDGE, RECEIVED)]


@pytest.mark.parametrize("former", [(EDGE, RECEIVED), (KAFKA, MINUTE), (OTHER, MINUTE)])
def test_statistics_decide_between_the_header_and_before(former: tuple[str, datetime]) -> None:
    source, bucket = former
    assert origins(reread("edge-1", "edge-1"), None, None, source, source) == [former] * 2
    assert origins(reread("edge-1", "edge-1"), None, [bucket] * 2, source, source) == [former] * 2
    assert origins(reread("edge-1", None), None, None, EDGE, KAFKA) == [(EDGE, RECEIVED), (KAFKA, MINUTE)]


def test_lost_columns_without_statistics_are_from_the_header() -> None:
    assert origins(reread("edge-1", None), None, None) == [(EDGE, RECEIVED), (KAFKA, MINUTE)]
