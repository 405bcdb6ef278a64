"""Messages are split into the records of the Java library, and no header is lost."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import Chunk, decode_chunk, serialize_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, drop_header, find_last
from penstock.kafka.large.splitter import MessageSplitter, OutgoingRecord, Packer
from tests.kafka.kafka_vectors import KAFKA, TP, headers_as_recorded, headers_of, tohex, uid, unhex

HEADERS_KEPT = "a value that is None or empty keeps the user's headers"
ID_MADE_ONCE = "without an id one is made, and stands in segment, header and key alike"


def _as_recorded(records: Iterable[OutgoingRecord]) -> list[tuple[Any, ...]]:
    return [(tohex(key), tohex(value), headers_as_recorded(headers)) for key, value, headers, _ in records]  # type: ignore[arg-type]


def _recorded(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(record["key"], record["value"], record["headers"]) for record in records]


def _loses_headers(payload: str | None, headers: Any) -> bool:
    return not payload and bool(headers)


CASES = [case for case in KAFKA["splitter"] if case.get("topic") and case["uuid"]]


@pytest.mark.parametrize("case", CASES)
def test_message_becomes_the_recorded_records(case: dict[str, Any]) -> None:
    splitter = MessageSplitter(case["maxSegmentSize"], in_header=case["enableRecordHeader"])
    headers = headers_of(case["inHeaders"])
    records = splitter.split("topic", unhex(case["payload"]), unhex(case["key"]), headers, UUID(case["uuid"]))
    expected = _recorded(case["records"])
    if _loses_headers(case["payload"], case["inHeaders"]):
        expected_headers = headers_as_recorded(drop_header(headers_of(case["inHeaders"]), LARGE_MESSAGE))
        expected = [(key, value, expected_headers) for key, value, lost in expected if lost == []]
    assert _as_recorded(records) == expected, HEADERS_KEPT
    assert headers == headers_of(case["inHeadersAfter"])


@pytest.mark.parametrize("case", [case for case in KAFKA["splitter"] if "enableRecordHeader" not in case])
def test_other_recorded_messages(case: dict[str, Any]) -> None:
    payload = unhex(case["payload"]) or b""
    records = list(
        MessageSplitter(case["maxSegmentSize"]).split(
            "topic", payload, message_id=UUID(case["uuid"]) if case["uuid"] else None
        )
    )
    if isinstance(case["records"], list):
        assert _as_recorded(records) == _recorded(case["records"])
    else:
        assert case["uuid"] is None, ID_MADE_ONCE
        assert len({(decode_chunk(r.value or b"") or Chunk(uid(0), 0, 0, 0, b"")).message_id for r in records}) == 1
        assert {record.key for record in records} == {(decode_chunk(records[0].value or b"")).message_id.bytes}  # type: ignore[union-attr]


def test_message_needs_a_topic() -> None:
    with pytest.raises(ValueError, match=r"Topic cannot be empty\."):
        MessageSplitter(10).split("", b"x")


def test_split() -> None:
    """MessageSplitterTest.testSplit."""
    message, message_id = b"a" * 1000, uid(3)
    records = list(MessageSplitter(200).split("topic", message, b"key", message_id=message_id))
    chunks = [decode_chunk(record.value or b"") for record in records]
    split = [(s.message_id, s.message_size, s.count, s.sequence, len(s.payload)) for s in chunks if s]
    assert split == [(message_id, 1000, 5, sequence, 200) for sequence in range(5)]
    assert b"".join(s.payload for s in chunks if s) == message
    assert {record.key for record in records} == {b"key"}
    assert [record.chunks for record in records] == [5] * 5


@given(st.binary(min_size=1, max_size=300), st.integers(1, 120), st.booleans(), st.randoms(use_true_random=False))
def test_split_message_is_assembled_in_any_order(value: bytes, size: int, in_header: bool, shuffle: Any) -> None:
    records = list(MessageSplitter(size, in_header=in_header).split("topic", value))
    assert len(records) == -(-len(value) // size)
    shuffle.shuffle(records)
    assembler = Assembler(capacity=1000)
    results = [
        assembler.assemble(TP, offset, bytes(record.value or b""), find_last(record.headers, LARGE_MESSAGE))
        for offset, record in enumerate(records)
    ]
    assert [result.incomplete for result in results] == [True] * (len(records) - 1) + [False]
    assert results[-1].value == value
    assert results[-1].starting_offset == 0


PRODUCED = [(case, index) for case in KAFKA["producer"] for index in range(len(case["sends"]))]


@pytest.mark.parametrize(("case", "index"), PRODUCED)
def test_producer_sends_the_recorded_records(case: dict[str, Any], index: int) -> None:
    config, sent = case["config"], case["sends"][index]
    splitter = MessageSplitter(config["max.message.segment.bytes"], in_header=config["li.record.header.enable"])
    packer = Packer(
        splitter,
        enabled=config["large.message.enabled"],
        wrap_small=config["li.large.message.segment.wrapping.required"],
        stamped=config["header.timestamp.enabled"],
        new_id=lambda topic, key, value: uid(200 + index),
    )
    headers = headers_of(sent["inHeaders"])
    key, value = (None if sent[name] is None else sent[name].encode() for name in ("key", "value"))
    records = packer.pack("topic", value, key, headers, sent["timestamp"])
    expected = _recorded(sent["sent"])
    if config["large.message.enabled"] and _loses_headers(sent["value"], sent["inHeadersAfter"]):
        expected = [(key_, value_, sent["inHeadersAfter"]) for key_, value_, _ in expected]
    assert _as_recorded(records) == expected, HEADERS_KEPT
    assert headers_as_recorded(headers) == sent["inHeadersAfter"]


def test_message_of_exactly_the_limit_is_not_split() -> None:
    packer = Packer(MessageSplitter(10), enabled=True, stamped=False)
    assert [len(list(packer.pack("topic", bytes(size)))) for size in (0, 10, 11, 30, 31)] == [1, 1, 2, 3, 4]


def test_the_smaller_of_chunk_and_request_is_the_limit() -> None:
    assert Packer(MessageSplitter(1000), enabled=True, request_bytes=10).threshold == 10


def test_message_without_a_time_gets_the_time_of_sending() -> None:
    packer = Packer(MessageSplitter(10), now=lambda: 1.5)
    (record,) = packer.pack("topic", b"x")
    assert headers_as_recorded(record.headers) == [["_t", (1500).to_bytes(8, "big").hex()]]


def test_custom_serializer_writes_the_chunks() -> None:
    def bare_if_alone(topic: str, chunk: Chunk) -> bytes:
        return bytes(chunk.payload) if chunk.count == 1 else serialize_chunk(topic, chunk)

    packer = Packer(MessageSplitter(4, serializer=bare_if_alone), enabled=True, wrap_small=True, stamped=False)
    assert [record.value for record in packer.pack("topic", b"abc")] == [b"abc"]
    assert [bool(decode_chunk(record.value or b"")) for record in packer.pack("topic", b"abcdef")] == [True, True]


def test_chunk_has_at_least_one_byte() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        MessageSplitter(0)


def test_only_one_chunk_is_in_memory_in_addition_to_the_message() -> None:
    message = bytes(20_000_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        count = sum(1 for _ in MessageSplitter(800_000).split("topic", message))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 25
    assert peak - before < 3 * 800_000


def test_ids_differ_from_message_to_message() -> None:
    packer = Packer(MessageSplitter(1), enabled=True)
    keys = {record.key for _ in range(10) for record in itertools.islice(packer.pack("topic", b"ab"), 1)}
    assert len(keys) == 10
