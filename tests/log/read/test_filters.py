from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import records
from penstock.log.read.filter_syntax import MAX_CLAUSES, MAX_DEPTH, MAX_LENGTH
from penstock.log.read.filters import BadFilter, Filter, contains_text

Notes = dict[str, str]


def batch(rows: list[object]) -> pa.RecordBatch:
    """Return rows with annotations, each as a dict, a list of pairs or None."""
    pairs = [list(row.items()) if isinstance(row, dict) else row for row in rows]
    payloads = [b"%d" % number for number in range(len(rows))]
    return records.body(payloads, annotations=pa.array(pairs, records.ANNOTATIONS))


def matches(text: str, *rows: object) -> list[bool]:
    mask: list[bool] = Filter.parse(text).mask(batch(list(rows))).to_pylist()
    return mask


def bad(text: str) -> BadFilter:
    with pytest.raises(BadFilter) as caught:
        Filter.parse(text)
    assert caught.value.text == text
    assert 0 <= caught.value.position <= len(text)
    return caught.value


def test_filter_matches_key_and_value_of_an_annotation() -> None:
    rows = ({"userid": "vip-12"}, {"userid": "vip-"}, {"important": ""}, {"unimportant": "1"}, {}, None)
    assert matches(r"(k:userid v:vip\-[0-9]+) OR (k:important)", *rows) == [True, False, True, False, False, False]


def test_pattern_matches_whole_key_and_whole_value() -> None:
    assert matches("k:userid v:5", {"userid": "5"}, {"userid": "55"}, {"my userid": "5"}) == [True, False, False]
    assert matches("v:5|6", {"a": "5"}, {"a": "6"}, {"a": "56"}, {"a": "5\n"}) == [True, True, False, False]
    assert matches("v:5.*", {"a": "5"}, {"a": "55"}, {"a": "45"}) == [True, True, False]
    assert matches("v:a|b|", {"k": "a"}, {"k": ""}, {"k": "ab"}) == [True, True, False]


def test_clause_matches_a_single_annotation_and_joins_any_two() -> None:
    rows = ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}, {"b": "x", "a": "2"})
    assert matches("k:a v:2", *rows) == matches("v:2 k:a", *rows) == [False, True, True]
    assert matches("k:a AND v:2", *rows) == [True, True, True]


def test_precedence_is_not_then_and_then_or() -> None:
    rows = ({"a": ""}, {"b": ""}, {"c": ""}, {"a": "", "c": ""}, None)
    assert matches("k:a OR k:b AND k:c", *rows) == [True, False, False, True, False]
    assert matches("(k:a OR k:b) AND k:c", *rows) == [False, False, False, True, False]
    assert matches("NOT k:a AND k:c", *rows) == [False, False, True, False, False]
    assert matches("NOT (k:a AND k:c)", *rows) == [True, True, True, False, True]
    assert matches("NOT NOT k:a", *rows) == [True, False, False, True, False]
    assert matches("not(k:a)and k:c", *rows) == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("v:(a|b)c", "bc"),
        ("(v:(a|(b))c)", "bc"),
        ("(v:[)]+)", "))"),
        ("(v:[])]+)", ")]"),
        (r"(v:[\])]+)", ")]"),
        ("(v:[[:alpha:])]+)", "a)b"),
        (r"(v:\)\()", ")("),
        (r"(v:\Q).(\E.)", ").(x"),
        (r"v:\Qa.b", "a.b"),
        (r"v:\Qa\\E", "a\\"),
        (r"v:a\ b", "a b"),
        (r'v:"a b"', "a b"),
        (r'(v:"a\) b|c\)")', "c)"),
        (r'v:"say \"x\""', 'say "x"'),
        ('v:{"a":1}', '{"a":1}'),
        ('v:""', ""),
        (r"v:\x41\x{e4}", "Aä"),
        ("v:AND", "AND"),
        ("v:k:a", "k:a"),
        ("v:(?i)ABC", "aBc"),
        (r"v:\pL+", "ßñ"),
        ("v:..", "ß\U0001f600"),
    ],
)
def test_pattern_ends_at_space_or_unopened_bracket(text: str, value: str) -> None:
    assert matches(text, {"k": value}, {"k": value + "!"}) == [True, False]


def test_first_bracket_in_a_class_is_its_member() -> None:
    assert matches("(v:[^])a]+)", {"k": "xyz"}, {"k": "x)"}, {"k": "]"}) == [True, False, False]


def test_any_whitespace_separates_clauses() -> None:
    assert matches("\t(k:a\nOR\u00a0k:b )\r\n", {"a": ""}, {"b": ""}, {"c": ""}) == [True, True, False]


