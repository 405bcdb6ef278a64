"""The estimate is near what RE2 takes, and never far below it."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.read.filter_syntax import MAX_COMPILE_COST, BadFilter, parse
from penstock.log.read.pattern_cost import compile_cost

ATTACK = r"v:([a-z]{1,100}[0-9]{0,100}\pL{1,300})"


@pytest.mark.parametrize(
    ("pattern", "cost"),
    [
        (r"vip\-[0-9]+", 5),
        ("a{1000}", 1000),
        ("a{0,30}b", 31),
        ("(?:ab{3}){10}", 50),
        (r"\pL{100}", 500_000),
        (r"[\pL\pN]", 10_001),
        (r"\Q((.{5}\E{3}", 18),
        ("é{10}", 20),
        ("((((", 0),
        ("[", 1),
        ("\\", 1),
        ("{3}", 0),
    ],
)
def test_cost_counts_repetitions_and_classes(pattern: str, cost: int) -> None:
    assert compile_cost(pattern) == cost


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1000}",
        "[a-z]{1000}",
        ".{1000}",
        "(?s).{1000}",
        "[^a]{1000}",
        r"\pL{100}",
        r"[^\pL]{50}",
        r"\p{Greek}{100}",
        "(?i)[a-z]{1000}",
        "[\u0430-\u044f]{1000}",
        "(?:a{30}){30}",
        "(a|b|c|d){200}",
        r"(?:\pL{10}){30}",
        "a{0,1000}",
        "(?:(?:a?){30}){30}",
        r"\W{500}",
        "[\uff41-\uff5aぁ-んァ-ヶ一-龠]{500}",
    ],
)
def test_pattern_takes_at_most_ten_times_its_estimate(pattern: str) -> None:
    began = time.thread_time()
    pc.match_substring_regex(pa.nulls(1, pa.string()), pattern=pattern)
    assert time.thread_time() - began < 0.005 + compile_cost(pattern) * 2e-6


@given(st.text(st.sampled_from("ab(){}[]\\pPLQE.*+?|^$,0123é:-"), max_size=40))
def test_any_pattern_has_a_cost(pattern: str) -> None:
    assert compile_cost(pattern) >= 0


@pytest.mark.parametrize("count", [1, 10, 200])
def test_large_patterns_are_refused_without_being_compiled(count: int) -> None:
    began = time.thread_time()
    with pytest.raises(BadFilter, match="the patterns are too large"):
        parse(" OR ".join([ATTACK] * count))
    assert time.thread_time() - began < 0.1


def test_usual_patterns_are_far_below_the_limit() -> None:
    clauses = [r"k:host v:web\-[0-9]{1,3}\.(eu|us)\.example\.com", r"v:.*time.?out.*", r"v:\p{Lu}\pL+", "v:[^,]{1,50}"]
    parse(" OR ".join(clauses))
    assert sum(map(compile_cost, clauses)) < MAX_COMPILE_COST / 5
