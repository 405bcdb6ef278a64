"""Batches of one connection keep their order, also if only some of them are quick."""

from __future__ import annotations

import errno
import io
import os
import struct
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from penstock.files.file_system import SystemFiles
from penstock.log import Appended, OutOfSequence, ProducerSequence, UnknownTopic
from penstock.server.kafka.connection import requests
from penstock.server.kafka.entries import produce as producing
from penstock.server.kafka.records.decode import QUICK_BYTES, QUICK_HEADERS, decode
from penstock.server.kafka.schema.messages import VERSIONS, Api
from tests.server.kafka.connection.test_requests import produce
from tests.server.kafka.produced import plain, produced
from tests.server.kafka.schema.test_messages import request
from tests.server.kafka.test_limits import connected, framed
from tests.server.running import Running

LAST = VERSIONS[Api.PRODUCE][1]
LARGE = bytes(QUICK_BYTES)


def answers(stream: io.BufferedIOBase, count: int, version: int = LAST) -> list[tuple[int, Any]]:
    """Return the numbers of the requests, and the answer to their first batch."""
    frames = []
    for _ in range(count):
        (size,) = struct.unpack(">i", stream.read(4))
        frame = stream.read(size)
        message, _ = entity_reader(load_response_schema(Api.PRODUCE, version))(frame, 4 + (version >= 9))
        frames.append((struct.unpack_from(">i", frame)[0], message.responses[0].partition_responses[0]))
    return frames


def rows(server: Running, topic: str) -> list[bytes | None]:
    reader = server.log.topic(topic).reader()
    return [row for stored in reader.read(0) for row in stored.load().column("payload").to_pylist()]


@pytest.mark.parametrize("version", [3, 8, LAST])
def test_batches_of_any_size_to_open_and_new_topics_keep_their_order(endpoint: Running, version: int) -> None:
    values = [b"a", b"b", LARGE, b"c", b"d", LARGE, b"e"]
    sent = [produce(version, plain(value), topic="t", number=number) for number, value in enumerate(values)]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(map(framed, sent)))
        responses = answers(sock.makefile("rb"), len(sent), version)
    assert [number for number, _ in responses] == list(range(len(sent)))
    assert [part.base_offset for _, part in responses] == list(range(len(sent)))
    assert rows(endpoint, "t") == values


def test_batch_with_many_headers_is_stored_once_in_order(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    monkeypatch.setattr(
        producing,
        "decode",
        lambda data, *, quickly, **options: tried.append(quickly) or decode(data, quickly=quickly, **options),
    )
    many = produced([(None, b"with", [("h", b"\xff")] * QUICK_HEADERS)] * 2)
    sent = [produce(LAST, batch, topic="t", number=n) for n, batch in enumerate([plain(b"a"), many, plain(b"b")])]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(map(framed, sent)))
        responses = answers(sock.makefile("rb"), 3)
    assert [(number, part.base_offset) for number, part in responses] == [(0, 0), (1, 1), (2, 3)]
    assert rows(endpoint, "t") == [b"a", b"with", b"with", b"b"]
    assert tried[1:] == [True, False, True], "it is not begun at once a second time"


def test_refused_batch_is_answered_in_order(endpoint: Running) -> None:
    good, broken = produce(LAST, plain(b"v"), topic="t", number=1), produce(LAST, b"no batch", topic="t", number=2)
    elsewhere, silent = produce(LAST, None, topic="t", number=3), produce(LAST, plain(b"w"), topic="t", acks=0)
    with connected(endpoint) as sock:
        sock.sendall(b"".join(map(framed, (good, good, broken, silent, elsewhere, good))))
        responses = answers(sock.makefile("rb"), 5)
    assert [(number, part.error_code.name) for number, part in responses] == [
        (1, "none"),
        (1, "none"),
        (2, "invalid_record"),
        (3, "invalid_record"),
        (1, "none"),
    ]
    assert rows(endpoint, "t") == [b"v", b"v", b"w", b"v"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["failing disk", "full disk"])
def test_batch_for_a_topic_that_the_disk_cannot_create_now_may_be_sent_again(
    error: int, endpoint: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SystemFiles, path: Path) -> None:
        raise OSError(error, os.strerror(error))

    with connected(endpoint) as sock:
        stream = sock.makefile("rb")
        with monkeypatch.context() as patch:
            patch.setattr(SystemFiles, "make_directory", fail)
            sock.sendall(framed(produce(LAST, plain(b"v"), topic="t")))
            ((_, refused),) = answers(stream, 1)
        sock.sendall(framed(produce(LAST, plain(b"v"), topic="t")))
        ((_, stored),) = answers(stream, 1)
    assert (refused.error_code, refused.error_code.retriable) == (ErrorCode.kafka_storage_error, True)
    assert (stored.error_code, rows(endpoint, "t")) == (ErrorCode.none, [b"v"])


def test_requests_on_both_sides_of_the_quick_limit_are_stored(endpoint: Running) -> None:
    at_most = requests.MAX_AT_ONCE_BYTES[Api.PRODUCE]
    sizes = [1, at_most - 200, at_most, at_most + 200, 1]
    sent = [produce(LAST, plain(bytes(size)), topic="t", number=number) for number, size in enumerate(sizes)]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(map(framed, sent)))
        answers(sock.makefile("rb"), len(sent))
    assert [len(row or b"") for row in rows(endpoint, "t")] == sizes


