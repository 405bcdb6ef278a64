from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.compact_json import compact_json

TEXTS = st.text() | st.text(st.characters(categories=["Cs"]), max_size=1)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_document_survives_a_round_trip(document: dict[str, object]) -> None:
    text = compact_json(document)
    assert json.loads(text) == document
    assert b"\n" not in text


def test_output_has_no_spaces() -> None:
    assert compact_json({"a": [1, 2], "b": "é"}) == '{"a":[1,2],"b":"é"}'.encode()
