"""Long numbers in JSON texts keep their digits."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.rows.engine import compute
from penstock.landing.rows.long_numbers import AS_NUMBER, AS_STRING, MARKED, mark_long_numbers, unmarked

LONG = (
    "0.10000000000000001",
    "-123456789012345678.5",
    "1" * 38,
    "-" + "9" * 17,
    "1.2345678901234567890123e10",
    "1e-400",
    "-4.35E-0320",
    "7864110769695269e-20",
)
SHORT = ("1.5", "1760000000000", "2e300", "0", "1.234567890123456e-7", "123456789012.125")
STRINGS = ('"\ue000"', '":1.00000000000000000001,"', '"\\""', '"\\\\"', '"2026-01-31T14:00:00.123456Z"', '"é"')
TEXTS = st.recursive(
    st.sampled_from([*LONG, *SHORT, *STRINGS, "null", "true"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: f"[{','.join(values)}]")
        | st.dictionaries(st.sampled_from(STRINGS), inner, max_size=3).map(
            lambda members: "{" + ",".join(f"{key}:{value}" for key, value in members.items()) + "}"
        )
    ),
    max_leaves=6,
)


@given(st.lists(st.none() | TEXTS, max_size=4))
def test_marked_numbers_have_their_digits(texts: list[str | None]) -> None:
    data = pa.array(texts, pa.string())
    marked = mark_long_numbers(data)
    assert marked.equals(compute({"marked": MARKED}, data=data)["marked"])
    columns = {"number": unmarked("marked", AS_NUMBER), "string": unmarked("marked", AS_STRING)}
    unmarked_texts = compute(columns, marked=marked)
    for row, text in enumerate(texts):
        if marked[row].is_valid:
            assert unmarked_texts["number"][row].as_py() == text
            with_strings = json.loads(text or "", parse_float=_string_if_long, parse_int=_string_if_long)
            assert json.loads(unmarked_texts["string"][row].as_py()) == with_strings
        else:
            assert text is None or not any(_is_long(number) for number in _numbers(text))


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    json.loads(text, parse_float=numbers.append, parse_int=numbers.append)
    return numbers


def _is_long(number: str) -> bool:
    digits, _, exponent = number.lstrip("-").lower().partition("e")
    is_shifted = exponent != "" and len(digits) == 16 and digits.isdecimal()
    return len(digits) >= 17 or is_shifted or (exponent.startswith("-") and len(exponent) > 3)


def _string_if_long(number: str) -> str | float:
    return number if _is_long(number) else float(number)


def test_texts_that_are_not_marked() -> None:
    number = LONG[2]
    texts = [f'{{"a":{number}"}}', f'["\ue0001",{number}]', f'["\\uE000-",{number}]', f'{{"a":{number}', f'"{number}"x']
    assert mark_long_numbers(pa.array(texts)).to_pylist() == [None] * len(texts)
