"""What a function may do with rows, and what becomes of rows it fails on."""

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
from tests.landing.transform.functions import put
from tests.landing.writing.messages import AT, event, source

Function = Callable[[pa.RecordBatch], Any]
Made = dict[int, tuple[str, str | None]]


def apply(function: Function, *payloads: bytes) -> tuple[CheckedFunction, list[tuple[MessageKind, pa.RecordBatch]]]:
    step = CheckedFunction("hook", function)
    rows = table_rows(source(enumerate(payloads)).rows, Rules(), AT)
    return step, [one for kind, part in rows for one in step.apply(kind, part)]


def made(function: Function, *payloads: bytes) -> Made:
    """By offset the kind and the reason; each offset is there once."""
    _, parts = apply(function, *payloads)
    assert all(rows.schema.equals(FILE_SCHEMA) and rows.num_rows for _, rows in parts)
    found = [(row["offset"], (str(kind), row["reason"])) for kind, rows in parts for row in rows.to_pylist()]
    assert len(dict(found)) == len(found)
    return dict(found)


EVENT, REDACTED, DROPPED = ("event", None), ("event", "redacted"), ("dropped", None)
FAILED = ("quarantine", "transform_failed")


def test_what_is_given_back_as_it_came_lands_as_it_is() -> None:
    rows = [event("a"), b"text", b"{bad"]
    for function in (lambda rows: rows, functions.backwards):
        assert made(function, *rows) == {0: EVENT, 1: ("message", None), 2: ("quarantine", "bad_json")}


def test_a_dropped_row_leaves_its_place_and_nothing_of_its_content() -> None:
    _, parts = apply(functions.drop_debug, event("a"), event("b", "debug"), event("c"))
    found = {str(kind): rows.to_pylist() for kind, rows in parts}
    assert [row["offset"] for row in found["event"]] == [0, 2]
    (row,) = found["dropped"]
    known = {name for name, value in row.items() if value is not None}
    assert known == {"topic", "offset", "timestamp", "received", "source", "bucket", "landed_at"}
    assert (row["topic"], row["offset"]) == ("t", 1)


def test_what_is_changed_says_so_and_what_is_not_does_not() -> None:
    hosted = b'{"type":"a","uuid":"u","timestamp":1,"host":"h"}'
    assert made(functions.without_host, event("a"), hosted, b"text") == {0: EVENT, 1: REDACTED, 2: ("message", None)}


def test_a_row_may_get_another_kind() -> None:
    assert made(functions.audit_to_messages, event("a", "audit"), event("b")) == {0: ("message", "redacted"), 1: EVENT}

    def aside(rows: pa.RecordBatch) -> pa.RecordBatch:
        kinds = put(rows, "kind", pa.repeat("quarantine", rows.num_rows))
        return put(kinds, "reason", pa.repeat("too_old", rows.num_rows))

    assert made(aside, event("a"), b"text") == {0: ("quarantine", "too_old"), 1: ("quarantine", "too_old")}


def test_rows_that_a_function_fails_on_go_to_quarantine_with_their_payload_and_the_others_land() -> None:
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


def test_a_function_that_always_fails_is_asked_at_most_twice_for_each_row() -> None:
    asked = 0

    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal asked
        asked += 1
        raise ValueError

    _, parts = apply(function, *(event(f"u{n}") for n in range(500)))
    assert [(kind, rows.num_rows) for kind, rows in parts] == [("quarantine", 500)]
    assert asked < 1000


def changing(name: str, value: Any) -> Function:
    return lambda rows: put(rows, name, pa.array([value] * rows.num_rows, rows.schema.field(name).type))


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
        lambda rows: put(rows, "host", pa.array([b"\xff"] * rows.num_rows, pa.binary()).view(pa.string())),
        "UTF8",
    ),
    "an error": (lambda rows: rows["nowhere"], "KeyError"),
    "an end": (lambda rows: sys.exit(3), "SystemExit: 3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_function_may_not_do_is_an_error_on_its_rows_told_and_counted(what: str) -> None:
    function, text = WRONG[what]
    step, parts = apply(function, event("a"), event("b"))
    assert {row["offset"]: (str(k), row["reason"]) for k, rows in parts for row in rows.to_pylist()} == {
        0: FAILED,
        1: FAILED,
    }
    assert text in step.error
    assert step.failed == 2


def test_a_message_without_a_uuid_cannot_become_an_event() -> None:
    assert made(changing("kind", "event"), b"text") == {0: FAILED}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["keep", "drop", "change", "fail"]), max_size=20), st.randoms())
def test_each_row_comes_out_once_whatever_the_function_does_with_it(fates: list[str], chance: Any) -> None:
    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        mine = [fates[offset] for offset in rows["offset"].to_pylist()]
        if "fail" in mine:
            raise ValueError
        hosts = pa.array(["new" if fate == "change" else None for fate in mine], pa.string())
        kept = [row for row, fate in enumerate(mine) if fate != "drop"]
        chance.shuffle(kept)
        return put(rows, "host", hosts).take(pa.array(kept, pa.int64()))

    fate_of = {"keep": EVENT, "drop": DROPPED, "change": REDACTED, "fail": FAILED}
    assert made(function, *(event(f"u{n}") for n in range(len(fates)))) == {
        offset: fate_of[fate] for offset, fate in enumerate(fates)
    }


def test_rows_of_several_partitions_are_told_apart() -> None:
    parts = [source([(5, event("a"))], partition=number, topic=topic).rows for number in (0, 1) for topic in "st"]
    rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    ((kind, given_rows),) = table_rows(rows, Rules(), AT)
    step = CheckedFunction("hook", lambda rows: rows.take(pa.array([3, 0])))
    found = {str(k): [(r["topic"], r["partition"]) for r in out.to_pylist()] for k, out in step.apply(kind, given_rows)}
    assert found == {"event": [("t", 1), ("s", 0)], "dropped": [("t", 0), ("s", 1)]}
    assert pc.all(pc.is_valid(given_rows["uuid"])).as_py()
