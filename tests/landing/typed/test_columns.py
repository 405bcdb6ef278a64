"""Values that a column holds, and the rest."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.syntax.json_path import format_path
from penstock.landing.rows.type_schemas import meets_schema
from penstock.landing.typed.column_types import TYPES, Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.evaluation import Evaluation, evaluate_all, rests


def values(kind: str, *texts: str) -> list[tuple[Any, str | None]]:
    """Return the value in the column and the rest, for each JSON value."""
    table = TypedTable("t", "t", (Column("v", kind, "v"),))
    columns = table.compute(pa.array([f'{{"v":{text}}}' for text in texts]))
    return list(zip(columns["v"].to_pylist(), columns["rest"].to_pylist(), strict=True))


def fitting_values(kind: str, *texts: str) -> list[Any]:
    """Return values of the column; null values are in the rest unchanged."""
    pairs = values(kind, *texts)
    assert all((value is None) == (rest is not None) for value, rest in pairs)
    return [value for value, _ in pairs]


def test_column_holds_values_of_its_type() -> None:
    assert fitting_values("string", '"a\\u00e9\\n"', '""', "1", "[]") == ["aé\n", "", None, None]
    assert fitting_values("boolean", "true", "false", '"true"', "1") == [True, False, None, None]
    assert fitting_values("int", "0", "-2147483648", "2147483648", "1.0", '"1"') == [0, -(1 << 31), None, None, None]
    assert fitting_values("bigint", "9223372036854775807", "9223372036854775808", "1e3") == [(1 << 63) - 1, None, None]
    assert fitting_values("double", "1", "-0.5", "1e300", "1e400", '"1"') == [1.0, -0.5, 1e300, None, None]
    assert fitting_values("date", '"2026-02-28"', '"2026-02-30"', '"0000-01-01"', '"2026-2-1"') == [
        date(2026, 2, 28),
        *[None] * 3,
    ]
    assert fitting_values("json", "[1,{}]", '"a"', "1", "false") == ["[1,{}]", '"a"', "1", "false"]


def test_timestamp_needs_zone_and_plausible_year() -> None:
    texts = ["2026-01-01T00:00:00.123456Z", "2026-01-01T05:30:00+05:30", "9999-12-31T23:59:59.999999Z"]
    first = datetime(2026, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    assert fitting_values("timestamp", *map(json.dumps, texts)) == [first.replace(microsecond=123456), first, last]
    # Zeros say nothing; other digits beyond microseconds would be lost.
    nines = ["2026-01-01T00:00:00.123456000Z", "2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.123456789Z"]
    assert fitting_values("timestamp", *map(json.dumps, nines)) == [first.replace(microsecond=123456), None, None]
    others = ["2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "0001-01-01T00:00:00+05:00", "now", "2026-02-30T00:00:00Z"]
    assert fitting_values("timestamp", *map(json.dumps, others), "1770000000000") == [None] * 6


def test_decimal_holds_numbers_and_texts_exactly() -> None:
    texts = ("12.5", '"12.50"', "-0.05", "12.345", '"12.345"', "123456789", '"1e2"', '" 1"', "true", "[1]")
    exact = [Decimal("12.50"), Decimal("12.50"), Decimal("-0.05")]
    assert fitting_values("decimal(10,2)", *texts) == [*exact, None, None, None, None, None, None, None]
    assert fitting_values("decimal(2,2)", "0.25", '"-0.25"', "1.25") == [Decimal("0.25"), Decimal("-0.25"), None]
    digits = "1234567890" * 3 + "12345678"
    assert fitting_values("decimal(38,0)", f'"{digits}"', "9007199254740993") == [Decimal(digits), Decimal(2**53 + 1)]


def test_decimal_holds_small_numbers_exactly() -> None:
    texts = ("0.00000001", "0.00000015", "-0.000000120", "1.5e-7", "9E-9", "0.1234567e-1", "0e-9")
    assert fitting_values("decimal(16,9)", *texts) == [Decimal(text) for text in texts]
    assert fitting_values("decimal(38,10)", *texts) == [Decimal(text) for text in texts]
    fifteen = ("1.23456789012345e-7", "-9.99999999999999E-7", "123456789012345e-30", "1.23456789012345e-24")
    assert fitting_values("decimal(38,38)", *fifteen) == [Decimal(text) for text in fifteen]
    small = [Decimal("1e-8"), Decimal("-4.2e-8"), None]
    assert fitting_values("decimal(9,9)", "0.00000001", "-4.2E-8", "1e-10") == small
    assert fitting_values("decimal(38,30)", "7864110769695269e-20", "-7864110769695269E-11") == [None, None]
    assert fitting_values("decimal(16,15)", "0.000001407122351") == [Decimal("0.000001407122351")]
    assert fitting_values("decimal(16,8)", "0.000000015", "0.00000000", "1e-9", '"1e-8"') == [
        None,
        Decimal(0),
        None,
        None,
    ]
    assert fitting_values("array<decimal(16,8)>", "[0.00000001,1]") == [[Decimal("0.00000001"), Decimal(1)]]


def test_decimal_has_all_digits_of_long_numbers() -> None:
    texts = ("0.10000000000000000001", "123456789012345678.12345678901234567890", "-" + "9" * 18 + "." + "9" * 20)
    assert fitting_values("decimal(38,20)", *texts) == [Decimal(text) for text in texts]
    assert fitting_values("decimal(38,0)", "1" * 38, "-" + "9" * 38, "1" * 39) == [
        Decimal("1" * 38),
        Decimal("-" + "9" * 38),
        None,
    ]
    assert fitting_values("decimal(4,2)", "1.500000000000000000000", '"2.500"', "1.500000000000000000001") == [
        Decimal("1.50"),
        Decimal("2.50"),
        None,
    ]
    assert fitting_values("array<decimal(38,20)>", f"[{texts[0]},1,null]", f"[{texts[0]},true]") == [
        [Decimal(texts[0]), Decimal(1), None],
        None,
    ]


def test_long_numbers_beside_other_texts_lose_no_digit() -> None:
    number = "12345678901234567.89"
    columns = (Column("text", "string", "text"), Column("v", "decimal(38,2)", "v"), Column("all", "json", "all"))
    texts = [
        f'{{"text":":{number},","v":{number}}}',
        f'{{"text":"\\"{number}\\\\","v":{number},"more":[{number},"{number}"]}}',
        f'{{"all":{{"x":{number},"y":"{number}"}},"n":{number}}}',
        f'{{"text":{number}}}',
        f'{{"text":"\ue000{number}","v":1.5,"n":"x"}}',
        f'{{"v":"\ue0001.5","n":{number[:-3]}}}',
        f'{{"text":"\ue000","v":{number}}}',
    ]
    computed = TypedTable("t", "t", columns).compute(pa.array(texts))
    assert computed["text"].to_pylist()[:3] == [f":{number},", f'"{number}\\', None]
    assert computed["v"].to_pylist()[:2] == [Decimal(number)] * 2
    assert computed["all"].to_pylist()[2] == f'{{"x":{number},"y":"{number}"}}'
    assert computed["rest"].to_pylist()[:4] == [
        None,
        f'{{"more":[{number},"{number}"]}}',
        f'{{"n":{number}}}',
        texts[3],
    ]
    # Texts with the mark of long numbers in front of a digit are read as they are.
    assert computed["text"].to_pylist()[4] == f"\ue000{number}"
    assert computed["v"].to_pylist()[4:] == [Decimal("1.5"), None, Decimal(number)]
    assert computed["rest"].to_pylist()[5:] == [texts[5], None]


def test_long_numbers_with_exponent_lose_no_digit() -> None:
    number = "1.2345678901234567890123e10"
    assert values("json", number, f'{{"a":[{number}]}}') == [(number, None), (f'{{"a":[{number}]}}', None)]
    assert values("decimal(30,2)", number) == [(None, f'{{"v":{number}}}')]
    assert values("int", f'1,"more":{number}') == [(1, f'{{"more":{number}}}')]


def test_double_is_the_nearest_to_a_number() -> None:
    assert values("double", "9007199254740993", "1.2345678901234567890123e10") == [
        (9007199254740992.0, None),
        (12345678901.234568, None),
    ]


def test_array_holds_items_that_all_fit() -> None:
    texts = ('["a",null]', "[]", '["a",1]', '"a"', '{"0":"a"}')
    assert fitting_values("array<string>", *texts) == [["a", None], [], None, None, None]
    assert fitting_values("array<int>", "[1,-2]", "[1.5]", '["1"]', "[[1]]") == [[1, -2], None, None, None]
    assert fitting_values("array<decimal(4,1)>", '[1.5,"2"]') == [[Decimal("1.5"), Decimal("2.0")]]
    assert fitting_values("array<json>", '[{"a":1},[2]]') == [['{"a":1}', "[2]"]]


ITEMS = "array<struct<sku:string,qty:int,price:decimal(30,10),tags:array<string>>>"
ITEM = dict.fromkeys(("sku", "qty", "price", "tags"))
LONG = "12345678901234567890.12"


def test_array_of_structs_holds_objects_without_other_fields() -> None:
    texts = (
        f'[{{"sku":"a","qty":1,"price":{LONG},"tags":["x"]}},{{"sku":null}},null,{{}}]',
        '[{"sku":"a","more":1}]',
        f'[{{"sku":{LONG}}}]',
        '[{"sku":"a","sku":"b"}]',
        "[1]",
        '{"sku":"a"}',
    )
    first = {"sku": "a", "qty": 1, "price": Decimal(LONG), "tags": ["x"]}
    assert fitting_values(ITEMS, *texts) == [[first, ITEM, None, ITEM], *[None] * 5]


USER = "struct<id:string,n:decimal(38,2),home:struct<zip:string>>"
NO_USER = {"id": None, "n": None, "home": None}
HOMELESS = {**NO_USER, "home": {"zip": None}}


@pytest.mark.parametrize(
    ("text", "user", "rest", "fits"),
    [
        (
            f'{{"id":"u","n":{LONG},"home":{{"zip":"1"}}}}',
            {"id": "u", "n": Decimal(LONG), "home": {"zip": "1"}},
            None,
            True,
        ),
        ('{"id":"u","n":"x"}', {**NO_USER, "id": "u"}, '{"v":{"n":"x"}}', False),
        ('{"id":"u","more":1}', {**NO_USER, "id": "u"}, '{"v":{"more":1}}', True),
        ("{}", NO_USER, None, True),
        ('{"home":{}}', HOMELESS, None, True),
        ('{"home":null}', NO_USER, None, True),
        ("null", None, None, True),
        ('"bob"', None, '{"v":"bob"}', False),
        ("[]", None, '{"v":[]}', False),
        (
            f'{{"home":{{"zip":{LONG}}}}}',
            HOMELESS,
            f'{{"v":{{"home":{{"zip":{LONG}}}}}}}',
            False,
        ),
    ],
)
def test_column_of_structs_loses_nothing(text: str, user: Any, rest: str | None, fits: bool) -> None:
    assert values(USER, text) == [(user, rest)]
    table = TypedTable("t", "t", (Column("v", USER, "v"),))
    assert meets_schema(pa.array([f'{{"v":{text}}}']), table).tolist() == [fits]


def test_default_is_the_value_of_a_missing_field() -> None:
    columns = (Column("c", "string", "user.c", default='"none"'), Column("d", "decimal(5,2)", "d", default='"1.50"'))
    texts = ['{"user":{"c":"x"},"d":2}', '{"user":{"c":null}}', "{}", '{"user":{"c":1},"d":"x"}', "null"]
    computed = TypedTable("t", "t", columns).compute(pa.array(texts))
    assert computed["c"].to_pylist() == ["x", "none", "none", None, "none"]
    assert computed["d"].to_pylist() == [2, Decimal("1.50"), Decimal("1.50"), None, Decimal("1.50")]
    assert computed["rest"].to_pylist() == [None, None, None, '{"user":{"c":1},"d":"x"}', "null"]


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_null_and_missing_field_fit(kind: str) -> None:
    assert values(kind, "null") == [(None, None)]
    assert TypedTable("t", "t", (Column("v", kind, "v"),)).compute(pa.array(["{}"]))["rest"].to_pylist() == [None]


COLUMNS = (
    Column("data", "string", "data"),
    Column("fields", "int", "fields"),
    Column("odd", "string", r'"a/b~\"c.d e"'),
)


def test_rest_has_other_values_and_fields_without_column() -> None:
    texts = [
        '"text"',
        "[1]",
        "null",
        None,
        '{"data":"x","fields":1,"more":{"x":null},"n":123456789012345678901234567890}',
    ]
    columns = TypedTable("t", "t", COLUMNS).compute(pa.array(texts, pa.string()))
    assert columns["rest"].to_pylist() == [*texts[:4], '{"more":{"x":null},"n":123456789012345678901234567890}']
    assert (columns["data"].to_pylist()[4], columns["fields"].to_pylist()[4]) == ("x", 1)
    assert TypedTable("t", "t").compute(pa.array(['{"a":1}', "{}"]))["rest"].to_pylist() == ['{"a":1}', None]


def test_first_of_repeated_fields_is_used_and_rest_has_all() -> None:
    texts = ['{"a/b~\\"c.d e":"x"}', '{"fields":1,"fields":"two"}', '{"fields":"one","\\u0066ields":2,"x":1}']
    columns = TypedTable("t", "t", COLUMNS).compute(pa.array(texts))
    assert columns["odd"].to_pylist() == ["x", None, None]
    assert columns["fields"].to_pylist() == [None, 1, None]
    assert columns["rest"].to_pylist() == [None, *texts[1:]]


def test_broken_json_is_in_the_rest() -> None:
    columns = TypedTable("t", "t", COLUMNS).compute(pa.array(['{"data":"x"', "{}", '{"fields":2}']))
    assert columns["rest"].to_pylist() == ['{"data":"x"', None, None]
    assert columns["fields"].to_pylist() == [None, None, 2]


NESTED = (
    Column("id", "string", "user.id"),
    Column("number", "int", "user.number"),
    Column("zip", "string", "user.home.zip"),
    Column("plain", "int", "plain"),
)


@pytest.mark.parametrize(
    ("text", "id_", "zip_", "rest"),
    [
        ('{"user":{"id":"u"}}', "u", None, None),
        ('{"user":{"id":"u","home":{"zip":"1"}},"plain":1}', "u", "1", None),
        ('{"user":{"id":"u","home":{"zip":"1","city":"b"}}}', "u", "1", '{"user":{"home":{"city":"b"}}}'),
        ('{"user":{"id":5,"home":{"zip":"1"}}}', None, "1", '{"user":{"id":5}}'),
        ('{"user":{"id":"u","name":null},"more":[1]}', "u", None, '{"more":[1],"user":{"name":null}}'),
        ('{"user":"bob"}', None, None, '{"user":"bob"}'),
        ('{"user":"bob","plain":1}', None, None, '{"user":"bob"}'),
        ('{"user":[{"id":"u"}]}', None, None, '{"user":[{"id":"u"}]}'),
        ('{"user":{}}', None, None, '{"user":{}}'),
        ('{"user":{"home":{}}}', None, None, '{"user":{"home":{}}}'),
        ('{"user":null}', None, None, '{"user":null}'),
        ('{"user":{"id":null}}', None, None, None),
        ('{"user.id":"u"}', None, None, '{"user.id":"u"}'),
    ],
)
def test_column_of_a_nested_field_loses_nothing(text: str, id_: str | None, zip_: str | None, rest: str | None) -> None:
    columns = TypedTable("t", "t", NESTED).compute(pa.array([text]))
    assert [columns[name].to_pylist()[0] for name in ("id", "zip", "rest")] == [id_, zip_, rest]


def test_path_has_no_elements_of_lists() -> None:
    columns = (Column("a", "int", "v.0"), Column("b", "int", "v.0.x"), Column("c", "int", "w"))
    texts = ['{"v":[1]}', '{"v":{"0":1}}', '{"v":[{"x":1}]}', '{"v":{"0":{"x":1}},"w":2}']
    computed = TypedTable("t", "t", columns).compute(pa.array(texts))
    assert computed["a"].to_pylist() == [None, 1, None, None]
    assert computed["b"].to_pylist() == [None, None, None, 1]
    assert computed["rest"].to_pylist() == [texts[0], None, texts[2], None]


def test_two_columns_of_one_field_do_not_hide_another() -> None:
    columns = (Column("a", "int", "x"), Column("b", "bigint", "x"), Column("c", "json", "y"), Column("d", "int", "y.z"))
    texts = ['{"x":1,"more":2}', '{"y":{"z":1,"u":2},"more":1}', '{"y":{"z":1}}']
    computed = TypedTable("t", "t", columns).compute(pa.array(texts))
    assert computed["rest"].to_pylist() == ['{"more":2}', '{"more":1}', None]
    assert [computed[name].to_pylist() for name in "cd"] == [[None, '{"z":1,"u":2}', '{"z":1}'], [None, 1, 1]]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ALL_TYPES = tuple(Column(f"v_{kind}", kind, kind) for kind in TYPES)


@given(st.lists(st.dictionaries(st.sampled_from([*TYPES, "other", "é"]), JSON), min_size=1, max_size=5))
def test_columns_and_rest_have_all_of_data(objects: list[dict[str, Any]]) -> None:
    table = TypedTable("t", "t", ALL_TYPES)
    texts = pa.array([json.dumps(given_data, separators=(",", ":")) for given_data in objects])
    columns = table.compute(texts)
    fits = meets_schema(texts, table).tolist()
    for row, given_object in enumerate(objects):
        rest = json.loads(columns["rest"][row].as_py() or "{}")
        typed = {kind: _to_json_value(kind, columns[f"v_{kind}"][row].as_py()) for kind in TYPES}
        combined = {**{kind: value for kind, value in typed.items() if value is not None}, **rest}
        expected = {name: value for name, value in given_object.items() if value is not None or name not in TYPES}
        assert _normalize(combined) == _normalize(expected)
        assert fits[row] == (not rest.keys() & TYPES.keys())


def _to_json_value(kind: str, value: Any) -> Any:
    if value is None:
        return None
    return json.loads(value) if kind == "json" else str(value) if kind == "date" else value


def _normalize(value: Any) -> Any:
    """Return numbers as doubles, the precision that readers of JSON promise."""
    if isinstance(value, dict):
        return {name: _normalize(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_normalize(element) for element in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return value if abs(value) < 1 << 53 else math.copysign(round(math.log2(abs(value)), 9), value)


KEYS = ("a", "b.c", '"', "0", "é")
"""Keys of objects in the property test: plain, with a dot, with a quote, like an index, beyond ASCII."""
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "\\"])
OBJECTS = st.recursive(
    LEAVES | st.lists(LEAVES | st.dictionaries(st.sampled_from(KEYS), LEAVES, max_size=2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(tuple)


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), OBJECTS, max_size=4), min_size=1, max_size=4),
    st.lists(st.tuples(PATHS, st.sampled_from(["string", "int", "json"])), max_size=5),
)
def test_nested_columns_and_rest_are_as_plain_python_says(
    objects: list[dict[str, Any]], chosen: list[tuple[tuple[str, ...], str]]
) -> None:
    columns = tuple(Column(f"c{n}", kind, format_path(path)) for n, (path, kind) in enumerate(chosen))
    texts = pa.array([json.dumps(document, separators=(",", ":")) for document in objects])
    table = TypedTable("t", "t", columns)
    computed = table.compute(texts)
    fits = meets_schema(texts, table).tolist()
    for row, document in enumerate(objects):
        values = [_plain_lookup(document, path) for path, _ in chosen]
        held = [_is_held(kind, value) for (_, kind), value in zip(chosen, values, strict=True)]
        for (_, kind), value, column, is_held in zip(chosen, values, columns, held, strict=True):
            cell = computed[column.name][row].as_py()
            assert (json.loads(cell) if kind == "json" and cell else cell) == (value if is_held else None)
        taken = {
            path for (path, _), value, is_held in zip(chosen, values, held, strict=True) if is_held or value is None
        }
        rest = computed["rest"][row].as_py()
        assert json.loads(rest or "{}") == _plain_rest(document, (), taken)
        assert fits[row] == all(is_held or value in (None, ABSENT) for value, is_held in zip(values, held, strict=True))


MEMBERS = st.recursive(
    LEAVES.map(json.dumps),
    lambda inner: st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=4).map(
        lambda members: "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in members) + "}"
    ),
    max_leaves=12,
).filter(lambda text: text.startswith("{"))
"""Objects in which keys may occur twice."""


@settings(max_examples=40)
@given(st.lists(MEMBERS, min_size=1, max_size=4), st.lists(PATHS, max_size=4))
def test_columns_and_rest_have_all_values_of_repeated_keys(texts: list[str], paths: list[tuple[str, ...]]) -> None:
    columns = tuple(Column(f"c{n}", "int", format_path(path)) for n, path in enumerate(paths))
    computed = TypedTable("t", "t", columns).compute(pa.array(texts))
    for row, text in enumerate(texts):
        values = [computed[column.name][row].as_py() for column in columns]
        fields = {(path, str(value)) for path, value in zip(paths, values, strict=True) if value is not None}
        rest = computed["rest"][row].as_py() or "{}"
        # Empty objects and nulls are in neither if a column has their field.
        sent, stored = Counter(_leaves_of(text)), Counter(_leaves_of(rest))
        missing = sent - stored
        assert {leaf for leaf in missing if leaf[1] != "null"} <= fields
        assert all(number == 1 for leaf, number in missing.items() if leaf[1] != "null")


def _leaves_of(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and JSON text of each value that is not an object; of repeated keys all."""

    def walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        if isinstance(value, _Members):
            for key, member in value:
                yield from walk(member, (*path, key))
        else:
            yield path, json.dumps(value)

    return walk(json.loads(text, object_pairs_hook=_Members), ())


