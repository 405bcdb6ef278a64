from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as ProtobufAny
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import annotation_column, as_batch
from penstock.slogd.columns.decode import FEW, parse_append
from penstock.slogd.columns.entries import annotation_dicts, to_body
from penstock.slogd.columns.gathered import Gathered, gathered
from penstock.slogd.slogd_pb2 import AppendRequest, LogEntry

NAMED = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)


def framed(tag: int, *parts: bytes) -> bytes:
    """A field of bytes, or of a message: short ones."""
    content = b"".join(parts)
    return bytes([tag << 3 | 2, len(content)]) + content


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(0, 2**64 - 1))
def test_plain_entries_give_their_payloads(payloads: list[bytes], offset: int) -> None:
    logs = [LogEntry(raw_bytes=payload, offset=offset) for payload in payloads]
    data = AppendRequest(topic="t", logs=logs, producer_id="me", sequence=1).SerializeToString()
    assert gathered(data, len(logs)) == Gathered(payloads, [], [])


@given(st.lists(st.tuples(st.binary(max_size=9), NAMED), max_size=8))
def test_annotations_stand_one_behind_the_other(entries: list[tuple[bytes, dict[str, str]]]) -> None:
    logs = [LogEntry(raw_bytes=payload, annotations=named) for payload, named in entries]
    found = gathered(AppendRequest(topic="t", logs=logs).SerializeToString(), len(logs))
    assert found is not None
    assert found.payloads == [payload for payload, _ in entries]
    pairs = list(zip(found.names, found.texts, strict=True))
    for _, named in entries:
        mine, pairs = pairs[: len(named)], pairs[len(named) :]
        assert {name.decode(): text.decode() for name, text in mine} == named
    assert not pairs


@pytest.mark.parametrize(
    "other",
    [
        LogEntry().SerializeToString(),
        LogEntry(raw_bytes=b"x", key=b"").SerializeToString(),
        LogEntry(protobuf=ProtobufAny()).SerializeToString(),
        LogEntry(raw_bytes=b"x").SerializeToString() * 2,
        framed(4, b"x") + framed(5, framed(1, b"name")),
        framed(4, b"x") + framed(5, framed(2, b"text")),
    ],
)
def test_any_other_entry_leaves_them_to_a_loop(other: bytes) -> None:
    plain = AppendRequest(logs=[LogEntry(raw_bytes=b"x")]).SerializeToString()
    assert gathered(plain + framed(2, other), 2) is None


def test_two_payloads_of_one_entry_do_not_pass_for_those_of_two() -> None:
    twice = LogEntry(raw_bytes=b"x").SerializeToString() * 2
    assert gathered(framed(2, twice) + b"\x12\x00", 2) is None


PAIR = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([b"", b"a", b"b"])), max_size=4)
"""The fields of an annotation as somebody may write them: a name or a value twice, in any order, or not at all."""


@given(st.lists(st.tuples(st.binary(max_size=3), st.lists(PAIR, max_size=3)), max_size=4), st.booleans())
def test_however_annotations_are_written_they_are_what_protobuf_reads(
    entries: list[tuple[bytes, list[list[tuple[int, bytes]]]]], tidy: bool
) -> None:
    many = entries * (FEW + 1)
    data = b""
    for payload, pairs in many:
        whole = [[(1, b"n%d" % n), (2, b"t")] if tidy else fields for n, fields in enumerate(pairs)]
        told = [framed(5, *(framed(tag, text) for tag, text in fields)) for fields in whole]
        data += framed(2, framed(4, payload), *told)
    body = as_batch(parse_append(data).body)
    expected = to_body(AppendRequest.FromString(data).logs)
    assert body.num_rows == len(many)
    if many:
        assert body.column("payload").to_pylist() == expected.column("payload").to_pylist()
        found, read = annotation_column(body), annotation_column(expected)
        assert annotation_dicts(found) == annotation_dicts(read)
        assert found.null_count == read.null_count
