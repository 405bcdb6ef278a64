"""Topics, settings, cursors and filters through the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest

from penstock.client import (
    AsyncLog,
    AtCursor,
    ClientError,
    Gap,
    Log,
    NoSuchTopic,
    Refused,
    TopicExists,
)
from tests.server.running import Running


@pytest.fixture
def log(running: Running) -> Iterator[Log]:
    with Log(running.bound.grpc, retry_for=1) as client:
        yield client


def test_topics_are_created_with_settings_and_changed(log: Log) -> None:
    created = log.create_topic("t", retain_bytes="1GiB", stale_after="30d", readers=["alice", "*"])
    assert (created.name, created.start, created.end, created.gaps, created.cursors) == ("t", 0, 0, [], [])
    assert created.settings["retain_bytes"] == 1 << 30
    assert created.settings["stale_after"] == 30 * 86400.0
    assert created.settings["readers"] == ("alice", "*")
    changed = log.configure_topic("t", retain_bytes=5, compression="zstd")
    assert changed.settings == {**created.settings, "retain_bytes": 5, "compression": "zstd"}
    assert log.describe("t")[0].settings == changed.settings


def test_bad_names_and_settings_are_refused_by_name(log: Log) -> None:
    log.create_topic("t")
    with pytest.raises(TopicExists):
        log.create_topic("t")
    with pytest.raises(Refused, match="must conform"):
        log.create_topic("NO")
    with pytest.raises(Refused, match="retain_byte: no setting of a topic; there are message_size_limit"):
        log.configure_topic("t", retain_byte=1)
    with pytest.raises(Refused, match="retain_bytes: '1 GoB' is not a size"):
        log.configure_topic("t", retain_bytes="1 GoB")
    with pytest.raises(Refused, match="durability"):
        log.configure_topic("t", durability="maybe")
    with pytest.raises(NoSuchTopic):
        log.configure_topic("nope", retain_bytes=1)


def test_deleted_topic_is_absent_and_its_offsets_are_not_reused(log: Log) -> None:
    log.append("t", [b"0", b"1"])
    log.delete_topic("t")
    assert log.topics() == []
    with pytest.raises(NoSuchTopic):
        log.read("t")
    with pytest.raises(NoSuchTopic):
        log.delete_topic("t")
    assert log.append("t", [b"2"]) == [2]
    assert log.describe("t")[0].gaps == [Gap(0, 2, "deleted")]


def test_describe_returns_the_state_of_topics(log: Log) -> None:
    assert log.describe() == []
    for name in ("b", "a"):
        log.append(name, [b"x" * 100] * 3)
    first, second = log.describe()
    assert (first.name, second.name) == ("a", "b")
    entries = log.read("a")
    assert (first.start, first.end, first.segments) == (0, 3, 1)
    assert (first.oldest, first.newest) == (entries[0].timestamp, entries[2].timestamp)
    assert first.bytes > 300
    with pytest.raises(NoSuchTopic):
        log.describe("nope")


def test_cursors_are_stored_with_their_lag(log: Log) -> None:
    log.append("t", [b"%d" % number for number in range(10)])
    assert [entry.offset for entry in log.read("t", AtCursor("reader"))] == list(range(10))
    log.commit_cursor("t", "reader", 7)
    (cursor,) = log.cursors("t")
    assert (cursor.topic, cursor.name, cursor.offset, cursor.lag_entries) == ("t", "reader", 7, 3)
    assert cursor.lag_bytes > 0
    assert 0 < cursor.lag_seconds < 60
    assert log.cursors() == log.describe("t")[0].cursors or len(log.cursors()) == 1
    assert [entry.offset for entry in log.read("t", AtCursor("reader"))] == [7, 8, 9]
    assert next(log.follow("t", AtCursor("reader"))).offset == 7
    log.remove_cursor("t", "reader")
    assert log.cursors("t") == []
    with pytest.raises(Refused):
        log.commit_cursor("t", "NO NAME", 1)


def test_filters_are_applied_by_the_server(log: Log) -> None:
    for number in range(300):
        log.append("t", [b"%d" % number], {"userid": str(number % 10)})
    matches = [b"%d" % number for number in range(300) if number % 10 in (5, 7)]
    assert [entry.payload for entry in log.read("t", filter="k:userid v:5|7")] == matches
    assert [entry.payload for page in log.pages("t", filter="k:userid v:5|7") for entry in page.entries] == matches
    assert [entry.payload for entry in log.read("t", 100, 3, filter="v:5")] == [b"105", b"115", b"125"]
    assert log.read("t", filter="k:nobody") == []
    follower = log.follow("t", "earliest", filter="v:5|7")
    assert [entry.payload for entry in islice(follower, len(matches))] == matches
    assert log.table("t", filter="v:5|7", columns=["payload"]).column("payload").to_pylist() == matches
    assert log.table("t", 100, 200, filter="v:5").num_rows == 10


def test_bad_filter_is_refused_with_its_position(log: Log) -> None:
    log.append("t", [b"x"])
    for read in (lambda: log.read("t", filter="k:[a"), lambda: next(log.follow("t", filter="k:[a"))):
        with pytest.raises(Refused, match="bad filter at character 3: missing ]"):
            read()


def test_verify_and_cleanup_through_the_server(running: Running, log: Log) -> None:
    log.append("t", [b"0"])
    log.append("t", [b"1" * 1000])
    log.append("t", [b"2"])
    assert log.verify("t") == []
    assert log.cleanup() == []
    (segment,) = (running.folder / "t").glob("*.arrows")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"1" * 1000, b"1" * 999 + b"!"))
    assert log.verify("t") == [Gap(1, 2, "corrupt")]
    assert log.verify("t") == []
    assert [entry.payload for entry in log.read("t")] == [b"0", b"2"]
    with pytest.raises(NoSuchTopic):
        log.verify("nope")


def test_compact_through_the_server(log: Log) -> None:
    log.create_topic("t", segment_size_limit=20_000)
    for number in range(60):
        log.append("t", [b"%d" % number])
    compaction = log.compact("t")
    assert 0 < compaction.after < compaction.before
    assert [entry.payload for entry in log.read("t")] == [b"%d" % number for number in range(60)]


def test_administration_with_asyncio(running: Running) -> None:
    async def run() -> None:
        async with AsyncLog(running.bound.grpc) as log:
            await log.create_topic("t", segment_size_limit="1MiB")
            assert (await log.configure_topic("t", retain_bytes=5)).settings["retain_bytes"] == 5
            await log.append("t", [b"0", b"1"], {"a": "b"})
            assert (await log.describe("t"))[0].end == 2
            await log.commit_cursor("t", "reader", 1)
            assert (await log.cursors("t"))[0].lag_entries == 1
            assert [e.offset for e in await log.read("t", AtCursor("reader"), filter="k:a")] == [1]
            assert (await anext(log.follow("t", AtCursor("reader")))).offset == 1
            await log.remove_cursor("t", "reader")
            assert await log.verify("t") == []
            assert (await log.compact("t")).before == 0
            assert await log.cleanup() == []
            await log.delete_topic("t")
            assert await log.topics() == []
            with pytest.raises(ClientError):
                await log.describe("t")

    asyncio.run(asyncio.wait_for(run(), 60))
