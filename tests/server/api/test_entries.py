from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from penstock.client import Unavailable
from penstock.client.log import calls
from penstock.files.file_system import File, SystemFile, SystemFiles
from penstock.log import Log, TopicSettings
from penstock.log.errors import in_doubt
from penstock.records import body
from penstock.server.api.entries import INLINE_SIZE, EntriesApi
from penstock.server.auth.permitted_topics import MAX_IDLE_READERS, MAX_IDLE_READERS_PER_TOPIC, api_error
from penstock.server.auth.rights import ANONYMOUS
from penstock.server.reading.query import Query
from penstock.slogd.columns.decode import Append
from penstock.slogd.errors import BadRequest, Code, Damaged, Exhausted, NoSuchTopic, NotAllowed, Stopping

GREETING = b"hello, a payload to be found in the file"


def offsets(batches: list[pa.RecordBatch], _: int = 0) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncIterator[EntriesApi]:
    log = Log(folder, TopicSettings(message_size_limit=1000), **options)
    api = EntriesApi(log)
    try:
        yield api
    finally:
        api.close()
        api.release()
        await asyncio.to_thread(log.close)


async def append(api: EntriesApi, topic: str, *payloads: bytes, size: int = 0) -> range:
    request = await api.parsed(lambda: Append(topic, body(payloads)), size)
    return (await api.append(request, "grpc")).offsets


def test_append_of_disconnected_caller_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            await append(api, "t", b"0")
            leaving = asyncio.create_task(append(api, "t", b"1"))
            await asyncio.sleep(0)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            last = await append(api, "t", b"2", size=INLINE_SIZE + 1)
            assert await api.get(Query("t"), offsets) == list(range(last.stop))

    asyncio.run(run())


def test_refusal_of_the_log_becomes_an_api_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path, max_topics=1) as api:
            await append(api, "t")
            with pytest.raises(BadRequest, match=r"1001 bytes; topic t takes at most 1000 \(message_size_limit\)"):
                await append(api, "t", b"x" * 1001)
            with pytest.raises(BadRequest):
                await append(api, "x" * 5000)
            with pytest.raises(Exhausted):
                await append(api, "another")
            with pytest.raises(NotAllowed):
                await append(api, "_ledger")
            with pytest.raises(NoSuchTopic):
                await api.get(Query("nope"), offsets)
            assert list(await append(api, "t", b"x")) == [0]
        with pytest.raises(Stopping):
            await append(api, "t", b"x")

    asyncio.run(run())


def test_append_in_doubt_is_unavailable_so_that_clients_repeat_it() -> None:
    error = api_error(in_doubt(OSError(errno.EIO, "Input/output error")))
    assert (error.code, error.status) == (Code.UNAVAILABLE, 503)
    seen = calls.failure(grpc.StatusCode.UNAVAILABLE, error.message, "127.0.0.1:8845")
    assert isinstance(seen, Unavailable)
    assert str(seen) == (
        "The server cannot write, nor remove what was written: Input/output error; a crash may store it"
    )


class FullDisk(SystemFiles):
    """Files that refuse writes while ``full``."""

    full = False

    def open(self, path: Path, *, create: bool = False) -> File:
        return FullFile(path, create, self)


class FullFile(SystemFile):
    def __init__(self, path: Path, create: bool, disk: FullDisk) -> None:
        super().__init__(path, create)
        self._disk = disk

    def write(self, parts: Sequence[Any], position: int) -> int:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(parts, position)


def test_full_disk_refuses_appends_and_allows_reads(tmp_path: Path) -> None:
    async def run() -> None:
        disk = FullDisk()
        async with served(tmp_path, fs=disk) as api:
            await append(api, "t", b"0")
            disk.full = True
            for topic in ("t", "t", "new"):
                with pytest.raises(Exhausted):
                    await append(api, topic, b"x")
            assert await api.get(Query("t"), offsets) == [0]
            disk.full = False
            assert list(await append(api, "t", b"1")) == [1]
            assert list(await append(api, "new", b"0")) == [0]
            assert await api.get(Query("t"), offsets) == [0, 1]

    asyncio.run(run())


def flip(folder: Path, payload: bytes) -> None:
    """Change one byte of a stored payload."""
    (path,) = [path for path in folder.rglob("*.arrows") if payload in path.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.index(payload)] ^= 1
    with open(path, "r+b") as file:
        file.write(data)


def test_damaged_batch_becomes_a_gap_and_reading_continues(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            for payload in (b"0", GREETING, b"2"):
                await append(api, "t", payload)
            flip(tmp_path, GREETING)
            assert await api.get(Query("t", offset=1), offsets) == [2]
            assert await api.get(Query("t"), offsets) == [0, 2]
            assert await api.get(Query("t", latest=True, max_messages=2), offsets) == [0, 2]
            stream = await api.follow(Query("t"), offsets)
            assert await anext(stream) == [0, 2]
            await stream.aclose()

    asyncio.run(run())


def test_unreadable_batch_raises_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            await append(api, "t", GREETING)
            flip(tmp_path, GREETING)
            topic = api.topics.readable("t", ANONYMOUS)
            monkeypatch.setattr(type(topic), "verify", lambda self, begin, end: [])
            with pytest.raises(Damaged):
                await api.get(Query("t"), offsets)

    asyncio.run(run())


def test_closing_the_api_ends_and_forgets_all_streams(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            await append(api, "t", b"0")
            stream = await api.follow(Query("t"), offsets)
            assert await anext(stream) == [0]
            assert api.open_streams == 1
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            api.close()
            with pytest.raises(Stopping):
                await waiting
            assert api.open_streams == 0

    asyncio.run(run())


def test_abandoned_stream_is_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            await append(api, "t")
            stream = await api.follow(Query("t"), offsets)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            assert api.open_streams == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert api.open_streams == 0
            assert list(await append(api, "t", b"0")) == [0]

    asyncio.run(run())


def test_internal_topics_can_be_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            with pytest.raises(NoSuchTopic):
                await api.get(Query("_ledger"), offsets)
            api.topics.log.topic("_ledger", create=True, internal=True)
            assert await api.get(Query("_ledger"), offsets) == []
            assert await api.names() == []

    asyncio.run(run())


def test_reused_reader_returns_new_entries(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path) as api:
            for number in range(3):
                await append(api, "t", b"x")
                assert await api.get(Query("t"), offsets) == list(range(number + 1))
            topic = api.topics.readable("t", ANONYMOUS)
            with api.topics.reader(topic) as first, api.topics.reader(topic) as second:
                assert first is not second
            for topic_to_read in (second, first, second):  # each in turn: none keeps what is deleted
                with api.topics.reader(topic) as again:
                    assert again is topic_to_read
            with contextlib.ExitStack() as stack:
                many = [stack.enter_context(api.topics.reader(topic)) for _ in range(9)]
            with contextlib.ExitStack() as stack:
                readers = [stack.enter_context(api.topics.reader(topic)) for _ in range(9)]
            assert len([reader for reader in readers if reader in many]) == MAX_IDLE_READERS_PER_TOPIC
            for number in range(MAX_IDLE_READERS + 1):
                await append(api, f"t{number}", b"x")
                await api.get(Query(f"t{number}"), offsets)
            with api.topics.reader(topic) as new:
                assert new not in (first, second)

    asyncio.run(run())
