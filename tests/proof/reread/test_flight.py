"""Proofs that read the log again over Flight: the same as from its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.client import Unavailable
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.journal import Journal
from penstock.landing.offset_runs import NO_RUNS, as_runs, offsets_of, runs_of
from penstock.proof.proofs import Proof
from penstock.proof.prover import Prover
from penstock.proof.reread import messages as reread
from penstock.proof.reread.flight import FlightRecords, log_records
from penstock.proof.reread.messages import LogRecords
from tests.spark.spark_flight import served
from tests.spark.spark_helpers import HandWritten, append, event, flip, landed_event


def prove(topics: Path, table: HandWritten, records: FlightRecords | LogRecords) -> list[Proof]:
    prover = Prover(topics, table.layout, log=records)
    return [proof for commit in Journal(table.layout).update() for proof in prover.prove(commit)]


def test_proof_over_flight_equals_proof_of_folder(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1)], [event(2), b"{damaged"], [b"missing", event(3)])
    flip(topics, "t", b"{damaged")
    table.commit({"t": 6}, [landed_event(0, "u1"), landed_event(5, "u3")])
    with served(topics) as server:
        (proof,) = prove(topics, table, FlightRecords(DaemonConnection(server.address)))
    assert proof.unaccounted == [4]
    assert proof.total("duplicate") == 1
    assert proof.total("gap.corrupt") == 2
    table.layout.journal.unlink()
    assert prove(topics, table, LogRecords(topics)) == [proof]


def test_suspects_over_flight_equal_suspects_of_folder(topics: Path) -> None:
    append(topics, "t", [event(n) for n in range(50)], [b"{x", None], codec="syslog")
    append(topics, "t", [event(n, kind="other") for n in range(50)], [b"<1>x"])
    offsets = np.array([1, 7, 49, 50, 51, 60, 102])
    runs = runs_of(offsets)
    with served(topics) as server:
        reread_rows = FlightRecords(DaemonConnection(server.address), ("other",)).read_again("t", runs)
    assert reread_rows.suspects == LogRecords(topics, ("other",)).read_again("t", runs).suspects
    assert [suspect.offset for suspect in reread_rows.suspects] == offsets.tolist()


@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 30), (1 << 30, 1), (3, 200)])
def test_size_of_parts_does_not_change_suspects(
    topics: Path, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    append(topics, "t", *([event(n), b"{x", event(n + 1)] for n in range(0, 20, 2)))
    runs = as_runs([(0, 2), (4, 20), (25, 30)])
    expected = LogRecords(topics).read_again("t", runs).suspects
    monkeypatch.setattr(reread, "MAX_ROWS", rows)
    monkeypatch.setattr(reread, "MAX_BYTES", size)
    assert LogRecords(topics).read_again("t", runs).suspects == expected
    assert [suspect.offset for suspect in expected] == offsets_of(runs).tolist()


def test_missing_topic_has_no_suspects(topics: Path) -> None:
    with served(topics) as server:
        records = FlightRecords(DaemonConnection(server.address))
        assert records.gaps("gone") == []
        assert records.read_again("gone", as_runs([(3, 4)])).suspects == []
        assert records.read_again("gone", NO_RUNS).suspects == []


def test_unreachable_daemon_raises_unavailable() -> None:
    records = log_records(DaemonConnection("127.0.0.1:1", retry_for=0.1))
    assert records is not None
    with pytest.raises(Unavailable):
        records.gaps("t")
    assert log_records(None) is None
