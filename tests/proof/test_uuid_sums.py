"""Hashes of uuids and their sums: equal for equal texts, different when one uuid is lost and another doubled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.counts import Counts
from penstock.landing.journal import Journal
from penstock.landing.table_paths import Layout
from penstock.proof.proofs import Proof
from penstock.proof.prover import Prover
from penstock.proof.uuid_sums import ROWS_AT_ONCE, counted, hashes
from tests.spark.spark_helpers import BUCKET, HandWritten, append, event, landed_event, landed_message

ORIGIN = ("events-udp", BUCKET)
ALL = (1 << 64) - 1


def mixed(value: int) -> int:
    value = value + 0x9E3779B97F4A7C15 & ALL
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor & ALL
    return value ^ value >> 31


def hash_bytewise(text: str) -> int:
    """Return the hash, computed a byte at a time."""
    data = text.encode()
    return mixed(sum((byte + 1) * (mixed(start) | 1) for start, byte in enumerate(data, 1)) + len(data) & ALL)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_column_hashes_equal_hashes_of_texts(texts: list[str], begin: int, end: int) -> None:
    assert hashes(texts).tolist() == [hash_bytewise(text) for text in texts]
    assert hashes(pa.array(texts, pa.string())[begin:end]).tolist() == [
        hash_bytewise(text) for text in texts[begin:end]
    ]


def test_long_column_is_hashed_in_parts() -> None:
    texts = [f"u{number}" for number in range(ROWS_AT_ONCE + 3)]
    assert hashes(texts)[-4:].tolist() == [hash_bytewise(text) for text in texts[-4:]]
    assert len(set(hashes(texts).tolist())) == len(texts)


def prove(topics: Path, table: HandWritten) -> list[Proof]:
    prover = Prover(topics, table.layout)
    return [proof for commit in Journal(table.layout).update() for proof in prover.prove(commit)]


def total(*uuids: str) -> int:
    return sum(map(hash_bytewise, uuids))


def test_proof_sums_landed_and_duplicate_uuids(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2), event(1), b"x"])
    table.commit({"t": 4}, [landed_event(1, "u2"), landed_event(2, "u1"), landed_message(3)])
    (proof,) = prove(topics, table)
    expected = Counts(counted("landed.event", 2, total("u1", "u2")) + counted("duplicate", 1, total("u1")))
    assert proof.uuids == {ORIGIN: expected}
    assert Proof.from_document(proof.document()) == proof


def test_lost_and_doubled_event_do_not_cancel_out(topics: Path, table: HandWritten, tmp_path: Path) -> None:
    second = HandWritten(Layout.for_tables(tmp_path / "other"))
    table.commit({"t": 2}, [landed_event(0, "u0"), landed_event(1, "u1")])
    second.commit({"t": 2}, [landed_event(0, "u0"), landed_event(1, "u0")])
    (right,), (wrong,) = prove(topics, table), prove(topics, second)
    assert right.counts_by == wrong.counts_by
    assert right.uuids == {ORIGIN: counted("landed.event", 2, total("u0", "u1"))} != wrong.uuids
