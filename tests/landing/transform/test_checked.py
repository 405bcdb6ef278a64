"""Output that a function may return, and rows that it fails on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.transform.checked import CheckedFunction
from tests.landing.transform import functions
from tests.landing.transform.functions import replace_column
from tests.landing.writing.messages import AT, event, source

Function = Callable[[pa.RecordBatch], Any]
Fates = dict[int, tuple[str, str | None]]


def apply(function: Function, *payloads: bytes) -> tuple[CheckedFunction, list[tuple[MessageKind, pa.RecordBatch]]]:
    step = CheckedFunction("hook", function)
    rows = table_rows(source(enumerate(payloads)).rows, Rules(), AT)
    return step, [output for kind, part in rows for output in step.apply(kind, part)]


def fates_by_offset(function: Function, *payloads: bytes) -> Fates:
    """Return kind and reason by offset; each offset is in the output once."""
    _, parts = apply(function, *payloads)
    assert all(rows.schema.equals(FILE_SCHEMA) and rows.num_rows for _, rows in parts)
    fates = [(row["offset"], (str(kind), row["reason"])) for kind, rows in parts for row in rows.to_pylist()]
    assert len(dict(fates)) == len(fates)
    return dict(fates)


EVENT, REDACTED, DROPPED = ("event", None), ("event", "redacted"), ("dropped", None)
FAILED = ("quarantine", "transform_failed")


def test_unchanged_rows_land_unchanged() -> None:
    rows = [event("a"), b"text", b"{bad"]
    for function in (lambda rows: rows, functions.backwards):
        assert fates_by_offset(function, *rows) == {0: EVENT, 1: ("message", None), 2: ("quarantine", "bad_json")}


def test_dropped_row_keeps_only_its_origin() -> None:
    _, parts = apply(functions.drop_debug, event("a"), event("b", "debug"), event("c"))
    rows_by_kind = {str(kind): rows.to_pylist() for kind, rows in parts}
    assert [row["offset"] for row in rows_by_kind["event"]] == [0, 2]
    (row,) = rows_by_kind["dropped"]
    set_columns = {name for name, value in row.items() if value is not None}
    assert set_columns == {"topic", "offset", "timestamp", "received", "source", "bucket", "landed_at"}
    assert (row["topic"], row["offset"]) == ("t", 1)


def test_only_changed_rows_have_reason_redacted() -> None:
    hosted = b'{"type":"a","uuid":"u","timestamp":1,"host":"h"}'
    assert fates_by_offset(functions.without_host, event("a"), hosted, b"text") == {
        0: EVENT,
        1: REDACTED,
        2: ("message", None),
    }


def test_function_may_change_the_kind() -> None:
    assert fates_by_offset(functions.audit_to_messages, event("a", "audit"), event("b")) == {
        0: ("message", "redacted"),
        1: EVENT,
    }

    def quarantine_all(rows: pa.RecordBatch) -> pa.RecordBatch:
        kinds = replace_column(rows, "kind", pa.repeat("quarantine", rows.num_rows))
        return replace_column(kinds, "reason", pa.repeat("too_old", rows.num_rows))

    assert fates_by_offset(quarantine_all, event("a"), b"text") == {
        0: ("quarantine", "too_old"),
        1: ("quarantine", "too_old"),
    }


def test_failing_rows_are_quarantined_and_others_land() -> None:
    payloads = [event(f"u{n}") for n in range(9)]
    payloads[3] = payloads[7] = b'{"type":"bad","uuid":"b","timestamp":1,"host":"h"}'
    step, parts = apply(functions.fails_on_bad, *payloads)
    failed = [row for kind, rows in parts if kind == "quarantine" for row in rows.to_pylist()]
    assert {row["offset"]: row["reason"] for row in failed} == dict.fromkeys([3, 7], "transform_failed")
    assert [(row["payload"], row["uuid"], row["host"], row["data"]) for row in failed] == [
        (payloads[3], None, None, None)
    ] * 2
    assert sum(rows.num_rows for kind, rows in parts if kind == "event") == 7
    assert (step.failed, step.error) == (2, "RuntimeError: something bad")


def test_failing_function_is_called_at_most_twice_per_row() -> None:
    calls = 0

    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal calls
        calls += 1
        raise ValueError

    _, parts = apply(function, *(event(f"u{n}") for n in range(500)))
    assert [(kind, rows.num_rows) for kind, rows in parts] == [("quarantine", 500)]
    assert calls < 1000


def changing(name: str, value: Any) -> Function:
    return lambda rows: replace_column(rows, name, pa.array([value] * rows.num_rows, rows.schema.field(name).type))


WRONG: dict[str, tuple[Function, str]] = {
    "nothing": (lambda rows: None, "it returned NoneType"),
    "a table": (lambda rows: pa.Table.from_batches([rows]), "it returned Table"),
    "a column less": (lambda rows: rows.drop_columns(["host"]), "missing host"),
    "a column more": (lambda rows: rows.append_column("x", rows["host"]), "more x"),
    "another type": (lambda rows: rows.set_column(2, "offset", rows["offset"].cast(pa.int32())), "another type offset"),
    "another order": (lambda rows: rows.select(rows.schema.names[::-1]), "in another order"),
    "rows twice": (lambda rows: rows.take(pa.array([0, 0])), "twice"),
    "foreign rows": (changing("offset", 77), "was not given"),
    "another topic": (changing("topic", "other"), "was not given"),
    "another uuid": (changing("uuid", "other"), "it changed uuid"),
    "no uuid": (changing("uuid", None), "it changed uuid"),
    "another time": (changing("received", None), "it changed received"),
    "a kind that is none": (changing("kind", "dropped"), "kind is not one of"),
    "no kind": (changing("kind", None), "kind is not one of"),
    "no type": (changing("type", None), "an event needs"),
    "a bad type": (changing("type", "a\nb"), "an event needs"),
    "a long type": (changing("type", "t" * 81), "an event needs"),
    "no reason": (changing("kind", "quarantine"), "needs a reason"),
    "a time beyond all years": (changing("event_time", 1 << 60), "years"),
    "no UTF-8": (
        lambda rows: replace_column(rows, "host", pa.array([b"\xff"] * rows.num_rows, pa.binary()).view(pa.string())),
        "UTF8",
    ),
    "an error": (lambda rows: rows["nowhere"], "KeyError"),
    "an end": (lambda rows: sys.exit(3), "SystemExit: 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_output_quarantines_rows(case: str) -> None:
    function, text = WRONG[case]
    step, parts = apply(function, event("a"), event("b"))
    assert {row["offset"]: (str(k), row["reason"]) for k, rows in parts for row in rows.to_pylist()} == {
        0: FAILED,
        1: FAILED,
    }
    assert text in step.error
    assert step.failed == 2


def test_message_without_uuid_cannot_become_event() -> None:
    assert fates_by_offset(changing("kind", "event"), b"text") == {0: FAILED}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["keep", "drop", "change", "fail"]), max_size=20), st.randoms())
def test_each_row_has_one_fate(fates: list[str], random_source: Any) -> None:
    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        fates_of_rows = [fates[offset] for offset in rows["offset"].to_pylist()]
        if "fail" in fates_of_rows:
            raise ValueError
        hosts = pa.array(["new" if fate == "change" else None for fate in fates_of_rows], pa.string())
        indices = [row for row, fate in enumerate(fates_of_rows) if fate != "drop"]
        random_source.shuffle(indices)
        return replace_column(rows, "host", hosts).take(pa.array(indices, pa.int64()))

    fate_of = {"keep": EVENT, "drop": DROPPED, "change": REDACTED, "fail": FAILED}
    assert fates_by_offset(function, *(event(f"u{n}") for n in range(len(fates)))) == {
        offset: fate_of[fate] for offset, fate in enumerate(fates)
    }


def test_rows_of_partitions_are_kept_apart() -> None:
    parts = [source([(5, event("a"))], partition=number, topic=topic).rows for number in (0, 1) for topic in "st"]
    rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    ((kind, given_rows),) = table_rows(rows, Rules(), AT)
    step = CheckedFunction("hook", lambda rows: rows.take(pa.array([3, 0])))
    origins = {
        str(k): [(r["topic"], r["partition"]) for r in out.to_pylist()] for k, out in step.apply(kind, given_rows)
    }
    assert origins == {"event": [("t", 1), ("s", 0)], "dropped": [("t", 0), ("s", 1)]}
    assert pc.all(pc.is_valid(given_rows["uuid"])).as_py()
