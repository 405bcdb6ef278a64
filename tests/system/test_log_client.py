"""A client of the log survives the death of its daemon: no entry is lost or repeated."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from penstock.client import Log
from penstock.testing.pipe import Pipe, wait_until

ROUNDS = 2


@pytest.mark.survives("client", "SIGKILL")
def test_appends_and_transactions_survive_a_killed_daemon(pipe: Pipe) -> None:
    stop = threading.Event()
    appended: list[bytes] = []
    committed: list[bytes] = []
    failures: list[BaseException] = []

    def append() -> None:
        with Log(pipe.grpc, retry_for=90) as log:
            while not stop.is_set():
                payload = b"%d" % len(appended)
                log.append("plain", [payload, payload])
                appended.append(payload)

    def commit() -> None:
        with Log(pipe.grpc, retry_for=90) as log:
            while not stop.is_set():
                payload = b"%d" % len(committed)
                with log.transaction() as transaction:
                    transaction.append("one", [payload])
                    transaction.append("two", [payload])
                    transaction.append("one", [payload])
                committed.append(payload)

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (append, commit)]
    for thread in threads:
        thread.start()
    with Log(pipe.grpc, retry_for=90) as log:
        try:
            while "plain" not in log.topics() and not failures:
                time.sleep(0.05)
            follower = log.follow("plain", "earliest")
            followed = [entry.payload for entry in islice(follower, 2)]
            for _ in range(ROUNDS):
                before = len(appended), len(committed)
                pipe.kill("log daemon")
                while (len(appended) < before[0] + 10 or len(committed) < before[1] + 10) and not failures:
                    time.sleep(0.05)
        finally:
            stop.set()
        for thread in threads:
            thread.join(120)
        assert failures == []
        twice = [payload for payload in appended for _ in range(2)]
        assert followed + [entry.payload for entry in islice(follower, len(twice) - 2)] == twice
        assert [entry.payload for page in log.pages("plain") for entry in page.entries] == twice
        assert [entry.payload for page in log.pages("two") for entry in page.entries] == committed
        double = [payload for payload in committed for _ in range(2)]
        assert [entry.payload for page in log.pages("one") for entry in page.entries] == double


@pytest.mark.survives("client", "SIGSTOP")
def test_append_that_a_stopped_daemon_does_not_answer_is_repeated_and_stored_once(pipe: Pipe) -> None:
    retries = list[object]()
    with Log(pipe.grpc, timeout=0.5, retry_for=90, on_retry=lambda *why: retries.append(why)) as log:
        log.append("plain", [b"before"])
        with ThreadPoolExecutor(1) as pool:
            with pipe.paused("log daemon"):
                append = pool.submit(log.append, "plain", [b"during"])
                wait_until(lambda: retries or append.done(), what="the append is repeated")
                assert not append.done()
            append.result(60)
        log.append("plain", [b"after"])
        stored = [entry.payload for page in log.pages("plain") for entry in page.entries]
    assert stored == [b"before", b"during", b"after"]
