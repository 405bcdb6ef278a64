"""Posts of topics that moved to Kafka, to the real ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.from_kafka.offset_map import Move, OffsetMap, map_path
from penstock.landing.table_paths import Layout
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient
from penstock.proof.posts.moved_topics import post_moves
from penstock.proof.proofs import Proof
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import BUCKET, append


def test_move_is_posted_after_the_proofs_of_the_rows_that_landed_from_the_log(tmp_path: Path) -> None:
    topics, layout = tmp_path / "topics", Layout(tmp_path / "tables")
    append(topics, "t", [b"1", b"2", b"3"])
    offset_map = OffsetMap.begin(map_path(layout, "t"), "t", "t", {0: 5})
    offset_map.add([2], [(0, 5)], 3)
    offset_map.record_move(Move(2, {0: 5}, BUCKET))
    proof = Proof(0, "t", 0, 2)
    proof.add(("events-udp", BUCKET), "landed.message", 2)
    with daemon(tmp_path) as running:
        ledger = LedgerClient(running.http)
        with pytest.raises(LedgerAway, match="it does not have all yet that has landed of t"):
            post_moves(topics, layout, ledger)
        assert ledger.through() == {}
        ledger.post(proof)
        for _ in range(2):
            post_moves(topics, layout, ledger)
        assert ledger.through() == {"t": 3, "t/0": 5}
        landed = running.ledger.landed()["t"]
        assert landed.counts == {("events-udp", BUCKET): {"landed.message": 2, "promoted": 1}}
        assert running.ledger.balance().unaccounted == 0
