"""Fields that are slices of texts are the fields that DuckDB extracts."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows.engine import compute
from penstock.landing.typed.column_types import Column, Rule
from penstock.landing.typed.evaluation import Evaluation, evaluate_all, rests
from penstock.landing.typed.shapes import MIN_ROWS, ShapedRows, shaped_rows

COLUMNS = (
    Column("a", "int", "a", default="7"),
    Column("id", "string", "user.id", required=True),
    Column("zip", "bigint", "user.address.zip"),
    Column("price", "decimal(30,10)", "price", rules=(Rule("max", ('"100"',)),)),
    Column("tags", "array<string>", "tags"),
    Column("place", "struct<x:int,y:string>", "place"),
    Column("raw", "json", "raw"),
    Column("at", "timestamp", "at"),
    Column("zero", "double", '"0"'),
    Column("é", "boolean", "é"),
)
TABLES = (COLUMNS, COLUMNS[:3], (Column("raw", "json", "raw"), Column("user", "json", "user")), ())
NUMBERS = ("0", "-0", "7", "-12", "1.5", "1.50", "-0.5", "0.0001", "1e5", "0.00000001", "1e400", "12345678901234567.25")
STRINGS = (
    "",
    "x",
    "é",
    "a:b",
    "null",
    "{",
    "12345678901234567890",
    "2026-01-31T14:00:00Z",
    "\\n",
    "\\u0041",
    "\x7f",
    '\\"',
)
SCALARS = st.sampled_from([*NUMBERS, *(f'"{text}"' for text in STRINGS), "true", "false", "null"])
KEYS = st.sampled_from(
    ["a", "user", "id", "address", "zip", "price", "tags", "place", "x", "y", "raw", "at", "0", "é", ""]
)


def _object(members: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{key}":{text}' for key, text in members) + "}"


TEXTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda texts: f"[{','.join(texts)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=5).map(_object)
    ),
    max_leaves=12,
)
FITTING = st.tuples(
    *(
        st.sampled_from(texts)
        for texts in (
            ["5", "-1", "null", '"x"', "1e1"],
            ['{"id":"u","address":{"zip":1}}', '{"id":"é","address":{"zip":22,"street":"s"}}', '{"id":5}', "{}"],
            ["1.25", '"99.5"', "100.5", "12345678901234567.25", "1.50"],
            ['["a","b"]', '["a","c"]', "[]", "[1]", "[1,2]"],
            ['{"x":1,"y":"t"}', '{"x":1}', '{"x":1,"z":2}', "null"],
            ['"2026-01-31T14:00:00Z"', '"2026-02-30T14:00:00Z"', "0.1"],
            ["1", "2.5", '"more"', '{"deep":[1,{"k":"v"}]}'],
        )
    )
).map(lambda t: _object(list(zip(("a", "user", "price", "tags", "place", "at", "other"), t, strict=True))))
"""Events that have the fields of the columns, which often fit."""
BROKEN = st.sampled_from(
    ["{", '{"a":', '{"a":1,}', '{"a":NaN}', '{"a":tru}', '{"a":01}', '{"a":"\n"}', "[1]", '"a"', ""]
)


def _as_text(evaluation: Evaluation) -> dict[str, str]:
    return {name: repr(column.to_pylist()) for name, column in evaluation.values().items()}


def _assert_same_as_duckdb(tables: tuple[tuple[Column, ...], ...], data: list[pa.Array[pa.StringScalar]]) -> None:
    together = evaluate_all(tables, data)
    for columns, part, evaluation, rest in zip(tables, data, together, rests(together), strict=True):
        alone = Evaluation(columns, part)
        assert rest.to_pylist() == alone.rest().to_pylist()
        # As text: not a number equals itself, and minus zero differs from zero.
        assert _as_text(evaluation) == _as_text(alone)
        assert [mask.tolist() for _, mask in evaluation.judge()] == [mask.tolist() for _, mask in alone.judge()]
        assert evaluation.violations("t") == alone.violations("t")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(FITTING, FITTING, TEXTS, BROKEN, st.none()), min_size=1, max_size=8),
    st.lists(SCALARS, min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_columns_and_rest_are_those_of_duckdb(texts: list[str | None], scalars: list[str], random: object) -> None:
    # Rows of the same shapes with other values, in any order.
    rows = [_with_scalars(text, scalars, n) for n in range(2 * MIN_ROWS) for text in texts]
    getattr(random, "shuffle")(rows)  # noqa: B009  typed as object by the strategy
    data = pa.array(rows, pa.string())
    # A slice of an array has offsets that do not begin at 0.
    _assert_same_as_duckdb(TABLES, [data, data.slice(3), data, data.slice(1, 4)])


@pytest.mark.parametrize("limit", [1, 1_000, 6_000])
def test_texts_of_tables_that_do_not_fit_into_one_array_are_joined_in_groups(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.landing.typed.evaluation.MAX_JOINED_BYTES", limit)
    texts = [f'{{"a":{n},"user":{{"id":"u{n}","x":"\\n"}},"price":"{n}.5","more":true}}' for n in range(MIN_ROWS)]
    data = pa.array([*texts, *(f'{{"a":{n},"at":"x"}}' for n in range(MIN_ROWS))])
    _assert_same_as_duckdb(TABLES, [data, data.slice(3), data.slice(0, 0), data])


def _with_scalars(text: str | None, scalars: list[str], start: int) -> str | None:
    """Return a text whose values, but not keys, are replaced by other ones; each third one stays."""
    if text is None or start % 4 == 0:
        return text
    numbers = iter(range(start, 10_000))

    def replaced(token: re.Match[str]) -> str:
        n = next(numbers)
        return token[0] if token[0].endswith(":") or n % 3 else scalars[n % len(scalars)]

    return re.sub(r'"(?:[^"\\]|\\.)*":?|[-0-9tfn][^,\]}]*', replaced, text)


@pytest.mark.parametrize("text", NUMBERS)
def test_slice_of_a_number_is_what_duckdb_writes(text: str) -> None:
    (extracted,) = compute({"text": "json_extract(data, '/v')"}, data=pa.array([f'{{"v":{text}}}']))["text"].to_pylist()
    groups = shaped_rows(pa.array([f'{{"v":{text}}}'] * MIN_ROWS))
    assert [group.text(("v",)).to_pylist() for group in groups] in ([], [[extracted] * MIN_ROWS])


def _shaped(*texts: str) -> list[ShapedRows]:
    return shaped_rows(pa.array([text for _ in range(MIN_ROWS) for text in texts]))


def test_rows_of_one_shape_are_found_among_others() -> None:
    first, second = _shaped('{"a":1,"b":{"c":"x"}}', '{"a":22,"b":{"c":""}}', '{"a":"y"}', '{"a":"\\n"}')
    assert first.rows.tolist()[:4] == [0, 1, 4, 5]
    assert first.text(("a",)).to_pylist()[:2] == ["1", "22"]
    assert first.text(("b",)).to_pylist()[:2] == ['{"c":"x"}', '{"c":""}']
    assert first.text(("b", "c")).to_pylist()[:2] == ['"x"', '""']
    assert first.without(["a"]).to_pylist()[:2] == ['{"b":{"c":"x"}}', '{"b":{"c":""}}']
    assert second.text(("a",)).to_pylist() == ['"y"'] * MIN_ROWS


def test_members_around_removed_ones_are_the_rest() -> None:
    (group,) = _shaped('{"a":1,"b":"x","c":[true,"y"],"d":{},"e":null}')
    assert group.without(["b", "d"]).to_pylist()[0] == '{"a":1,"c":[true,"y"],"e":null}'


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a": 1}',
        '{"a":"\\n"}',
        '{"a":1e5}',
        '{"a":1.50}',
        '{"a":01}',
        '{"a":tru}',
        '{"a":1,}',
        '{"a":"\t"}',
        '{"a":[1,2]}',
        '{"":1}',
        "[1]",
        "{",
    ],
)
def test_text_that_duckdb_may_write_otherwise_has_no_shape(text: str) -> None:
    assert _shaped(text) == []


def test_closing_bracket_in_a_value_is_not_part_of_the_shape() -> None:
    texts = [json.dumps({"a": {"b": n}, "c": "}"}, separators=(",", ":")) for n in range(MIN_ROWS)]
    # Not one JSON value, though the bytes around the number are the same.
    (group,) = shaped_rows(pa.array([*texts, '{"a":{"b":5},"x":{"b":6},"c":"}"}', '{"a":{"b":}},"c":"}"}']))
    assert len(group.rows) == MIN_ROWS
