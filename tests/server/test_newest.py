"""What was stored last is given without a look at the files, and only where nothing is missing in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.counts import Origin
from penstock.log import Log, Topic, TopicReader
from penstock.records import body
from penstock.server.entries_api import EntriesApi
from penstock.server.newest import LARGEST, MOST, NewestOfTopics
from penstock.server.read_query import Query
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.encode import response


@pytest.fixture
def log(tmp_path: Path):
    log = Log(tmp_path / "topics")
    yield log
    log.close()


def _store(topic: Topic, *messages: bytes) -> None:
    topic.append(body(list(messages)), Origin("x", 0, 0, 0)).result(10)


def test_batches_go_on_at_the_offset_asked_for_and_end_before_one_that_is_too_large(log: Log) -> None:
    topic, kept = log.topic("events", create=True), NewestOfTopics()
    _store(topic, b"before")
    with kept.of(topic) as newest:
        _store(topic, b"1", b"2")
        _store(topic, b"3")
        _store(topic, bytes(LARGEST))
        _store(topic, b"5")
        found = newest.behind(1)
        assert [batch.column("payload").to_pylist() for batch in found] == [[b"1", b"2"], [b"3"]]
        assert [batch.column("offset")[0].as_py() for batch in found] == [1, 3]
        assert [batch.num_rows for batch in newest.behind(5)] == [1]
        assert [newest.behind(offset) for offset in (0, 2, 4, 6, 99)] == [[]] * 5


def test_few_are_kept_and_none_where_nobody_follows(log: Log) -> None:
    topic, kept = log.topic("events", create=True), NewestOfTopics()
    with kept.of(topic) as first:
        with kept.of(topic) as second:
            assert first is second
            for number in range(MOST + 1):
                _store(topic, b"%d" % number)
        assert first.behind(0) == []
        assert len(first.behind(1)) == MOST
    _store(topic, b"nobody")
    assert first.behind(MOST + 1) == []
    with kept.of(topic) as again:
        assert again.behind(1) == []


@pytest.mark.anyio
async def test_a_stream_at_the_end_of_a_topic_reads_no_file_and_goes_on_in_files_where_much_comes_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, topic, reads = EntriesApi(log), log.topic("events", create=True), list[int]()
    read = TopicReader.read_joined

    def counted(self: TopicReader, offset: int, **limits: int):
        reads.append(offset)
        return read(self, offset, **limits)

    monkeypatch.setattr(TopicReader, "read_joined", counted)
    pages = await api.follow(Query.of(pb.GetLogsRequest(topic="events")), response)
    found: list[bytes] = []

    async def until(count: int) -> None:
        while len(found) < count:
            page = await anext(pages)
            found.extend(entry.raw_bytes for entry in pb.GetLogsResponse.FromString(page).logs)

    _store(topic, b"0")  # nobody follows it yet
    await until(1)
    reads.clear()
    for number in range(1, 20):
        _store(topic, b"%d" % number)
        await until(number + 1)
    assert reads == []
    for number in range(20, 20 + 2 * MOST):
        _store(topic, b"%d" % number)
    await until(20 + 2 * MOST)
    assert reads
    assert found == [b"%d" % number for number in range(20 + 2 * MOST)]
    await pages.aclose()
    api.close()
    api.release()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
