"""Posting proofs to the real ledger."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient, LedgerRefused
from penstock.proof.proofs import Proof
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET, append, flip


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    append(tmp_path / "topics", "t", [b"one"], [b"damaged"])
    with daemon(tmp_path) as ledger_daemon:
        flip(tmp_path / "topics", "t", b"damaged")
        yield ledger_daemon


def proof(batch: int, begin: int, end: int, topic: str = "t") -> Proof:
    counted_proof = Proof(batch, topic, begin, end)
    counted_proof.add(("events-udp", BUCKET), "landed.message", end - begin)
    return counted_proof


def test_post_adds_counts_and_end_once(running: Daemon) -> None:
    client = LedgerClient(running.http)
    assert client.through() == {}
    client.post(proof(0, 0, 1))
    client.post(proof(0, 0, 1))
    assert client.through() == {"t": 1}
    assert running.ledger.landed()["t"].counts == {("events-udp", BUCKET): {"landed.message": 1}}


def test_verify_turns_corrupt_range_into_gap(running: Daemon) -> None:
    LedgerClient(running.http).verify("t", 0, 2)
    assert [(gap.begin, gap.end) for gap in running.log.topic("t").gaps()] == [(1, 2)]


def test_unknown_topic_is_refused(running: Daemon) -> None:
    client = LedgerClient(running.http)
    with pytest.raises(LedgerRefused):
        client.post(proof(0, 0, 1, topic="unknown"))


def test_unreachable_daemon_raises_ledger_away() -> None:
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))
        client = LedgerClient(f"127.0.0.1:{closed_port.getsockname()[1]}")
        for request in (client.through, lambda: client.post(proof(0, 0, 1)), lambda: client.verify("t", 0, 1)):
            with pytest.raises(LedgerAway):
                request()
