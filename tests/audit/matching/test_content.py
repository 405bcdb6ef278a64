"""The content of rows is compared with their records: equal ones in any type, and differing ones named by offset."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.audit.matching.content import _sample
from penstock.audit.tables import sql_table
from penstock.landing.offset_runs import as_runs, count_offsets, difference
from tests.audit.audited import run_audit
from tests.kafka.kafka_helpers import Topics

ORDERS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": f"Ünal {number}",
        "price": number + 0.25,
        "paid": number % 2 == 0,
        "day": "2026-03-01",
        "time": "2026-03-01T10:00:00.5Z",
        "note": None,
        "count": number,
    }
    for number in range(12)
]
TIME = datetime(2026, 3, 1, 10, 0, 0, 500_000, UTC)


def orders_topic(topics: Topics, partitions: int = 1) -> str:
    topic = topics.new(partitions)
    topics.plain(topic, [json.dumps(order).encode() for order in ORDERS], range(partitions))
    return topic


def orders_table(changed: Mapping[int, Mapping[str, object]] | None = None) -> pa.Table:
    """Return the rows of the orders in the types that a sink would choose."""
    types: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "name": pa.string(),
        "price": pa.decimal128(10, 2),
        "paid": pa.bool_(),
        "day": pa.date32(),
        "time": pa.timestamp("us", "UTC"),
        "note": pa.string(),
        "count": pa.float32(),
        "loaded_by": pa.string(),
        "kafka_offset": pa.int64(),
    }
    typed = {"day": date(2026, 3, 1), "time": TIME, "loaded_by": "sink"}
    rows = [
        {
            **order,
            **typed,
            "price": Decimal(str(order["price"])),
            "kafka_offset": offset,
            **(changed or {}).get(offset, {}),
        }
        for offset, order in enumerate(ORDERS)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))


def test_equal_content_in_other_types_has_no_finding(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    pq.write_table(orders_table(), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all")
    assert (status, report.get("differing"), report.get("compared_records")) == (0, 0, 12), errors
    assert [pair.partition("=")[0] for pair in report["compared"]] == [
        "id", "name", "price", "paid", "day", "time", "count",
    ]  # fmt: skip


CHANGES: dict[int, dict[str, object]] = {
    1: {"id": 99},
    2: {"name": "unal 2"},
    3: {"price": Decimal("3.26")},
    4: {"paid": False},
    5: {"day": date(2026, 3, 2)},
    6: {"time": datetime(2026, 3, 1, 11, tzinfo=UTC)},
    7: {"count": 7.5},
    8: {"name": None},
}


def test_each_kind_of_differing_content_is_named_by_offset_and_column(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    deltalake.write_deltalake(str(tmp_path / "t"), orders_table(CHANGES))
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--all")
    assert (status, report.get("differing"), report.get("missing")) == (1, 8, 0), errors
    (part,) = report["partitions"]
    assert part["differing"] == [[1, 9]]
    assert part["differing_in"] == {"id": 1, "name": 2, "price": 1, "paid": 1, "day": 1, "time": 1, "count": 1}
    assert report["verdict"] == f"{topic}: 8 with another content of 12 records checked; partition 0"


TIMES: list[Any] = [
    "2026-03-01T12:00:00.5+02:00",
    "2026-03-01T04:30:00.5-0530",
    "2026-03-01 11:00:00.5+01",
    "2026-03-01 12:00:00.5 +0200",
    "2026-03-01 10:00:00.5 UTC",
    "2026-03-01T10:00:00.500000999Z",
    "2026-03-01 10:00:00.5",
    1772359200.5,
    1772359200500,
    1772359200500000,
    1772359200500000999,
]
"""A moment as producers write it; numbers are seconds, milliseconds, microseconds and nanoseconds."""


def test_time_of_a_record_in_any_zone_and_unit_is_its_moment(topics: Topics, tmp_path: Path) -> None:
    """confluentinc/kafka-connect-jdbc#745, #505: a sink stores the local clock as if it were UTC."""
    topic = topics.new(1)
    topics.plain(topic, [json.dumps({"time": time}).encode() for time in TIMES])
    columns = {"time": pa.array([TIME] * len(TIMES), pa.timestamp("us", "UTC")), "kafka_offset": range(len(TIMES))}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all")
    assert (status, report.get("differing"), report.get("compared_records")) == (0, 0, len(TIMES)), errors
    local = [TIME.replace(hour=12), TIME.replace(hour=4, minute=30), *[TIME] * (len(TIMES) - 2)]
    columns["time"] = pa.array(local, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all")
    assert (status, report["partitions"][0]["differing"]) == (1, [[0, 2]]), errors


def test_named_columns_and_raw_values_are_compared(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    values = [json.dumps(order).encode() for order in ORDERS]
    values[4] = b"{}"
    raw = {"value": pa.array(values, pa.binary()), "offset": list(range(12)), "client": [*range(11), -1]}
    pq.write_table(pa.table(raw), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all")
    assert (status, report.get("compared")) == (1, ["value=value"]), errors
    assert report["partitions"][0]["differing"] == [[4, 5]]
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all", "--compare", "client=$.id")
    assert report["partitions"][0]["differing"] == [[11, 12]], errors


def test_content_is_compared_by_id_if_one_record_has_it(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    topics.plain(topic, [json.dumps({**ORDERS[3], "name": "renamed"}).encode()])
    rows = orders_table({5: {"name": "someone"}}).drop(["kafka_offset"])
    renamed = orders_table({3: {"name": "renamed"}}).drop(["kafka_offset"]).slice(3, 1)
    pq.write_table(pa.concat_tables([rows, renamed]), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--id", "id", "--all")
    assert (status, report.get("missing"), report.get("differing")) == (1, 0, 1), errors
    assert report["partitions"][0]["differing"] == [[5, 6]]
    assert (report["compared_records"], report["repeated_ids"]) == (11, 1)
    assert "their content is not compared" in report["cannot_see"]


def test_column_has_the_type_of_the_first_rows_that_have_it(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = orders_topic(topics)
    orders = orders_table()
    (tmp_path / "t").mkdir()
    for name, rows in (("a", orders.slice(0, 4).drop(["price", "time"])), ("b", orders.slice(4))):
        pq.write_table(rows, tmp_path / "t" / f"{name}.parquet")
    deltalake.convert_to_deltalake(str(tmp_path / "t"))
    status, report, errors = run_audit(topics, topic, tmp_path / "t", "--all")
    assert status == 1, errors
    (part,) = report["partitions"]
    assert (part["differing"], part["differing_in"]) == ([[0, 4]], {"price": 4, "time": 4})
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (kafka_offset INTEGER, price REAL)")
        prices = [(offset, None if offset < 4 else offset + 0.25) for offset in range(12)]
        database.executemany("INSERT INTO orders VALUES (?, ?)", prices)
    monkeypatch.setattr(sql_table, "BATCH_ROWS", 4)
    _, report, errors = run_audit(topics, topic, f"sqlite://{tmp_path}/shop.db?table=orders", "--all")
    assert [part["differing"] for part in report.get("partitions", [])] == [[[0, 4]]], errors


def test_sample_reads_as_many_records_in_all_partitions(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics, partitions=2)
    table = pa.concat_tables(
        orders_table().append_column("kafka_partition", pa.array([number] * 12)) for number in range(2)
    )
    pq.write_table(table, tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--sample", "9")
    assert (status, report.get("compared_records")) == (0, 9), errors


@pytest.mark.parametrize("size", [1, 7, 29, 30, 31])
def test_sample_is_a_part_of_the_offsets(size: int) -> None:
    present = {0: as_runs([(0, 10), (100, 105)]), 2: as_runs([(7, 22)]), 3: as_runs([])}
    sampled = _sample(present, size)
    assert sum(map(count_offsets, sampled.values())) == min(size, 30)
    assert not any(len(difference(ranges, present[number])) for number, ranges in sampled.items())


def test_table_without_columns_to_compare_is_not_decided(topics: Topics, tmp_path: Path) -> None:
    topic = orders_topic(topics)
    pq.write_table(pa.table({"offset": list(range(12)), "other": [1] * 12}), tmp_path / "t.parquet")
    status, report, errors = run_audit(topics, topic, tmp_path / "t.parquet", "--all")
    assert (status, report) == (2, {})
    assert "name columns by --compare COLUMN=FIELD" in errors
