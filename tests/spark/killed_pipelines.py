"""Pipelines that are killed while they land, and what has to hold in the end."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import duckdb

import penstock.tables
from penstock.landing.table_paths import Layout
from penstock.proof.proofs import Proof, read_proofs
from penstock.proof.prover import rebuild
from tests.spark.spark_daemon import Daemon
from tests.spark.test_pipeline import append, proved_to, start, wait_for

ROWS = 300
"""Events of an append; it has two rows more that land, and one that does not."""
At = Callable[[], AbstractContextManager[object]]


def kill_pipelines(
    running: Daemon,
    folder: Path,
    layout: Layout,
    options: list[str],
    kills: int,
    chance: random.Random,
    at: At = nullcontext,
    pythons: Sequence[Path | str] = (sys.executable,),
) -> None:
    """Each in the middle of a batch, within ``at``; ROWS events before, and as many while it is at work.

    ``pythons``: their interpreters, in turn.
    """
    for kill in range(kills):
        append(running, kill * ROWS, ROWS)
        before = plans(layout)
        killed = start(folder, running.http, *options, python=pythons[kill % len(pythons)])
        wait_for(lambda before=before: plans(layout) - before)
        append(running, (kill + kills) * ROWS, ROWS)
        time.sleep(chance.random() * 2)
        with at():
            killed.kill()
            killed.wait()


def plans(layout: Layout) -> set[tuple[str, int]]:
    """Return the planned batches, with an identity that changes if a batch is planned again."""
    plans = set()
    for path in (layout.checkpoint / "offsets").glob("[0-9]*"):
        with suppress(FileNotFoundError):  # planned anew
            plans.add((path.name, path.stat().st_mtime_ns))
    return plans


def clicks_in_duckdb(tables: Path) -> tuple[int, int]:
    """Return the number of events, and of different ones, as DuckDB reads the table."""
    events = penstock.tables.open(tables, "events")  # noqa: F841  DuckDB finds it by its name
    rows = duckdb.sql("SELECT count(*), count(DISTINCT uuid) FROM events WHERE type = 'click'").fetchall()
    return rows[0][0], rows[0][1]


def proved_once(folder: Path, layout: Layout, kills: int) -> list[Proof]:
    """Check the proofs of all batches, stored and recomputed."""
    assert proved_to(layout) == 2 * kills * (ROWS + 3)
    proofs = [proof for proofs in read_proofs(layout) for proof in proofs]
    assert all(proof.holds for proof in proofs)
    assert list(rebuild(folder / "topics", layout)) == proofs
    return proofs