@pytest.mark.parametrize(
    ("text", "position", "message_part"),
    [
        ("", 0, "empty"),
        (" \n", 0, "empty"),
        ("userid", 0, "k: or v:"),
        ("k:a AND", 7, "k: or v:"),
        ("k:a OR OR k:b", 7, "k: or v:"),
        ("notk:a", 0, "k: or v:"),
        ("()", 1, "k: or v:"),
        ("k:", 2, "pattern"),
        ("k: a", 2, "pattern"),
        ("k:a k:b", 4, "a second k:"),
        ("k:a v:b k:c", 8, "a second k:"),
        ("k:a (k:b)", 4, "AND, OR or the end"),
        ("(k:a k)", 5, "AND, OR or )"),
        ("(k:a", 0, "not closed"),
        ("k:b OR ((k:a)", 7, "not closed"),
        ("k:a)", 3, "was not opened"),
        ('k:a v:"b', 6, "quotes are not closed"),
        ('v:"b"c', 5, "space is expected"),
        ("k:a OR v:b[c", 10, "missing ]"),
        ("v:a**", 3, "bad repetition"),
        (r"k:a\8", 3, "invalid escape"),
        ("v:(?=a)", 2, "invalid perl operator"),
        ('v:"a)|(b"', 3, "unexpected )"),
        ("v:a{1001}", 3, "invalid repetition size"),
        ("v:a\udc80", 3, "surrogate"),
    ],
)
def test_error_reports_position_of_the_fault(text: str, position: int, message_part: str) -> None:
    error = bad(text)
    assert error.position == position
    assert message_part in error.message
    assert str(error) == f"bad filter at character {position + 1}: {error.message}"
    excerpt, caret = error.pointed.rsplit("\n", 1)
    assert (excerpt, caret) == (re.sub(r"[\n\udc80]", " ", text), " " * position + "^")


def test_error_in_long_filter_shows_the_part_around_it() -> None:
    text = "k:a OR " * 40 + "here OR " + "k:b OR " * 40
    excerpt, caret = bad(text).pointed.split("\n")
    assert len(excerpt) == 120
    assert excerpt[caret.index("^") :].startswith("here")


def test_length_depth_and_cost_are_limited() -> None:
    assert matches("(" * (MAX_DEPTH - 1) + "k:a" + ")" * (MAX_DEPTH - 1), {"a": ""}) == [True]
    assert "nested" in bad("(" * 3000 + "k:a" + ")" * 3000).message
    assert "nested" in bad("NOT " * 3000 + "k:a").message
    assert matches(" OR ".join(["k:a"] * MAX_CLAUSES), {"a": ""}) == [True]
    assert f"more than {MAX_CLAUSES}" in bad(" OR ".join(["k:a"] * (MAX_CLAUSES + 1))).message
    assert "characters" in bad("k:" + "a" * MAX_LENGTH).message
    assert "the patterns are too large" in bad("v:((a{100}){100}){100}").message
    assert bad("v:((a{30}){40})").message == "invalid repetition size: {40} (RE2)"


def test_deep_filter_is_parsed_on_a_small_stack() -> None:
    masks: list[list[bool]] = []
    text = "NOT (" * (MAX_DEPTH // 2 - 1) + "k:a" + ")" * (MAX_DEPTH // 2 - 1)
    before = threading.stack_size(256 << 10)
    thread = threading.Thread(target=lambda: masks.append(matches(text, {"a": ""})))
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert masks == [[False]]


def test_slices_nulls_repeated_keys_and_empty_batches() -> None:
    rows: list[object] = [None, {"a": "1"}, [("a", "1"), ("a", "2")], {}, [("a", None)], {"b": "1"}]
    all_rows = batch(rows)
    for begin in range(len(rows) + 1):
        part = all_rows.slice(begin)
        assert Filter.parse("k:a").mask(part).to_pylist() == [False, True, True, False, True, False][begin:]
        assert Filter.parse('k:a v:""').mask(part).to_pylist() == [False, False, False, False, True, False][begin:]
        assert Filter.parse("k:a v:2").mask(part).to_pylist() == [False, False, True, False, False, False][begin:]
    assert Filter.parse("NOT k:a").mask(batch([None] * 3)).to_pylist() == [True] * 3
    assert Filter.parse("k:a").mask(batch([])).to_pylist() == []


def test_null_row_has_no_annotations_despite_entries_in_its_span() -> None:
    column = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array(["a", "a"]), pa.array(["1", "1"]), mask=pa.array([True, False])
    )
    rows = records.body([b"0", b"1"], annotations=column)
    assert Filter.parse("k:a").mask(rows).to_pylist() == [False, True]


def test_apply_returns_matching_rows() -> None:
    rows = batch([{"a": "1"}, {"b": "1"}, None, {"a": "2"}])
    assert Filter.parse("k:a").apply(rows).column("payload").to_pylist() == [b"0", b"3"]
    assert Filter.parse("NOT k:zzz").apply(rows) is rows
    assert Filter.parse("k:zzz").apply(rows).num_rows == 0


