from __future__ import annotations

import contextlib
import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.metadata.cluster import api_versions
from penstock.server.kafka.schema.messages import VERSIONS, Api, encode_answer, entity, parse

EVERY = [(api, version) for api, (first, last) in VERSIONS.items() for version in range(first, last + 1)]


def request(api: Api, version: int, **values: Any) -> bytes:
    """Return a request as a client sends it, without its length."""
    schema = load_request_schema(api, version)
    head = {"request_api_key": api, "request_api_version": version, "correlation_id": 7, "client_id": "me"}
    with io.BytesIO() as sink:
        entity_writer(schema.__header_schema__)(sink, entity(schema.__header_schema__, head))
        entity_writer(schema)(sink, entity(schema, values))
        return sink.getvalue()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_every_version_of_every_request_is_answered(api: Api, version: int) -> None:
    parsed = parse(request(api, version))
    assert (parsed.api, parsed.version, parsed.correlation, parsed.client) == (api, version, 7, "me")
    frame = b"".join(encode_answer(parsed, {}))
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 7)


def test_answer_has_the_fields_of_its_version() -> None:
    parsed = parse(request(Api.METADATA, 12))
    schema = load_response_schema(Api.METADATA, 12)
    topic = {"name": "t", "partitions": [{"leader_id": 3, "replica_nodes": (3,)}]}
    frame = b"".join(encode_answer(parsed, {"cluster_id": "c", "topics": [topic], "unknown": 1}))
    message, _ = entity_reader(schema)(frame, 9)
    assert (message.cluster_id, message.topics[0].name, message.topics[0].partitions[0].leader_id) == ("c", "t", 3)
    assert message.topics[0].topic_id is None


def test_unknown_version_of_api_versions_gets_supported_versions() -> None:
    parsed = parse(struct.pack(">hhi", Api.API_VERSIONS, 99, 5) + b"whatever")
    schema = load_response_schema(Api.API_VERSIONS, 0)
    message, _ = entity_reader(schema)(b"".join(encode_answer(parsed, api_versions(parsed.is_unsupported))), 8)
    assert message.error_code.name == "unsupported_version"
    assert len(message.api_keys) == len(VERSIONS)


def test_unsupported_versions_and_requests_are_refused() -> None:
    for head in ((Api.PRODUCE, 2), (Api.FETCH, 99), (28, 0), (-1, 0), (1000, 0)):
        with pytest.raises(BadFrame):
            parse(struct.pack(">hhi", *head, 0) + bytes(100))


def test_announced_lengths_take_no_memory() -> None:
    for length in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff\xff\x03"):
        head = request(Api.METADATA, 12)[:13]
        with pytest.raises(BadFrame, match="shorter than its lengths say"):
            parse(head + length + bytes(30))


@given(st.sampled_from(EVERY), st.binary(max_size=200), st.data())
def test_any_bytes_are_a_request_or_refused(kind: tuple[Api, int], tail: bytes, data: st.DataObject) -> None:
    good = request(*kind)
    cut = data.draw(st.integers(8, len(good)))
    with contextlib.suppress(BadFrame):
        assert parse(good[:cut] + tail).api is kind[0]
    with contextlib.suppress(BadFrame):
        parse(tail)