class _Members(list[tuple[str, Any]]):
    """The members of an object."""


ABSENT = object()


def _plain_lookup(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return ABSENT
        document = document[key]
    return document


def _is_held(kind: str, value: Any) -> bool:
    if value is ABSENT or value is None:
        return False
    return kind == "json" or type(value) is {"string": str, "int": int}[kind]


def _plain_rest(document: dict[str, Any], path: tuple[str, ...], taken: set[tuple[str, ...]]) -> dict[str, Any]:
    rest = {}
    for key, value in document.items():
        inner = (*path, key)
        if inner in taken:
            continue
        if isinstance(value, dict) and value:
            remaining = _plain_rest(value, inner, taken)
            if remaining:
                rest[key] = remaining
        else:
            rest[key] = value
    return rest


TABLES_OF_COLUMNS: tuple[tuple[Column, ...], ...] = (
    (Column("a", "int", "a"), Column("b", "decimal(30,10)", "b")),
    (Column("x", "string", "a.x"), Column("s", "struct<y:int>", "b"), Column("l", "array<int>", "c")),
    (Column("c", "json", "c"),),
    (),
    (Column("zero", "int", '"0"'), Column("a", "bigint", "a"), Column("y", "int", "b.y")),
)
JSON_VALUES = st.sampled_from(
    [1, "1", None, True, [], [1, 2], {}, {"x": "t"}, {"y": 1}, {"x": 1, "y": 2}, 1.5, 12345678901234567890.5]
)
JSON_TEXTS = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c", "0", "other"]), JSON_VALUES).map(json.dumps),
    st.sampled_from(
        ['{"a":1,"a":2}', '{"b":{"y":1,"y":2},"c":3}', "[1]", '"a"', "null", '{"a":12345678901234567890.25}']
    ),
    # What a transformation may leave.
    st.sampled_from(["{", '{"a":', ""]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(JSON_TEXTS, max_size=6), min_size=5, max_size=5))
def test_tables_evaluated_together_have_the_columns_of_each_alone(texts: list[list[str]]) -> None:
    data = [pa.array(of_table, pa.string()) for of_table in texts]
    together = evaluate_all(TABLES_OF_COLUMNS, data)
    for columns, part, evaluation, rest in zip(TABLES_OF_COLUMNS, data, together, rests(together), strict=True):
        alone = Evaluation(columns, part)
        assert rest.equals(alone.rest())
        assert evaluation.values() == alone.values()
        assert [mask.tolist() for _, mask in evaluation.judge()] == [mask.tolist() for _, mask in alone.judge()]
