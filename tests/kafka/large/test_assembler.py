"""Records are assembled as recorded, with any content."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import InvalidChunk, LargeMessageError
from penstock.kafka.large.assembler import Assembled, Assembler
from penstock.kafka.large.chunks import Chunk, encode_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, V3, Header, LargeMessageHeader, encode_large_message_header
from tests.kafka.kafka_vectors import KAFKA, TP, named, partition, plain, tohex, uid, unhex

JAVA_NAMES = {"IllegalArgumentException", "ArrayIndexOutOfBoundsException", "NullPointerException"}
"""Exceptions of the Java library for headers that are too short; ours raises InvalidChunk."""


@pytest.mark.parametrize("case", **named(KAFKA["assembler"]))
def test_records_are_assembled_as_recorded(case: dict[str, Any]) -> None:
    assembler = Assembler(
        case["bufferCapacity"], case["expirationOffsetGap"], exception_on_dropped=case["exceptionOnMessageDropped"]
    )
    for index, op in enumerate(case["ops"]):
        of = partition(op["tp"])
        if op["op"] == "safeOffset":
            assert str(assembler.safe_offset(of, op["currentPosition"])) == op["result"], index
            continue
        header = None if op["lmHeader"] is None else (LARGE_MESSAGE, unhex(op["lmHeader"]))
        assert _assembled(assembler, of, op, header) == _expected(op["result"]), index


def _assembled(assembler: Assembler, of: tuple[str, int], op: dict[str, Any], header: Header | None) -> Any:
    try:
        value, start, incomplete = assembler.assemble(of, op["offset"], unhex(op["bytes"]), header)
    except InvalidChunk:
        return {"exception": "InvalidSegmentException"}
    return {
        "incomplete": incomplete,
        "messageBytes": "" if incomplete else tohex(value),
        "startingOffset": start,
        "endingOffset": op["offset"],
    }


def _expected(result: Any) -> Any:
    short = plain(result)
    return {"exception": "InvalidSegmentException"} if short.get("exception") in JAVA_NAMES else short


def _header(kind: int, sequence: int, count: int, size: int) -> Header:
    return LARGE_MESSAGE, encode_large_message_header(LargeMessageHeader(kind, uid(1), sequence, count, size))


# MessageAssemblerTest


def test_single_chunk_with_payload_header() -> None:
    data = encode_chunk(uid(1), 0, 1, 4, b"abcd")
    assert Assembler().assemble(TP, 7, data) == Assembled(b"abcd", 7)
    assert Assembler().assemble(TP, 7, data, _header(1, 0, 1, 4)) == Assembled(b"abcd", 7)


def test_single_chunk_with_record_header() -> None:
    assert Assembler().assemble(TP, 7, b"abcd", _header(V3, 0, 1, 4)) == Assembled(b"abcd", 7)


def test_bad_chunk_in_payload_header_is_payload() -> None:
    data = encode_chunk(uid(1), 3, 2, 4, b"abcd")
    assert Assembler().assemble(TP, 7, data) == Assembled(data, 7)


def test_bad_chunk_in_record_header_is_refused() -> None:
    assembler = Assembler()
    with pytest.raises(InvalidChunk):
        assembler.assemble(TP, 7, b"abcd", _header(V3, 3, 2, 4))
    assert assembler.snapshot().refused == {"sequence": 1}


@pytest.mark.parametrize("header", [None, _header(1, 0, 1, 4), _header(0, 0, 1, 4)])
def test_bytes_that_are_no_chunk_are_returned_unchanged(header: Header | None) -> None:
    for value in (b"anything", b"", None):
        assert Assembler().assemble(TP, 7, value, header) == Assembled(value, 7)


def test_bad_chunk_is_payload_if_configured() -> None:
    assembler = Assembler(bad_chunks_as_payload=True)
    assert assembler.assemble(TP, 7, b"abcd", _header(V3, 3, 2, 4)) == Assembled(b"abcd", 7)
    assert assembler.assemble(TP, 8, b"abcd", (LARGE_MESSAGE, b"short")) == Assembled(b"abcd", 8)
    assert assembler.snapshot().refused == {"sequence": 1, "header": 1}


def test_custom_deserializer_recognises_chunks() -> None:
    def by_text(topic: str, data: Any) -> Chunk | None:
        if not bytes(data).startswith(b"part "):
            return None
        sequence, part = bytes(data)[5:].split(b":")
        return Chunk(uid(9), int(sequence), 2, 4, part)

    assembler = Assembler(deserializer=by_text)
    assert assembler.assemble(TP, 0, b"part 1:cd").incomplete
    assert assembler.assemble(TP, 1, b"ordinary").value == b"ordinary"
    assert assembler.assemble(TP, 2, b"part 0:ab") == Assembled(b"abcd", 0)


def test_snapshot_counts_incomplete_and_finished_messages() -> None:
    assembler = Assembler(capacity=25, expiration_gap=10)

    def add_chunk(offset: int, number: int, sequence: int) -> None:
        assembler.assemble(TP, offset, encode_chunk(uid(number), sequence, 2, 20, b"x" * 10))

    add_chunk(0, 0, 0)
    add_chunk(1, 0, 1)  # assembled
    add_chunk(2, 0, 1)  # again
    add_chunk(3, 1, 0)
    add_chunk(4, 2, 0)
    add_chunk(5, 3, 0)  # evicts 1
    add_chunk(15, 4, 0)  # evicts 2
    add_chunk(30, 5, 0)  # evicts 3, expires 4
    with pytest.raises(InvalidChunk):
        assembler.assemble(TP, 31, b"", _header(V3, 0, 2, 20))
    assert asdict(assembler.snapshot()) == {
        "messages": 1,
        "chunks": 1,
        "bytes": 10,
        "assembled": 1,
        "dropped": {"evicted": 3, "expired": 1},
        "refused": {"empty": 1},
        "duplicates": 1,
        "safe_offsets": {"topic-0": 30},
    }


@given(st.lists(st.tuples(st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=40)), max_size=20))
def test_any_record_is_accepted_or_refused(records: list[tuple[bytes | None, bytes | None]]) -> None:
    assembler = Assembler(capacity=100, expiration_gap=5)
    for offset, (value, header) in enumerate(records):
        with contextlib.suppress(LargeMessageError):
            assembler.assemble(TP, offset, value, (LARGE_MESSAGE, header))
        with contextlib.suppress(LargeMessageError):
            assembler.assemble(TP, offset, value)
