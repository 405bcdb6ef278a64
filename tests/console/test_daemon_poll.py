"""Polling of the daemon by the console."""

from __future__ import annotations

import asyncio
import threading
from copy import copy
from typing import Any

import pytest

from penstock.console import daemon_poll
from penstock.console.daemon_poll import Daemon
from penstock.ledger.receipt import receipt
from penstock.log import LogClosed

BALANCE = {
    "listeners": [],
    "routes": [],
    "topics": [
        {"topic": "t", "fates": {"quarantined.bad_json": 7}, "read_by_pipeline": True, "logged": 7, "pending": 0},
    ],
    "unaccounted": 0,
}


class Answering(Daemon):
    """A daemon with one balance."""

    async def get(self, path: str, **_: object) -> Any:
        return {"/balance": BALANCE, "/events": {"events": []}}.get(path, {})


def first_parts(daemon: Daemon) -> dict[str, int]:
    """Return the parts of the receipt that the first balance shows."""

    async def poll() -> dict[str, int]:
        polling = asyncio.create_task(daemon.poll_forever())
        async with asyncio.timeout(20):
            while not daemon.balance:
                await asyncio.sleep(0)
        polling.cancel()
        assert daemon.receipt is not None
        return daemon.receipt.parts

    return asyncio.run(poll())


def test_first_receipt_says_what_was_sent_back() -> None:
    parts = first_parts(
        Answering("http://127.0.0.1:1", read_table_facts=lambda: {"sent_back": {"t": {"quarantined.bad_json": 5}}})
    )
    assert (parts["quarantined"], parts["sent_back"]) == (2, 5)


def test_balance_is_shown_although_sent_rows_cannot_be_counted() -> None:
    def fail() -> dict[str, Any]:
        raise LogClosed("damaged")

    assert first_parts(Answering("http://127.0.0.1:1", read_table_facts=fail)) == receipt(BALANCE).parts


def test_polls_do_not_wait_while_sent_rows_are_counted() -> None:
    go_on, calls = threading.Event(), iter(range(10))

    def count_slowly() -> dict[str, Any]:
        if next(calls):
            assert go_on.wait(20)
        return {}

    async def poll_twice_during_a_count() -> None:
        daemon = Answering("http://127.0.0.1:1", read_table_facts=count_slowly)
        polling = asyncio.create_task(daemon.poll_forever())
        async with asyncio.timeout(20):
            while next(copy(calls)) < 2:
                await asyncio.sleep(0.001)
            answered = daemon.answered_s
            while daemon.answered_s == answered:
                await asyncio.sleep(0.001)
        go_on.set()
        polling.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(daemon_poll, "POLL_INTERVAL_S", 0.01)
        asyncio.run(poll_twice_during_a_count())
