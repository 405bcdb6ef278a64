"""Posting proofs to the real ledger."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.proof.ledger_posts import LedgerAway, LedgerClient, LedgerRefused
from penstock.proof.proofs import Proof
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET, append, flip


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    append(tmp_path / "topics", "t", [b"one"], [b"damaged"])
    with daemon(tmp_path) as posts:
        flip(tmp_path / "topics", "t", b"damaged")
        yield posts


def proof(batch: int, begin: int, end: int, topic: str = "t") -> Proof:
    requests = Proof(batch, topic, begin, end)
    requests.add(("events-udp", BUCKET), "landed.message", end - begin)
    return requests


def test_what_is_posted_is_in_the_ledger_with_how_far_it_goes(running: Daemon) -> None:
    client = LedgerClient(running.http)
    assert client.through() == {}
    client.post(proof(0, 0, 1))
    client.post(proof(0, 0, 1))
    assert client.through() == {"t": 1}
    assert running.ledger.landed()["t"].counts == {("events-udp", BUCKET): {"landed.message": 1}}


def test_a_corrupt_range_becomes_a_gap_when_the_daemon_verifies_it(running: Daemon) -> None:
    LedgerClient(running.http).verify("t", 0, 2)
    assert [(gap.begin, gap.end) for gap in running.log.topic("t").gaps()] == [(1, 2)]


def test_a_topic_that_the_log_does_not_know_is_refused(running: Daemon) -> None:
    client = LedgerClient(running.http)
    with pytest.raises(LedgerRefused):
        client.post(proof(0, 0, 1, topic="unknown"))


def test_a_daemon_that_is_not_there_is_away() -> None:
    with socket.socket() as rows:
        rows.bind(("127.0.0.1", 0))
        client = LedgerClient(f"127.0.0.1:{rows.getsockname()[1]}")
        for ask in (client.through, lambda: client.post(proof(0, 0, 1)), lambda: client.verify("t", 0, 1)):
            with pytest.raises(LedgerAway):
                ask()
