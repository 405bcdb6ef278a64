"""Equality deletes remove exactly the rows that Iceberg's own library does not read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.tables import equality_deletes
from penstock.audit.tables.equality_deletes import DeletedKeys, EqualityDeletes, KeysInMemory
from penstock.audit.tables.iceberg import IcebergTable
from penstock.audit.tables.table import TableUnreadable
from tests.audit.audited import RECORDS, filled_topic, run_audit
from tests.audit.iceberg_upserts import write_upserts
from tests.kafka.kafka_helpers import Topics

KEYS = st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("abc"))
Key = tuple[int | None, str | None]


def columns(keys: list[Key], text: pa.DataType) -> list[pa.Array[Any]]:
    return [pa.array([key[0] for key in keys], pa.int64()), pa.array([key[1] for key in keys], text)]


@given(st.lists(st.tuples(st.lists(KEYS), st.integers(1, 5))), st.lists(KEYS))
def test_newest_delete_of_each_key_is_found(deletes: list[tuple[list[Key], int]], rows: list[Key]) -> None:
    newest: dict[Key, int] = {}
    for keys, number in deletes:
        newest |= {key: max(number, newest.get(key, 0)) for key in keys}
    deleted = DeletedKeys((columns(keys, pa.string()), number) for keys, number in deletes)
    found = deleted.newest_deletes(columns(rows, pa.large_string()))
    np.testing.assert_array_equal(found, [newest.get(key, -1) for key in rows])


class Counted(EqualityDeletes):
    """Deletes of ``count`` keys, and how often they were read."""

    def __init__(self, count: int) -> None:
        super().__init__((1,), [], lambda file, field_ids: iter(()))
        self.count, self.reads = count, 0

    def read_keys(self) -> DeletedKeys:
        self.reads += 1
        return DeletedKeys([([pa.array(range(self.count))], 1)])


def test_keys_of_all_partitions_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality_deletes, "MAX_DELETED_KEYS", 10)
    keys, partitions = KeysInMemory(), [Counted(4) for _ in range(30)]
    alive: WeakSet[DeletedKeys] = WeakSet()
    for partition in partitions:
        for _ in range(3):
            alive.update(keys.load_keys([partition]))
        assert len(alive) <= 2
    assert [partition.reads for partition in partitions] == [1] * 30
    # What one file needs is in memory at once; what was used the longest ago gives way.
    keys.load_keys([partitions[28], Counted(6)])
    assert (partitions[28].reads, keys.load_keys([partitions[29]]) and partitions[29].reads) == (1, 2)
    with pytest.raises(TableUnreadable, match="12 rows of equality deletes in one partition exceed the limit of 10"):
        keys.load_keys([Counted(6), Counted(6)])


def random_steps(seed: int) -> list[str]:
    """Return upserts, inserts and deletes of few keys, with the offsets in order, in commits of some records."""
    dice = random.Random(seed)
    steps = []
    for offset in range(RECORDS):
        key = f"{dice.choice(['-', *range(9)])} {dice.choice(['eu', 'us'])}"
        action = dice.choice(["upsert", "upsert", "upsert", "insert"])
        steps += [f"delete {key}"] * (dice.random() < 0.1) + [f"{action} {key} {offset}"]
        steps += ["commit"] * (dice.random() < 0.2)
    return [*steps, "commit"]


@pytest.mark.parametrize(("seed", "is_partitioned"), [(1, False), (2, True)])
def test_rows_are_those_that_the_library_of_iceberg_reads(
    topics: Topics, tmp_path: Path, seed: int, is_partitioned: bool
) -> None:
    topic, _ = filled_topic(topics)
    folder = tmp_path / "orders"
    present = write_upserts(folder, random_steps(seed), is_partitioned=is_partitioned)
    assert 0 < len(present) < RECORDS
    status, report, errors = run_audit(topics, topic, folder)
    assert (status, report.get("doubled"), report.get("unsearched")) == (1, 0, []), errors
    (part,) = report["partitions"]
    missing = [offset for begin, end in part["missing"] for offset in range(begin, end)]
    assert sorted([*present, *missing]) == list(range(RECORDS))
    # Each of them was in the table, or was replaced in the commit that added it.
    lost = [offset for loss in part["losses"] for begin, end in loss["ranges"] for offset in range(begin, end)]
    assert sorted(lost) == missing


def test_commit_whose_delete_removed_a_row_is_named(topics: Topics, tmp_path: Path) -> None:
    topic, _ = filled_topic(topics)
    steps = [f"insert {number} eu {number}" for number in range(RECORDS)]
    steps += ["commit", "delete 17 eu", "commit", "insert 99 eu 5", "commit"]
    folder = tmp_path / "orders"
    assert write_upserts(folder, steps) == sorted([5, *(offset for offset in range(RECORDS) if offset != 17)])
    status, report, errors = run_audit(topics, topic, folder)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
    (loss,) = report["partitions"][0]["losses"]
    culprit = list(IcebergTable(str(folder), {}).versions())[1].number
    assert (loss["ranges"], loss["commit"].startswith(f"snapshot {culprit}, delete by ")) == ([[17, 18]], True)