def test_batches_over_the_unpacked_limit_together_are_refused(endpoint: Running) -> None:
    large = produced([(None, bytes(60 << 20), [])], "zstd")
    assert len(large) < 100_000
    parts = tuple({"index": 0, "records": large} for _ in range(3))
    sent = request(
        Api.PRODUCE,
        3,
        acks=-1,
        timeout=30_000,
        topic_data=({"name": "t", "partition_data": parts},),
    )
    with connected(endpoint) as sock:
        sock.settimeout(120)
        sock.sendall(framed(sent))
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        message, _ = entity_reader(load_response_schema(Api.PRODUCE, 3))(stream.read(size), 4)
    codes = [part.error_code for part in message.responses[0].partition_responses]
    assert codes[1:] == [ErrorCode.message_too_large] * 2


def test_batches_behind_a_refused_first_one_wait_for_its_retry(endpoint: Running) -> None:
    first, second, third = (produced([(None, b"%d" % n, [])], producer=(5, 0, n)) for n in range(3))
    damaged = first[:-1] + bytes([first[-1] ^ 1])
    other = produced([(None, b"other", [])], producer=(6, 0, 7))
    sent = [damaged, second, third, other, third, first, second, third, first]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(framed(produce(LAST, batch, topic="t", number=n)) for n, batch in enumerate(sent)))
        responses = answers(sock.makefile("rb"), len(sent))
    behind = "out_of_order_sequence_number"
    codes = ["corrupt_message", behind, behind, "none", behind, "none", "none", "none", "none"]
    assert [part.error_code.name for _, part in responses] == codes
    assert rows(endpoint, "t") == [b"other", b"0", b"1", b"2"]


def test_new_epoch_needs_no_retry_of_a_refused_batch(endpoint: Running) -> None:
    damaged = produced([(None, b"0", [])], producer=(5, 0, 0))[:-1] + b"x"
    sent = [damaged, produced([(None, b"1", [])], producer=(5, 1, 0)), produced([(None, b"2", [])], producer=(5, 1, 1))]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(framed(produce(LAST, batch, topic="t", number=n)) for n, batch in enumerate(sent)))
        responses = answers(sock.makefile("rb"), len(sent))
    assert [part.error_code.name for _, part in responses] == ["corrupt_message", "none", "none"]


def test_refused_first_batch_of_a_new_epoch_is_waited_for_although_one_of_the_former_was_refused(
    endpoint: Running,
) -> None:
    (old, first, second) = (produced([(None, b"%d" % n[1], [])], producer=(5, *n)) for n in ((0, 7), (1, 0), (1, 1)))
    sent = [old[:-1] + b"x", first[:-1] + b"x", second, first, second]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(framed(produce(LAST, batch, topic="t", number=n)) for n, batch in enumerate(sent)))
        responses = answers(sock.makefile("rb"), len(sent))
    behind = "out_of_order_sequence_number"
    codes = ["corrupt_message", "corrupt_message", behind, "none", "none"]
    assert [part.error_code.name for _, part in responses] == codes


def test_producer_that_gives_a_refused_first_batch_up_is_served_again(endpoint: Running) -> None:
    batches = [produced([(None, b"%d" % n, [])], producer=(5, 0, n)) for n in range(8)]
    sent = [batches[0][:-1] + b"x", *batches[1:]]
    with connected(endpoint) as sock:
        sock.sendall(b"".join(framed(produce(LAST, batch, number=n)) for n, batch in enumerate(sent)))
        responses = answers(sock.makefile("rb"), len(sent))
    codes = ["corrupt_message", *["out_of_order_sequence_number"] * 5, "none", "none"]
    assert [part.error_code.name for _, part in responses] == codes


def test_batches_to_other_partitions_keep_none_back(endpoint: Running) -> None:
    batches = [produced([(None, b"x", [])], producer=(5, 0, number)) for number in (0, 1)]
    other = produce(LAST, None, batches[0], number=0)
    with connected(endpoint) as sock:
        sock.sendall(framed(other) + framed(produce(LAST, batches[1], number=1)))
        responses = answers(sock.makefile("rb"), 2)
    assert responses[1][1].error_code.name == "none"


def test_refused_first_batches_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, endpoint: Running) -> None:
    monkeypatch.setattr(producing, "MAX_FAILED_FIRSTS", 2)
    firsts = producing.RefusedFirsts()
    topic = endpoint.log.create("t")
    for producer in ("a", "b", "c"):
        firsts.add("t", ProducerSequence(producer, 0, by_rows=True))
    firsts.check(topic, ProducerSequence("a", 1, by_rows=True))
    with pytest.raises(OutOfSequence):
        firsts.check(topic, ProducerSequence("b", 1, by_rows=True))


def test_batches_behind_one_whose_topic_was_deleted_wait_for_its_retry(endpoint: Running) -> None:
    firsts, stored = producing.RefusedFirsts(), Future[Appended]()
    firsts.watch("t", ProducerSequence("a", 3, by_rows=True), stored)
    stored.set_exception(UnknownTopic("deleted during the wait"))
    with pytest.raises(OutOfSequence):
        firsts.check(endpoint.log.create("t"), ProducerSequence("a", 4, by_rows=True))
