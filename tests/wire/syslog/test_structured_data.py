"""RFC 5424's structured data by its parameters."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.syslog.headers import Headers
from penstock.wire.syslog.structured_data import MAX_PARAMETERS, SLACK_BYTES, read_parameters


def parameters(*texts: bytes) -> list[dict[str, str] | None]:
    """The parameters of each; None where it stays one text."""
    header = Headers(pa.array([b"<34>1 - - - - - " + text for text in texts], pa.binary()))
    parsed = read_parameters(header.octets, header.fields["structured_data"])
    assert parsed is not None
    rows = []
    for row in range(len(texts)):
        part = slice(parsed.offsets[row], parsed.offsets[row + 1])
        names, values = parsed.names[part].to_pylist(), parsed.values[part].to_pylist()
        rows.append(None if parsed.is_unsplit[row] else dict(zip(names, values, strict=True)))
    return rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'[a@1 k="v"] text', {"a@1.k": "v"}),
        (
            b'[a@1 k="v" l="" m="[x] = y"][b c="d"][e  f="g" ] [no="data"]',
            {"a@1.k": "v", "a@1.l": "", "a@1.m": "[x] = y", "b.c": "d", "e.f": "g"},
        ),
        (
            rb'[a k="q\"uote" l="back\\slash" m="brack\]et" n="\x" o="\\\""]',
            {"a.k": 'q"uote', "a.l": "back\\slash", "a.m": "brack]et", "a.n": "\\x", "a.o": '\\"'},
        ),
        (b'[a][b c="d"][e]', {"b.c": "d"}),
        (b'[o ip="1" ip="2" x="y" ip="3"]', {"o.ip": "1\0002\0003", "o.x": "y"}),
        ('[a k="grüße"]'.encode(), {"a.k": "grüße"}),
        (b'[a k="\xff"]', {"a.k": "\ufffd"}),
        (b"[a]", None),
    ],
    ids=str,
)
def test_each_parameter_has_the_name_of_its_element(text: bytes, expected: dict[str, str] | None) -> None:
    second = {"x.y": "z"}
    assert parameters(b'[x y="z"]', text, b'[x y="z"]') == [second, expected, second]


def test_neighbours_that_touch_do_not_disturb() -> None:
    column = pa.array([b'<34>1 - - - - - [a k="v"]', b"[x]", b'" =[y'], pa.binary())
    header = Headers(column)
    parsed = read_parameters(header.octets, header.fields["structured_data"])
    assert parsed is not None
    assert (parsed.names.to_pylist(), parsed.values.to_pylist()) == (["a.k"], ["v"])


def test_rows_without_structured_data_have_no_parameters() -> None:
    assert parameters(b"- text", b'[a k="v"]', b"[broken") == [{}, {"a.k": "v"}, {}]


def test_too_large_structured_data_stays_one_text() -> None:
    many = " ".join(f'k{number}="v"' for number in range(MAX_PARAMETERS + 1)).encode()
    long = b"[" + b"n" * 400 + b' a="" b="" c="" d="" e="" f=""]'
    assert parameters(b"[a " + many + b"]", long, b'[a k="v"]') == [None, None, {"a.k": "v"}]


NAMES = st.text("abcXYZ019@._-", min_size=1, max_size=12)
VALUES = st.text(st.sampled_from('ab ="]\\[ü'), max_size=12)


def written(elements: dict[str, dict[str, str]]) -> bytes:
    """Encode elements like a sender."""
    text = ""
    for name, parts in elements.items():
        pairs = (
            key + '="' + value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]") + '"'
            for key, value in parts.items()
        )
        text += "[" + " ".join([name, *pairs]) + "]"
    return text.encode()


@given(
    st.lists(
        st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), min_size=1, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_parameters_of_real_senders_are_parsed(rows: list[dict[str, dict[str, str]]]) -> None:
    expected = [{f"{name}.{key}": v for name, parts in row.items() for key, v in parts.items()} for row in rows]
    parsed = parameters(*(written(row) + b" text" for row in rows))
    for row, expected_parameters, parts in zip(parsed, expected, rows, strict=True):
        if len(expected_parameters) == sum(map(len, parts.values())):  # two names may make one
            assert row == expected_parameters


def test_the_slack_is_enough_for_the_longest_names_of_the_rfc() -> None:
    assert SLACK_BYTES >= 32 * 8
