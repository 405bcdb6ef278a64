"""Tables of an earlier version carried over: every row under its batch's number, whatever stops it on the way."""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path
from typing import Any

import deltalake
import pytest

from penstock.landing.journal import read_journal
from penstock.landing.proof.proofs import proved_refills, read_proofs
from penstock.landing.proof.prover import rebuild
from penstock.landing.table.begun_table import DELTA, PARQUET, FormatDiffers, begin_table, begun_as, is_old, table_of
from penstock.landing.table_paths import Layout
from penstock.landing.writing import upgrade as carrying
from penstock.landing.writing.upgrade import upgrade

ARCHIVE = Path(__file__).parents[2] / "golden" / "0.1.0.tar.xz"


@pytest.fixture
def old(tmp_path: Path) -> Layout:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Layout.of(tmp_path / "data" / "tables")


class Stopped(Exception):
    """As a kill would."""


def check(layout: Layout) -> None:
    """The proofs of before hold for the table of now."""
    written = [proof for proofs in read_proofs(layout) for proof in proofs]
    assert list(rebuild(layout.tables.parent / "topics", layout)) == [*written, *proved_refills(layout)]
    assert [batch for batch, _ in table_of(layout).files()] == [commit.batch for commit in read_journal(layout)]
    assert not is_old(layout)
    assert not (layout.tables / "_upgrade").exists()


def test_a_table_that_was_not_carried_over_is_refused_with_the_command(old: Layout) -> None:
    assert is_old(old)
    with pytest.raises(FormatDiffers, match="penstock tables upgrade"):
        begin_table(old, DELTA)


@pytest.mark.parametrize("form", [DELTA, PARQUET])
def test_every_row_is_there_with_its_proof(old: Layout, form: str) -> None:
    assert upgrade(old, form) == 2
    assert begun_as(old) == form
    check(old)
    assert upgrade(old, form) == 0
    assert (old.tables / "_landed_before").is_dir()


def test_data_that_was_variant_is_json_text(old: Layout) -> None:
    upgrade(old)
    rows = deltalake.DeltaTable(str(old.landed)).to_pyarrow_table(filters=[("kind", "=", "event")])
    assert all(row["data"].startswith('{"number":') for row in rows.to_pylist())
    assert len(set(rows["uuid"].to_pylist())) == rows.num_rows > 0


def stopping(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, after: int) -> None:
    """Have a call fail once it was made so often."""
    call, left = getattr(place, name), [after]

    def wrapped(*arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped
        return call(*arguments, **more)

    monkeypatch.setattr(place, name, wrapped)


STOPS = [*((carrying, "_rewritten", n) for n in range(8)), (carrying, "append_lines", 0)]
MOVES = [*((os, "replace", n) for n in range(12)), (carrying, "write_document", 0), (carrying, "write_document", 1)]


@pytest.mark.parametrize(("place", "name", "after"), [*STOPS, *MOVES])
@pytest.mark.parametrize("form", [DELTA, PARQUET])
def test_stopped_anywhere_it_goes_on(
    old: Layout, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, after: int, form: str
) -> None:
    with monkeypatch.context() as patched:
        stopping(patched, place, name, after)
        with contextlib.suppress(Stopped):
            upgrade(old, form)
    upgrade(old, form)
    check(old)