TEXTS = st.text("ab5-.() ", max_size=4)
SAFE = st.recursive(
    st.sampled_from(["a", "b", "5", r"\-", r"\.", r"\(", ".", "[ab]", "[^a]", "[a-b5]", r"\d", r"\w", "(?:ab)"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}"])).map(lambda two: f"({two[0]}){two[1]}"),
    ),
    max_leaves=4,
)
Oracle = Callable[[Notes], bool]


def clause(key: str | None, value: str | None) -> tuple[str, Oracle]:
    parts = [f"{side}:{pattern}" for side, pattern in (("k", key), ("v", value)) if pattern is not None]

    def oracle(notes: Notes) -> bool:
        return any(
            (key is None or re.fullmatch(key, k, re.ASCII)) and (value is None or re.fullmatch(value, v, re.ASCII))
            for k, v in notes.items()
        )

    return " ".join(parts), oracle


def joined(word: str, left: tuple[str, Oracle], right: tuple[str, Oracle]) -> tuple[str, Oracle]:
    both = all if word == "AND" else any
    return f"({left[0]}) {word} ({right[0]})", lambda notes: both((left[1](notes), right[1](notes)))


CLAUSES = st.one_of(st.builds(clause, SAFE, st.none() | SAFE), st.builds(clause, st.none(), SAFE))
FILTERS = st.recursive(
    CLAUSES,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["AND", "OR"]), inner, inner),
        inner.map(lambda operand: (f"NOT ({operand[0]})", lambda notes: not operand[1](notes))),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(FILTERS, st.lists(st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=8), st.integers(0, 3))
def test_filters_agree_with_python_row_by_row(
    text_and_oracle: tuple[str, Oracle], rows: list[Notes | None], begin: int
) -> None:
    text, oracle = text_and_oracle
    expected = [oracle(row or {}) for row in rows][begin:]
    assert Filter.parse(text).mask(batch(list(rows)).slice(begin)).to_pylist() == expected


@settings(max_examples=250, deadline=None)
@given(
    st.one_of(
        st.text(max_size=30),
        st.text('kv:()[]{}\\|*+?^$"ab1 EQ-\n', max_size=30),
        st.lists(
            st.sampled_from(
                ["k:", "v:", "(", ")", " ", "AND ", " OR ", "NOT ", "a", "[", "]", r"\Q", r"\E", '"', "\\"]
            ),
            max_size=20,
        ).map("".join),
    )
)
def test_any_text_is_parsed_or_raises_bad_filter(text: str) -> None:
    with contextlib.suppress(BadFilter):
        mask = Filter.parse(text).mask(batch([None, {"a": "b"}, {"": ""}, {"k": "a)b"}]))
        assert (len(mask), mask.null_count) == (4, 0)
        return
    assert bad(text).pointed.split("\n")[-1].endswith("^")


@pytest.mark.parametrize("text", ["größe", 'said "no"', "C:\\logs", "one\ntwo", "\U0001f600 ok", "plain"])
def test_text_is_found_however_json_writes_it(text: str) -> None:
    """eht16/python-logstash-async#8, logfellow/logstash-logback-encoder#143: letters beyond ASCII are escaped."""
    escaped = json.dumps({"m": text})
    upper = re.sub(r"(?<!\\)\\u[0-9a-f]{4}", lambda match: match[0][:2] + match[0][2:].upper(), escaped)
    payloads = [text, escaped, upper, json.dumps({"m": text}, ensure_ascii=False), "other", '{"m":"other"}', None]
    rows = records.body([payload and payload.encode() for payload in payloads])
    assert contains_text(rows, text).to_pylist() == [True] * 4 + [False] * 3


@pytest.mark.parametrize(
    "written",
    [
        r"it\u0027s \u003ca b\u003d\"x\"\u003e \u0026 1+`2` ä\\u",  # Gson 2.13
        r"it\u0027s \u003Ca b=\u0022x\u0022\u003E \u0026 1\u002B\u00602\u0060 \u00E4\\u",  # .NET's System.Text.Json
        r"it's \u003ca b=\"x\"\u003e \u0026 1+`2` ä\\u",  # Go's encoding/json
    ],
)
def test_text_is_found_with_signs_as_writers_escape_them(written: str) -> None:
    text = 'it\'s <a b="x"> & 1+`2` ä\\u'
    assert json.loads(f'"{written}"') == text
    rows = records.body([f'{{"m":"{written}"}}'.encode(), b"it's"])
    assert contains_text(rows, text).to_pylist() == [True, False]


@pytest.mark.parametrize("written", [r"https:\/\/a\/gr\u00f6\u00dfe?b&c", r"https://a/größe?b\u0026c"])
def test_text_is_found_with_escaped_slashes_and_signs_of_html(written: str) -> None:
    """PHP's and Go's writers, in the addresses that they log."""
    rows = records.body([written.encode(), b"https"])
    assert contains_text(rows, "https://a/größe?b&c").to_pylist() == [True, False]
