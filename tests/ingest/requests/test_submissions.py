"""Requests' messages in the log buffer: in frames that fit, with counts that are whole, several requests at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.ingest.requests.request_writer import Sender
from penstock.ingest.requests.submissions import CALM_TURNS, Submissions
from penstock.records import body
from penstock.wire.requests import Answer, Received, Refused
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig(name="web", protocol="http")
SENDER = Sender("127.0.0.1")


def received(*payloads: bytes, **refused: int) -> Received:
    return Received(body(list(payloads)), refused, Answer())


def submissions(life: Life) -> Submissions:
    return Submissions(LISTENER, life.publisher, life.readers, lambda: None)


async def store(life: Life) -> None:
    await asyncio.sleep(0.02)
    life.position.position = life.publisher.position


def test_concurrent_requests_share_one_frame_per_protocol(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)

    async def requests() -> None:
        single = submissions(life)
        given = [(received(b"a"), "json"), (received(b"b", syntax=2), "json"), (received(b"c"), "hec")]
        await asyncio.gather(*(single.store(each, codec, SENDER) for each, codec in given), store(life))

    begin = life.position.position
    asyncio.run(requests())
    life.position.position = begin
    frames = [(payloads, receipt.origin.codec, dict(receipt.origin.counts)) for payloads, receipt in life.frames()]
    assert frames == [
        ([b"a", b"b"], "json", {"seen": 4, "accepted": 2, "refused.syntax": 2}),
        ([b"c"], "hec", {"seen": 1, "accepted": 1}),
    ]


def test_requests_that_are_read_one_after_the_other_are_one_frame_and_none_waits_for_those_to_come(
    tmp_path: Path,
) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)

    async def requests() -> None:
        one, asked = submissions(life), []
        for payload in (b"a", b"b", b"c"):
            asked.append(asyncio.create_task(one.store(received(payload), "json", SENDER)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        asked.append(asyncio.create_task(one.store(received(b"d"), "json", SENDER)))
        await asyncio.gather(*asked, store(life))

    begin = life.position.position
    asyncio.run(requests())
    life.position.position = begin
    assert [payloads for payloads, _ in life.frames()] == [[b"a", b"b", b"c"], [b"d"]]


def test_however_many_come_what_fills_a_frame_is_written(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)
    most = life.publisher.frame_limit

    async def requests() -> None:
        one, asked = submissions(life), []
        for _ in range(6):
            asked.append(asyncio.create_task(one.store(received(b"x" * (most // 5)), "json", SENDER)))
            await asyncio.sleep(0)
        await asyncio.gather(*asked, store(life))

    begin = life.position.position
    asyncio.run(requests())
    life.position.position = begin
    assert [len(payloads) for payloads, _ in life.frames()] == [3, 3]


def test_a_request_without_messages_waits_for_nothing_and_its_counts_are_kept(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)
    asyncio.run(submissions(life).store(received(kind=3), "bulk", SENDER))
    assert life.totals() == {"seen": 3, "refused.kind": 3}


def test_requests_that_are_refused_are_counted_with_the_next_frame(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)
    first = submissions(life)
    first.count_refusal("token")
    first.tick()
    first.tick()
    assert [receipt.origin.counts for _, receipt in life.frames()] == [{"request_refused.token": 1}]


def test_submission_without_room_is_refused_and_not_written(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)

    async def more() -> None:
        single = submissions(life)
        waiting = [asyncio.ensure_future(single.store(received(b"x" * 30_000), "json", SENDER)) for _ in range(60)]
        await asyncio.sleep(0.05)
        busy = [each for each in waiting if each.done()]
        assert all(isinstance(each.exception(), Refused) for each in busy)
        assert 0 < len(busy) < 60
        life.position.position = life.publisher.position
        await asyncio.gather(*(each for each in waiting if each not in busy))

    asyncio.run(more())
    assert life.position.floor == 0


@pytest.mark.parametrize("annotate", [True, False])
def test_senders_are_annotated_as_asked_for(tmp_path: Path, annotate: bool) -> None:
    life = live(tmp_path, ListenerConfig(name="web", protocol="http", annotate_source=annotate), 1 << 20)

    async def request() -> None:
        single = Submissions(life.listener, life.publisher, life.readers, lambda: None)
        await asyncio.gather(single.store(received(b"a"), "json", Sender("::1", "name")), store(life))

    begin = life.position.position
    asyncio.run(request())
    life.position.position = begin
    (row,) = life.rows()
    assert dict(row["annotations"]) == {"certificate_name": "name", **({"source_address": "::1"} if annotate else {})}


def test_requests_that_arrive_during_a_sync_share_the_next_frame(tmp_path: Path) -> None:
    life = live(tmp_path, LISTENER, 1 << 20)

    async def requests() -> None:
        one = submissions(life)
        asked = [asyncio.create_task(one.store(received(b"a"), "json", SENDER))]
        while life.publisher.position == begin:
            await asyncio.sleep(0)
        for payload in (b"b", b"c"):
            asked.append(asyncio.create_task(one.store(received(payload), "json", SENDER)))
            for _ in range(2 * CALM_TURNS):
                await asyncio.sleep(0)
        life.position.position = life.publisher.position
        await asyncio.gather(*asked, store(life))

    begin = life.position.position
    asyncio.run(requests())
    life.position.position = begin
    assert [payloads for payloads, _ in life.frames()] == [[b"a"], [b"b", b"c"]]
