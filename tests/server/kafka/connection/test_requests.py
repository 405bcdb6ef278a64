"""Requests parsed by the template of an earlier one, compared with kio's parser."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.kafka.connection import requests as module
from penstock.server.kafka.connection.requests import MAX_AT_ONCE_BYTES, Requests, may_start_at_once
from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.schema.messages import VERSIONS, Api, Request, parse
from tests.server.kafka.schema.test_messages import request

FIRST, LAST = VERSIONS[Api.PRODUCE]
VERSION = st.integers(FIRST, LAST)
RECORDS = st.none() | st.binary(max_size=9) | st.binary(min_size=60, max_size=300) | st.just(bytes(20_000))


def produce(version: int, *records: bytes | None, topic: str = "t", acks: int = -1, number: int = 7) -> bytes:
    parts = [{"index": index, "records": batch} for index, batch in enumerate(records)]
    frame = request(Api.PRODUCE, version, acks=acks, topic_data=[{"name": topic, "partition_data": parts}])
    return frame[:4] + struct.pack(">i", number) + frame[8:]


def fields_of(request: Request) -> tuple[Any, ...]:
    return request.api, request.version, request.correlation, request.client, request.message


@given(VERSION, st.lists(RECORDS, min_size=1, max_size=6))
def test_request_equals_the_one_parsed_by_kio(version: int, several: list[bytes | None]) -> None:
    requests = Requests()
    for number, records in enumerate(several):
        frame = produce(version, records, number=number)
        assert fields_of(requests.parse(memoryview(frame))) == fields_of(parse(frame))


@given(
    VERSION, VERSION, st.sampled_from("tu"), st.integers(-1, 1), st.lists(RECORDS, max_size=3), st.binary(max_size=2)
)
def test_request_of_another_form_is_parsed_by_kio(
    before: int, version: int, topic: str, acks: int, records: list[bytes | None], behind: bytes
) -> None:
    requests = Requests()
    requests.parse(memoryview(produce(before, b"one")))
    frame = produce(version, *records, topic=topic, acks=acks) + behind
    assert fields_of(requests.parse(memoryview(frame))) == fields_of(parse(frame))
    assert fields_of(requests.parse(memoryview(frame))) == fields_of(parse(frame))


@given(VERSION, st.binary(min_size=1, max_size=200), st.data())
def test_any_bytes_are_parsed_alike_with_and_without_template(version: int, records: bytes, data: Any) -> None:
    requests = Requests()
    frame = bytearray(produce(version, records))
    requests.parse(memoryview(bytes(frame)))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(1, len(frame)))]
    expected = None
    with contextlib.suppress(BadFrame):
        expected = parse(bytes(frame))
    if expected is None:
        with pytest.raises(BadFrame):
            requests.parse(memoryview(bytes(frame)))
    else:
        assert fields_of(requests.parse(memoryview(bytes(frame)))) == fields_of(expected)


def test_matching_request_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests()
    requests.parse(memoryview(produce(LAST, b"first")))
    monkeypatch.setattr(module, "parse", None)
    parsed = requests.parse(memoryview(produce(LAST, bytes(20_000), number=8)))
    assert (parsed.correlation, parsed.message.topic_data[0].partition_data[0].records) == (8, bytes(20_000))


def test_quick_request_is_recognized_by_its_first_bytes() -> None:
    assert may_start_at_once(memoryview(produce(LAST, b"one")))
    assert not may_start_at_once(memoryview(produce(LAST, bytes(MAX_AT_ONCE_BYTES[Api.PRODUCE]))))
    assert may_start_at_once(memoryview(request(Api.FETCH, 12)))
    assert not may_start_at_once(memoryview(request(Api.METADATA, 12)))
