from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import annotation_column, as_batch
from penstock.slogd.columns.decode import MAX_LOOP_ENTRIES, parse_append
from penstock.slogd.columns.entries import annotation_dicts, to_body
from penstock.slogd.columns.gathered import GatheredValues, gather_values
from penstock.slogd.slogd_pb2 import AppendRequest, LogEntry

NAMED = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)


def framed(tag: int, *parts: bytes) -> bytes:
    """Return a short field of bytes or of a message."""
    content = b"".join(parts)
    return bytes([tag << 3 | 2, len(content)]) + content


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(0, 2**64 - 1))
def test_payloads_of_plain_entries_are_gathered(payloads: list[bytes], offset: int) -> None:
    logs = [LogEntry(raw_bytes=payload, offset=offset) for payload in payloads]
    data = AppendRequest(topic="t", logs=logs, producer_id="me", sequence=1).SerializeToString()
    assert gather_values(data, len(logs)) == GatheredValues(payloads, [], [])


@given(st.lists(st.tuples(st.binary(max_size=9), NAMED), max_size=8))
def test_annotations_are_gathered_in_order(entries: list[tuple[bytes, dict[str, str]]]) -> None:
    logs = [LogEntry(raw_bytes=payload, annotations=named) for payload, named in entries]
    values = gather_values(AppendRequest(topic="t", logs=logs).SerializeToString(), len(logs))
    assert values is not None
    assert values.payloads == [payload for payload, _ in entries]
    pairs = list(zip(values.names, values.texts, strict=True))
    for _, named in entries:
        own_pairs, pairs = pairs[: len(named)], pairs[len(named) :]
        assert {name.decode(): text.decode() for name, text in own_pairs} == named
    assert not pairs


@pytest.mark.parametrize(
    "entry",
    [
        LogEntry().SerializeToString(),
        LogEntry(raw_bytes=b"x", key=b"").SerializeToString(),
        LogEntry(protobuf=ProtobufAny()).SerializeToString(),
        LogEntry(raw_bytes=b"x").SerializeToString() * 2,
        framed(4, b"x") + framed(5, framed(1, b"name")),
        framed(4, b"x") + framed(5, framed(2, b"text")),
    ],
)
def test_other_entries_are_not_gathered(entry: bytes) -> None:
    plain = AppendRequest(logs=[LogEntry(raw_bytes=b"x")]).SerializeToString()
    assert gather_values(plain + framed(2, entry), 2) is None


def test_two_payloads_of_a_single_entry_are_not_gathered() -> None:
    twice = LogEntry(raw_bytes=b"x").SerializeToString() * 2
    assert gather_values(framed(2, twice) + b"\x12\x00", 2) is None


PAIR = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([b"", b"a", b"b"])), max_size=4)
"""Fields of an annotation that another encoder may write: name and value repeated, in any order, or missing."""


@given(st.lists(st.tuples(st.binary(max_size=3), st.lists(PAIR, max_size=3)), max_size=4), st.booleans())
def test_unusual_annotations_are_parsed_like_protobuf(
    entries: list[tuple[bytes, list[list[tuple[int, bytes]]]]], tidy: bool
) -> None:
    many = entries * (MAX_LOOP_ENTRIES + 1)
    data = b""
    for payload, pairs in many:
        written = [[(1, b"n%d" % n), (2, b"t")] if tidy else fields for n, fields in enumerate(pairs)]
        encoded = [framed(5, *(framed(tag, text) for tag, text in fields)) for fields in written]
        data += framed(2, framed(4, payload), *encoded)
    body = as_batch(parse_append(data).body)
    expected = to_body(AppendRequest.FromString(data).logs)
    assert body.num_rows == len(many)
    if many:
        assert body.column("payload").to_pylist() == expected.column("payload").to_pylist()
        annotations, read = annotation_column(body), annotation_column(expected)
        assert annotation_dicts(annotations) == annotation_dicts(read)
        assert annotations.null_count == read.null_count
