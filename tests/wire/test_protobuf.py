"""Protobuf's fields as columns: equal to what protobuf itself decodes, and no input raises anything but Malformed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import protobuf
from penstock.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, Malformed, Message, TooManyFields, take_or_null

NUMBER = st.integers(1, 40)
VALUE = st.one_of(
    st.tuples(NUMBER, st.just(VARINT), st.integers(0, (1 << 64) - 1)),
    st.tuples(NUMBER, st.just(FIXED64), st.integers(0, (1 << 64) - 1)),
    st.tuples(NUMBER, st.just(FIXED32), st.integers(0, (1 << 32) - 1)),
    st.tuples(NUMBER, st.just(BYTES), st.binary(max_size=200)),
)
GROUP = st.tuples(NUMBER, st.just(3), st.lists(VALUE, max_size=3))
GROUP |= st.tuples(NUMBER, st.just(3), st.lists(VALUE | GROUP, max_size=3))
MESSAGES = st.lists(st.lists(VALUE | GROUP, max_size=5), max_size=60)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encoded(number: int, kind: int, value: Any) -> bytes:
    tag = varint(number << 3 | kind)
    if kind == VARINT:
        return tag + varint(value)
    if kind == BYTES:
        return tag + varint(len(value)) + value
    if kind == 3:
        return tag + b"".join(encoded(*field) for field in value) + varint(number << 3 | 4)
    return tag + int(value).to_bytes(8 if kind == FIXED64 else 4, "little")


def read(message: Message, number: int, kind: int, value: Any, begin: int, end: int) -> Any:
    if kind == VARINT:
        return int(value)
    content = message.data[begin:end]
    return content if kind == BYTES else int.from_bytes(content, "little")


@pytest.mark.parametrize("max_looped", [0, 24])
@given(messages=MESSAGES)
def test_fields_are_returned_by_message_and_in_order(max_looped: int, messages: list[list[Any]]) -> None:
    bodies = [b"".join(encoded(*field) for field in fields) for fields in messages]
    data = b"".join(bodies)
    ends = np.cumsum([len(each) for each in bodies], dtype=np.int64)
    begins = ends - np.array([len(each) for each in bodies], np.int64)
    protobuf.MAX_LOOPED_MESSAGES, before = max_looped, protobuf.MAX_LOOPED_MESSAGES
    try:
        message = Message(data)
        fields = message.fields(begins, ends)
    finally:
        protobuf.MAX_LOOPED_MESSAGES = before
    assert fields.count == sum(map(len, messages))
    for number in range(1, 16):
        for kind in (VARINT, FIXED64, BYTES, FIXED32):
            values = fields.with_tag(number, kind)
            rows = sorted(zip(*(column.tolist() for column in values), strict=True), key=lambda each: each[1])
            read_back = [(owner, read(message, number, kind, value, b, e)) for owner, b, e, value in rows]
            expected = [
                (index, v) for index, each in enumerate(messages) for n, k, v in each if (n, k) == (number, kind)
            ]
            assert read_back == expected
            last = values.last(len(messages))
            for index in range(len(messages)):
                of_message = [v for owner, v in expected if owner == index]
                assert (last[index] >= 0) == bool(of_message)


@given(st.lists(st.binary(max_size=40), max_size=40))
def test_any_bytes_are_fields_or_malformed(bodies: list[bytes]) -> None:
    ends = np.cumsum([len(each) for each in bodies], dtype=np.int64)
    begins = ends - np.array([len(each) for each in bodies], np.int64)
    message = Message(b"".join(bodies))
    try:
        fields = message.fields(begins, ends)
    except Malformed:
        return
    for parts in fields.parts.values():
        for values in parts:
            assert (values.begin >= begins[values.owner]).all()
            assert (values.end <= ends[values.owner]).all()


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",
        b"\x0f",
        b"\x0c",
        b"\x0b\x08\x01",
        b"\x0b\x14",
        b"\x0b\x02\x00\x0c",
        b"\x0b\x0a\x05abc\x0c",
        b"\x0b" * 101 + b"\x0c" * 101,
        b"\x02\x01",
        b"\x0a\x05abc",
        b"\x08",
        b"\x08" + b"\xff" * 11,
        b"\x09\x00",
        b"\x0a" + b"\xff" * 10,
    ],
)
@pytest.mark.parametrize("copies", [1, 40])
def test_bytes_that_are_no_message_are_malformed(data: bytes, copies: int) -> None:
    ends = np.arange(1, copies + 1) * len(data)
    with pytest.raises(Malformed):
        Message(data * copies).fields(ends - len(data), ends)


@pytest.mark.parametrize("copies", [1, 40])
def test_more_fields_in_groups_than_the_limit_are_malformed(monkeypatch: pytest.MonkeyPatch, copies: int) -> None:
    data = b"\x7b" + b"\x08\x01" * 99 + b"\x7c"
    ends = np.arange(1, copies + 1) * len(data)
    monkeypatch.setattr(protobuf, "MAX_GROUP_FIELDS", 100 * copies)
    Message(data * copies).fields(ends - len(data), ends)
    monkeypatch.setattr(protobuf, "MAX_GROUP_FIELDS", 100 * copies - 1)
    with pytest.raises(TooManyFields, match="fields in groups"):
        Message(data * copies).fields(ends - len(data), ends)


def test_more_fields_than_the_limit_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 1000)
    assert Message(b"\x08\x01" * 1000).top_level().count == 1000
    with pytest.raises(Malformed, match="more than 1000 fields"):
        Message(b"\x08\x01" * 1001).top_level()
    with pytest.raises(Malformed, match="more than"):
        Message(b"\x08\x01" * 1001).fields(np.arange(1001) * 2, np.arange(1, 1002) * 2)


def test_taken_values_are_null_for_negative_indices() -> None:
    import pyarrow as pa

    values = pa.array(["a", "b"])
    assert take_or_null(values, np.array([0, 1])).to_pylist() == ["a", "b"]
    assert take_or_null(values, np.array([1, -1, 0])).to_pylist() == ["b", None, "a"]


def test_many_empty_messages_are_refused_before_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 1000)
    assert Message(b"\n\x00" * 1000).top_level().count == 1000
    with pytest.raises(Malformed):
        Message(b"\n\x00" * 100_000).top_level()
