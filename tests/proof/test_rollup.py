"""Rollup of old lines of journal and proofs: all readers get the same content."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.counts import Counts
from penstock.files.checked_lines import append_lines
from penstock.files.file_system import OS, FileSystem
from penstock.landing.history import Stretch, Sum, days, read_day, read_sum, stretches, write_day
from penstock.landing.journal import Commit, Journal, landed_ends, latest, read_journal, violations_by_rule
from penstock.landing.table_paths import Layout
from penstock.proof import rollup
from penstock.proof.proofs import (
    Proof,
    latest_proofs,
    proved_backfills,
    proved_batches,
    read_proofs,
    write_proofs,
)
from penstock.proof.prover import Prover, rebuild
from penstock.proof.status import status
from penstock.testing.crashes import Crashed, CrashingFileSystem
from tests.spark.spark_helpers import BUCKET, LANDED_AT, HandWritten, append, event, landed_event, landed_message

DAY = 86_400_000
MIDNIGHT = LANDED_AT // DAY * DAY


def roll_up(layout: Layout, through: int, fs: FileSystem = OS, day: int = 0) -> int:
    """Roll up on the day of the first batch, or ``day`` days later."""
    return rollup.roll_up(layout, through, lambda: MIDNIGHT / 1000 + day * DAY / 1000, fs)


def prove_all(topics: Path, table: HandWritten) -> None:
    """Prove all committed batches and write their proofs."""
    prover = Prover(topics, table.layout)
    for commit in Journal(table.layout).update():
        write_proofs(table.layout, commit.batch, prover.prove(commit), prover.backfills(commit))


def commit_ten_batches(topics: Path, table: HandWritten, days: int = 1) -> None:
    """Commit ten batches of two topics, with a duplicate and a lost message; each batch has three offsets of a
    topic.
    """
    for n in range(10):
        append(topics, "a", [event(n), b"x", event(n)])
        end, begin = {"a": 3 * n + 3}, 3 * n
        rows = [landed_event(begin, f"u{n}", "a"), landed_message(begin + 1, "a")]
        if n == 4:
            append(topics, "b", [b"x", b"lost"])
            end, rows = end | {"b": 2}, [*rows, landed_message(0, "b")]
        table.commit(end, rows, MIDNIGHT + n * days * DAY // 10)
    prove_all(topics, table)


def offsets_by_topic(layout: Layout) -> dict[str, list[int]]:
    """Return the offsets of all commits by topic, in order."""
    offsets: dict[str, list[int]] = {}
    for commit in read_journal(layout):
        for topic, (begin, end) in commit.ranges().items():
            offsets.setdefault(topic, []).extend(range(begin, end))
    return offsets


def fates(proofs: Iterator[Proof]) -> dict[tuple[str, str, int], dict[str, int]]:
    """Return all counts and sums of uuids by topic, source and minute."""
    total: dict[tuple[str, str, int], Counts] = {}
    for proof in proofs:
        for (source, bucket), counts in [*proof.counts_by.items(), *proof.uuids.items()]:
            total.setdefault((proof.topic, source, bucket), Counts()).absorb(counts)
    return {origin: {name: count % (1 << 64) for name, count in of.pruned().items()} for origin, of in total.items()}


def written_fates(layout: Layout) -> dict[tuple[str, str, int], dict[str, int]]:
    return fates(proof for proofs in read_proofs(layout) for proof in proofs)


def test_many_batches_become_one_stretch(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    layout = table.layout
    before = (
        offsets_by_topic(layout),
        written_fates(layout),
        status(topics, layout, ["*"], now=2e9),
        landed_ends(layout),
    )
    assert roll_up(layout, 7) == 8
    assert (
        offsets_by_topic(layout),
        written_fates(layout),
        status(topics, layout, ["*"], now=2e9),
        landed_ends(layout),
    ) == before
    assert [(stretch.first, stretch.batch) for stretch in stretches(layout)] == [(0, 7)]
    assert [commit.batch for commit in latest(layout)[1]] == [8, 9]
    assert [stretch.batch for stretch in latest_proofs(layout)[1]] == [8, 9]
    assert before[2].unaccounted == 1


def test_later_rollup_extends_stretch_of_day(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    before = offsets_by_topic(table.layout), written_fates(table.layout)
    for through in (2, 3, 8):
        roll_up(table.layout, through)
    assert [(stretch.first, stretch.batch) for stretch in stretches(table.layout)] == [(0, 8)]
    assert (offsets_by_topic(table.layout), written_fates(table.layout)) == before


def test_each_day_has_its_file(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table, days=5)
    before = offsets_by_topic(table.layout), written_fates(table.layout)
    roll_up(table.layout, 9)
    assert len(days(table.layout)) == 5
    assert [(stretch.first, stretch.batch) for stretch in stretches(table.layout)] == [
        (n, n + 1) for n in range(0, 10, 2)
    ]
    assert (offsets_by_topic(table.layout), written_fates(table.layout)) == before


def test_stretch_has_bounded_offsets(topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "MOST_OFFSETS", 9)
    commit_ten_batches(topics, table)
    before = offsets_by_topic(table.layout)
    roll_up(table.layout, 9)
    assert [stretch.batch - stretch.first + 1 for stretch in stretches(table.layout)] == [3, 2, 3, 2]
    assert offsets_by_topic(table.layout) == before


def test_journal_continues_after_rollup(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    roll_up(table.layout, 9)
    journal = Journal(table.layout)
    assert journal.update() == []
    table.commit({"a": 32}, [])
    assert [commit.ranges() for commit in journal.update()] == [{"a": (30, 32)}]
    assert [commit.ranges() for commit in Journal(table.layout).update()] == []


def test_rebuild_proves_stretches_from_table(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    before = written_fates(table.layout)
    roll_up(table.layout, 7)
    second = list(rebuild(topics, table.layout))
    assert fates(proof for proof in second if isinstance(proof, Proof)) == before
    assert [proof.topic for proof in second] == ["a", "b", "a", "a"]
    assert {proof.topic: proof.unaccounted for proof in second[:2] if isinstance(proof, Proof)} == {"a": [], "b": [1]}


def test_batch_without_proof_is_a_stretch_of_its_own(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    lines = table.layout.proofs.read_bytes().splitlines(keepends=True)
    table.layout.proofs.write_bytes(b"".join(lines[:3] + lines[4:]))
    roll_up(table.layout, 9)
    assert [(stretch.first, stretch.batch) for stretch in stretches(table.layout)] == [(0, 2), (3, 3), (4, 9)]


def test_rollup_keeps_begin_of_moved_topic(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    after_move = {
        "batch": 9,
        "landed_at": MIDNIGHT,
        "watermark": 0,
        "ranges": {"k/0": [70, 70]},
        "files": [],
        "moved": True,
    }
    append_lines(table.layout.journal, [after_move])
    table.commit({"k/0": 72}, [])
    assert [commit.ranges() for commit in Journal(table.layout).update()] == [{"k/0": (70, 72)}]
    write_proofs(table.layout, 10, [Proof(10, "k/0", 70, 72)])
    roll_up(table.layout, 10)
    assert offsets_by_topic(table.layout)["k/0"] == [70, 71]
    assert Journal(table.layout)._end["k/0"] == 72
    roll_up(table.layout, 10)
    assert read_sum(table.layout).end == {"a": 30, "b": 2, "k/0": 72}


def test_damaged_sum_is_computed_from_days(topics: Path, table: HandWritten, caplog: pytest.LogCaptureFixture) -> None:
    commit_ten_batches(topics, table, days=3)
    roll_up(table.layout, 7)
    total = read_sum(table.layout)
    table.layout.rolled.write_bytes(b"00000000{}")
    assert read_sum(table.layout) == total
    assert "is damaged: it is computed again" in caplog.text
    table.layout.rolled.unlink()
    assert read_sum(table.layout) == total != Sum()


def test_old_days_have_one_bucket_per_day(topics: Path, table: HandWritten) -> None:
    rows = [landed_message(0, "a"), landed_message(1, "a", bucket=BUCKET + 60)]
    table.commit({"a": 2}, rows, MIDNIGHT)
    table.commit({"a": 3}, [landed_message(2, "a")], MIDNIGHT + 40 * DAY)
    prove_all(topics, table)
    roll_up(table.layout, 0)
    assert sorted(bucket for _, _, bucket in written_fates(table.layout)) == [BUCKET, BUCKET + 60]
    roll_up(table.layout, 1, day=40)
    assert written_fates(table.layout)["a", "events-udp", BUCKET // 86_400 * 86_400] == {"landed.message": 2}


def test_minutes_stay_while_clock_is_not_trusted(topics: Path, table: HandWritten) -> None:
    table.commit({"a": 1}, [landed_message(0, "a")], MIDNIGHT)
    table.commit({"a": 2}, [landed_message(1, "a")], MIDNIGHT + 40 * DAY)
    prove_all(topics, table)
    rollup.roll_up(table.layout, 1, lambda: None)
    assert ("a", "events-udp", BUCKET) in written_fates(table.layout)


def readable_content(layout: Layout, topics: Path) -> tuple[object, ...]:
    """Return everything that readers get from the files."""
    return (
        offsets_by_topic(layout),
        written_fates(layout),
        landed_ends(layout),
        status(topics, layout, ["*"], now=2e9),
        sum(1 for _ in proved_backfills(layout)),
    )


def test_killed_rollup_keeps_each_batch_once(topics: Path, table: HandWritten, tmp_path: Path) -> None:
    commit_ten_batches(topics, table, days=2)
    layout = table.layout
    roll_up(layout, 1)
    before, stop = readable_content(layout, topics), 0
    while True:
        fs = CrashingFileSystem(layout.journal.parent, seed=stop)
        fs.stop_after = stop
        remaining = {path: path.read_bytes() for path in layout.journal.parent.rglob("*") if path.is_file()}
        try:
            roll_up(layout, 7, fs)
            break
        except Crashed:
            fs.crash()
        assert readable_content(layout, topics) == before, f"stopped after {stop} operations"
        roll_up(layout, 8)
        assert readable_content(layout, topics) == before, f"done again after {stop} operations"
        assert [stretch.batch for stretch in proved_batches(layout)][-1] == 9
        for path in [path for path in layout.journal.parent.rglob("*") if path.is_file()]:
            path.unlink()
        for path, data in remaining.items():
            path.write_bytes(data)
        stop += 1
    assert stop > 20
    assert readable_content(layout, topics) == before


def test_reader_finds_each_batch_during_rollup(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    reading = read_journal(table.layout)
    first = next(reading)
    roll_up(table.layout, 8)
    rest = [offset for commit in [first, *reading] for offset in range(*commit.ranges()["a"])]
    assert rest == list(range(30))


def test_stretch_reads_as_commit_of_several_batches(topics: Path, table: HandWritten) -> None:
    commit_ten_batches(topics, table)
    roll_up(table.layout, 7)
    first = next(read_journal(table.layout))
    assert (first.first, first.batch, first.files) == (0, 7, ())
    assert Commit.from_document(first.document()) == first


def measure_reads(layout: Layout, topics: Path) -> tuple[int, int]:
    """Return the number and bytes of the files that a status and a start open."""
    opened: list[int] = []
    watching = True

    def hear(name: str, arguments: tuple[object, ...]) -> None:
        if watching and name == "open" and str(arguments[0]).startswith(str(layout.tables)):
            path = Path(str(arguments[0]))
            opened.append(path.stat().st_size if path.is_file() else 0)

    sys.addaudithook(hear)
    status(topics, layout, ["*"])
    Journal(layout).update()
    landed_ends(layout)
    watching = False
    return len(opened), sum(opened)


def append_batches(table: HandWritten, first: int, last: int) -> None:
    """Append batches [first, last) to journal and proofs, and roll up the old ones."""
    commits = [Commit(n, {"a": 100 * n}, {"a": 100 * n + 100}, MIDNIGHT + n * 1000, 0, ()) for n in range(first, last)]
    for offset in range(0, len(commits), 50):
        append_lines(table.layout.journal, [stretch.document() for stretch in commits[offset : offset + 50]])
        for stretch in commits[offset : offset + 50]:
            proof = Proof(stretch.batch, "a", stretch.begin["a"], stretch.end["a"])
            proof.add(("udp", stretch.landed_at // 60_000 * 60), "landed.event", 100)
            write_proofs(table.layout, stretch.batch, [proof])
        roll_up(table.layout, commits[offset : offset + 50][-1].batch - 100)


def test_reads_of_status_do_not_grow_with_batches(topics: Path, table: HandWritten) -> None:
    table.layout.journal.parent.mkdir(parents=True)
    append_batches(table, 0, 200)
    few = measure_reads(table.layout, topics)
    append_batches(table, 200, 3000)
    many = measure_reads(table.layout, topics)
    assert few[0] == many[0]
    assert many[1] < 1.2 * few[1]
    assert landed_ends(table.layout) == {"a": 300_000}
    assert sum(1 for _ in read_journal(table.layout)) == 101


def test_violations_of_contracts_are_counted_once_before_and_after_a_rollup(topics: Path, tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    table, expected = HandWritten(layout), {"contract.t.ms.max": 45, "contract.t.ms.min": 10}
    for n in range(10):
        append(topics, "a", [event(n)])
        violations = {"contract.t.ms.max": n, "contract.t.ms.min": 1}
        table.commit({"a": n + 1}, [landed_event(n, f"u{n}", "a")], MIDNIGHT + n, violations)
    prove_all(topics, table)
    assert violations_by_rule(layout) == expected
    roll_up(layout, 6)
    assert violations_by_rule(layout) == expected
    # A killed rollup is repeated with batches that the sum and the day have.
    roll_up(layout, 8)
    layout.rolled.write_bytes(b"damaged")
    assert violations_by_rule(layout) == expected
    assert read_sum(layout).totals["rows"] == 9


def test_folder_of_the_first_day_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, path = list[Path](), tmp_path / "history" / "2026-11-30.jsonl"
    day = [Stretch(0, 9, 1, {"t": 5}, {"rows": 5}, {}, ())]
    monkeypatch.setattr(OS, "sync_directory", synced.append)
    write_day(path, day)
    assert {tmp_path, path.parent} <= {*synced}
    assert read_day(path) == day
