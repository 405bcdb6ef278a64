"""Messages of requests: in frames that fit, small ones as rows; each sender gets its outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover.stored_waits import Fate
from penstock.ingest.requests.request_writer import RequestWriter, Sender, frame_size, split_into_frames
from penstock.records import Body, Rows, as_batch, body
from penstock.wire.requests import Answer, Received
from tests.ingest.ingest_life import live

LISTENER = ListenerConfig(name="web", protocol="http", annotate_source=True)
ROWS = Rows([(None, b"a", None, [("k", "v")]), (None, b"b", None, None)])


def test_parts_of_a_batch_fit_into_frames_and_are_complete(tmp_path: Path) -> None:
    batch = body([b"x" * (n % 97) for n in range(5000)])
    parts = list(split_into_frames(batch, 20_000))
    assert [row for part in parts for row in part.to_pylist()] == batch.to_pylist()
    assert max(map(frame_size, parts)) <= 20_000
    assert len(parts) > 5


@pytest.mark.parametrize("messages", [ROWS, ROWS.batch()], ids=["rows", "columns"])
def test_messages_are_annotated_and_framed_alike_as_rows_and_as_columns(tmp_path: Path, messages: Body) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)
    requests, fates = RequestWriter(LISTENER, life.publisher, life.readers, lambda: None), list[Fate]()
    requests.add(Received(messages, {}, Answer()), "json", Sender("192.0.2.1", "a.example.com"), fates.append)
    requests.flush()
    assert [(row["payload"], row["annotations"]) for row in life.rows()] == [
        (b"a", [("k", "v"), ("source_address", "192.0.2.1"), ("certificate_name", "a.example.com")]),
        (b"b", [("source_address", "192.0.2.1"), ("certificate_name", "a.example.com")]),
    ]
    life.position.position = life.publisher.position
    assert requests.settle_decided()
    assert fates == [Fate.STORED]
    life.end()


@pytest.mark.parametrize("text", ["", "x" * 300, "\U0001f600" * 300])
def test_size_of_rows_is_not_below_that_of_their_batch(text: str) -> None:
    for rows in (Rows([(None, text.encode(), None, [(text, text)] * 3)]), Rows([(None, b"", None, None)] * 8)):
        assert frame_size(rows) >= frame_size(as_batch(rows))


def test_messages_and_refusals_of_requests_are_counted_by_sender(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)
    requests = RequestWriter(LISTENER, life.publisher, life.readers, lambda: None)
    for address, refused in (("192.0.2.1", {}), ("2001:db8::1", {"oversize": 3}), ("192.0.2.1", {})):
        requests.add(Received(ROWS, refused, Answer()), "json", Sender(address), lambda fate: None)
    requests.flush()
    assert life.senders() == {"192.0.2.1": {"accepted": 4}, "2001:db8::1": {"accepted": 2, "refused": 3}}
    life.end()


def test_log_sees_the_waiting_sender_before_it_wakes(tmp_path: Path) -> None:
    life, is_awaited = live(tmp_path, LISTENER, 1 << 20), list[bool]()
    begin = life.publisher.position
    requests = RequestWriter(
        LISTENER, life.publisher, life.readers, lambda: is_awaited.append(life.position.is_awaited(begin))
    )
    requests.add(Received(ROWS, {}, Answer()), "json", Sender("192.0.2.1"), lambda fate: None)
    requests.flush()
    assert is_awaited == [True]
    life.end()
