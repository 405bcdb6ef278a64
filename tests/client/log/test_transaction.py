from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from penstock import records
from penstock.client import AsyncLog, Log, OutOfSequence, Refused, TransactionTimedOut, Unavailable
from penstock.testing.pipe import wait_until
from tests.client.client_proxy import Proxy
from tests.server.running import Running


@pytest.fixture
def log(proxy: Proxy) -> Iterator[Log]:
    with Log(proxy.address) as client:
        yield client


def payloads(log: Log, topic: str) -> list[bytes | None]:
    return [entry.payload for entry in log.read(topic)]


def test_rows_are_visible_only_after_the_commit(log: Log) -> None:
    log.append("a", [b"before"])
    with log.transaction() as transaction:
        transaction.append("a", [b"0", b"1"], {"k": "v"})
        transaction.append("b", [b"2"])
        transaction.append("a", [b"3"])
        assert payloads(log, "a") == [b"before"]
        assert log.topics() == ["a"]
        log.append("a", [b"meanwhile"])
    assert transaction.offsets == {"a": [2, 3, 4], "b": [0]}
    assert payloads(log, "a") == [b"before", b"meanwhile", b"0", b"1", b"3"]
    assert log.read("a", 2)[0].annotations == {"k": "v"}


def failing(log: Log) -> None:
    with log.transaction() as transaction:
        transaction.append("a", [b"x"])
        raise KeyError


def test_exception_aborts_the_transaction(log: Log) -> None:
    log.append("a", [b"before"])
    with pytest.raises(KeyError):
        failing(log)
    assert payloads(log, "a") == [b"before"]


def test_transaction_outside_its_with_block_is_refused(log: Log) -> None:
    transaction = log.transaction()
    with pytest.raises(ValueError, match="not open"):
        transaction.append("a", [b"early"])
    with transaction:
        transaction.append("a", [b"in time"])
    with pytest.raises(ValueError, match="not open"):
        transaction.append("a", [b"late"])


def test_refused_append_aborts_the_transaction(log: Log) -> None:
    log.append("a", [b"before"])
    transaction = log.transaction()
    with pytest.raises(Refused, match="must conform"), transaction:
        transaction.append("NO", [b"x"])
    assert payloads(log, "a") == [b"before"]


def test_commit_of_other_rows_under_a_stored_number_is_out_of_sequence(log: Log) -> None:
    def commit(payload: bytes) -> None:
        with log.transaction() as transaction:
            transaction.append_batch("a", records.body([payload]), ("p", 0))

    commit(b"first")
    commit(b"first")
    with pytest.raises(OutOfSequence, match="stored already, with other rows"):
        commit(b"other")
    assert payloads(log, "a") == [b"first"]


def test_transaction_open_for_too_long_is_aborted(log: Log) -> None:
    def slow() -> None:
        with log.transaction(timeout=0.1) as transaction:
            transaction.append("a", [b"x"])
            time.sleep(0.3)

    with pytest.raises(TransactionTimedOut):
        slow()
    assert log.topics() == []


@pytest.mark.survives("transactions", "peer away")
def test_broken_connections_neither_lose_nor_repeat_rows(proxy: Proxy, log: Log) -> None:
    for number in range(6):
        with log.transaction() as transaction:
            proxy.swallow = number % 3 == 0
            transaction.append("a", [b"%d" % number])
            proxy.swallow = number % 3 == 1
            transaction.append("b", [b"%d" % number])
            proxy.swallow = number % 3 == 2
        assert transaction.offsets == {"a": [number], "b": [number]}
    assert payloads(log, "a") == payloads(log, "b") == [b"%d" % number for number in range(6)]


def test_append_with_a_lost_answer_is_stored_once(proxy: Proxy, log: Log) -> None:
    for number in range(10):
        proxy.swallow = True
        assert log.append("a", [b"%d" % number]) == [number]
    assert payloads(log, "a") == [b"%d" % number for number in range(10)]


def test_threads_over_a_breaking_connection_store_each_row_once(proxy: Proxy, log: Log) -> None:
    acknowledged: list[int] = []

    def run(thread: int) -> None:
        for number in range(30):
            log.append("a", [b"%d.%d" % (thread, number)])
            acknowledged.append(thread)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        # On a slow machine no append would ever come through if the connections broke by the clock alone.
        before = len(acknowledged)
        wait_until(lambda before=before: len(acknowledged) > before or not any(map(threading.Thread.is_alive, threads)))
        time.sleep(0.15)
        proxy.cut()
    stored = payloads(log, "a")
    for thread in range(8):
        of_thread = [payload for payload in stored if payload is not None and payload.startswith(b"%d." % thread)]
        assert of_thread == [b"%d.%d" % (thread, number) for number in range(30)]


def test_unavailable_server_is_an_error_and_the_next_append_is_new(proxy: Proxy, running: Running) -> None:
    with Log(proxy.address, retry_for=0.2) as log:
        log.append("a", [b"0"])
        proxy.refuse()
        with pytest.raises(Unavailable):
            log.append("a", [b"1"])
        proxy.refuse(False)
    with Log(running.bound.grpc) as log:
        log.append("a", [b"2"])
        assert payloads(log, "a") == [b"0", b"2"]


async def failing_async(log: AsyncLog) -> None:
    async with log.transaction() as transaction:
        await transaction.append("c", [b"x"])
        raise KeyError


def test_transactions_with_asyncio(proxy: Proxy) -> None:
    async def run() -> None:
        async with AsyncLog(proxy.address) as log:
            for number in range(3):
                async with log.transaction() as transaction:
                    proxy.swallow = number == 0
                    await transaction.append("a", [b"0", b"1"])
                    proxy.swallow = number == 1
                    await transaction.append("b", [b"2"])
                    proxy.swallow = number == 2
                assert transaction.offsets == {"a": [2 * number, 2 * number + 1], "b": [number]}
            with pytest.raises(KeyError):
                await failing_async(log)
            assert await log.topics() == ["a", "b"]

    asyncio.run(asyncio.wait_for(run(), 60))
