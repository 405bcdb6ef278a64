"""Proofs on tables written by hand: no Spark, no daemon."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import deltalake
import pytest

from penstock.landing.journal import Journal
from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.log import Log, TopicSettings
from penstock.log.store.gaps import Gap, encode_gap
from penstock.proof.proofs import Proof, read_proofs, write_proofs
from penstock.proof.prover import Prover, rebuild
from penstock.upkeep.deletion.removal import execute_deletions
from tests.spark.spark_helpers import BUCKET, HandWritten, append, event, flip, landed_event, landed_message

ORIGIN = ("events-udp", BUCKET)


def prove(topics: Path, table: HandWritten, **options: object) -> list[Proof]:
    """Return the proofs of all batches of a table."""
    prover = Prover(topics, table.layout, **options)  # type: ignore[arg-type]
    return [proof for commit in Journal(table.layout).update() for proof in prover.prove(commit)]


def test_complete_batch_is_proved_from_files_only(topics: Path, table: HandWritten) -> None:
    rows = [
        landed_event(0, "u0"),
        landed_message(1),
        {"topic": "t", "offset": 2, "kind": "quarantine", "reason": "bad_json"},
    ]
    table.commit({"t": 3}, rows)
    (proof,) = prove(topics, table)
    assert proof.holds
    assert proof.counts_by == {ORIGIN: {"landed.event": 1, "landed.message": 1, "quarantined.bad_json": 1}}
    assert (proof.batch, proof.topic, proof.begin, proof.end) == (0, "t", 0, 3)


DROPPED = {"topic": "t", "offset": 1, "kind": "dropped"}


def test_row_of_dropped_message_proves_the_drop(topics: Path, table: HandWritten) -> None:
    table.commit({"t": 3}, [landed_event(0, "u1"), DROPPED, landed_event(2, "u2", reason="redacted")])
    (proof,) = prove(topics, table)
    assert proof.holds
    assert proof.counts_by == {ORIGIN: {"landed.event": 2, "transformed.dropped": 1, "transformed.redacted": 1}}
    assert proof.total() == 3


def test_dropped_message_without_row_is_unaccounted(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2), event(3)])
    table.commit({"t": 3}, [landed_event(0, "u1"), DROPPED, landed_event(2, "u3")])
    proofs = prove(topics, table)
    for dropped in (table.layout.landed / "kind=dropped").rglob("*.parquet"):
        dropped.unlink()
    (second,) = rebuild(topics, table.layout)
    assert isinstance(second, Proof)
    assert (proofs[0].unaccounted, second.unaccounted) == ([], [1])


def test_offset_that_was_dropped_and_landed_is_unexpected(topics: Path, table: HandWritten) -> None:
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_message(1), DROPPED, landed_message(2)])
    (proof,) = prove(topics, table)
    assert proof.unexpected == [1]


def test_proof_counts_by_source_and_bucket(topics: Path, table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_message(0), landed_message(1, source="tcp", bucket=BUCKET + 60)])
    (proof,) = prove(topics, table)
    assert proof.counts_by == {ORIGIN: {"landed.message": 1}, ("tcp", BUCKET + 60): {"landed.message": 1}}


def test_uuid_of_same_batch_makes_duplicate(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2), event(1)])
    table.commit({"t": 3}, [landed_event(1, "u2"), landed_event(2, "u1")])
    (proof,) = prove(topics, table)
    assert proof.holds
    assert proof.counts_by == {ORIGIN: {"landed.event": 2, "duplicate": 1}}


def test_uuid_of_earlier_batch_makes_duplicate(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), b"x", event(1)])
    table.commit({"t": 1}, [landed_event(0, "u1")])
    table.commit({"t": 3}, [landed_message(1)])
    proofs = prove(topics, table)
    assert [proof.counts_by[ORIGIN] for proof in proofs] == [{"landed.event": 1}, {"landed.message": 1, "duplicate": 1}]


def test_landed_protocol_id_makes_duplicate(topics: Path, table: HandWritten) -> None:
    second = {"annotations": [{"uuid": uuid} for uuid in ("c-0", "c-1", "c-0", "c-9")]}
    append(topics, "t", [b'{"m":1}'] * 4, codec="forward", **second)
    table.commit({"t": 4}, [landed_message(0, uuid="c-0"), landed_message(1, uuid="c-1")])
    (proof,) = prove(topics, table)
    assert proof.counts_by == {ORIGIN: {"landed.message": 2, "duplicate": 1}}
    assert proof.unaccounted == [3]
    assert proof.uuids[ORIGIN]["rows.landed.message"] == 2
    assert proof.uuids[ORIGIN]["rows.duplicate"] == 1


def test_codec_without_ids_has_no_duplicates(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"one", b"two"], codec="loki", annotations=[{"uuid": "c-0"}, {"uuid": "c-0"}])
    table.commit({"t": 2}, [landed_message(0)])
    (proof,) = prove(topics, table)
    assert proof.unaccounted == [1]


def test_uuid_of_another_topic_proves_nothing(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1)])
    append(topics, "s", [event(1)])
    table.commit({"t": 1, "s": 1}, [landed_event(0, "u1", topic="s")])
    lost = {proof.topic: proof.unaccounted for proof in prove(topics, table)}
    assert lost == {"s": [], "t": [0]}


@pytest.mark.parametrize(
    "payload",
    [b"plain", b"{bad", event(1, kind=""), event(1) + b" x", None, event(9)],
    ids=["message", "broken", "no type", "trailing", "null", "another uuid"],
)
def test_missing_message_without_landed_uuid_is_unaccounted(
    topics: Path, table: HandWritten, payload: bytes | None
) -> None:
    append(topics, "t", [event(1), payload, event(2)])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_event(2, "u2")])
    (proof,) = prove(topics, table)
    assert proof.unaccounted == [1]
    assert not proof.holds


def test_syslog_row_is_no_duplicate(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1)], [event(1)], codec="syslog")
    table.commit({"t": 2}, [landed_event(0, "u1")])
    assert [proof.unaccounted for proof in prove(topics, table)] == [[1]]


def test_event_of_forbidden_type_is_no_duplicate(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1, kind="other")])
    table.commit({"t": 2}, [landed_event(0, "u1")])
    assert [proof.unaccounted for proof in prove(topics, table, event_types=("click",))] == [[1]]


def test_doubled_and_foreign_rows_are_unexpected(topics: Path, table: HandWritten) -> None:
    table.commit(
        {"t": 2},
        [landed_message(0), landed_message(1), landed_event(1, "u"), landed_message(7), landed_message(0, "s")],
    )
    proofs = {proof.topic: proof for proof in prove(topics, table)}
    assert proofs["t"].unexpected == [7, 1]
    assert proofs["s"].unexpected == [0]
    assert not proofs["t"].holds
    assert not proofs["s"].holds


def test_rows_of_missing_file_are_unaccounted(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2), b"x"])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_event(1, "u2"), landed_message(2)])
    (table.layout.landed / table.files[0]).unlink()
    assert [proof.unaccounted for proof in prove(topics, table)] == [[0, 1]]


def test_offsets_in_gaps_are_counted_by_reason(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"a"] * 5)
    gap = Gap(1, 4, "expired_unread", {"tcp": {BUCKET: 2}, "udp": {BUCKET + 60: 1}})
    (topics / "t" / "gaps.jsonl").write_bytes(encode_gap(gap))
    table.commit({"t": 3}, [landed_message(0)])
    table.commit({"t": 5}, [landed_message(4)])
    first, second = prove(topics, table)
    assert first.counts_by == {ORIGIN: {"landed.message": 1}, ("tcp", BUCKET): {"gap.expired_unread": 2}}
    assert second.counts_by == {ORIGIN: {"landed.message": 1}, ("udp", BUCKET + 60): {"gap.expired_unread": 1}}


def test_offsets_expired_before_first_batch_take_no_memory_each(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"a"])
    rows = 200_000_000
    (topics / "t" / "gaps.jsonl").write_bytes(encode_gap(Gap(1, 1 + rows, "expired_unread", {"udp": {BUCKET: rows}})))
    table.commit({"t": 1 + rows}, [landed_message(0)])
    tracemalloc.start()
    (proof,) = prove(topics, table)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert proof.holds
    assert proof.counts_by[("udp", BUCKET)] == {"gap.expired_unread": rows}
    assert peak < 10 << 20


def test_owner_turns_corrupt_batch_into_gap(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"one"], [b"damaged", event(1)], [b"three"])
    flip(topics, "t", b"damaged")
    table.commit({"t": 4}, [landed_message(0), landed_message(3)])
    requests_made = []

    def verify(topic: str, begin: int, end: int) -> None:
        requests_made.append((topic, begin, end))
        log = Log(topics)
        log.topic(topic).verify(begin, end)
        log.close()

    (proof,) = prove(topics, table, verify=verify)
    assert requests_made == [("t", 1, 3)]
    assert proof.holds
    assert proof.total("gap.corrupt") == 2
    assert proof.total() == 4


def test_corrupt_batch_without_gap_is_unaccounted(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"one"], [b"damaged"])
    flip(topics, "t", b"damaged")
    table.commit({"t": 2}, [landed_message(0)])
    assert [proof.unaccounted for proof in prove(topics, table)] == [[1]]


def test_unreachable_owner_postpones_proof(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1)], [b"damaged"], [event(1)])
    flip(topics, "t", b"damaged")
    table.commit({"t": 1}, [landed_event(0, "u1")])
    table.commit({"t": 3}, [])
    away = True

    def verify(topic: str, begin: int, end: int) -> None:
        if away:
            raise ConnectionError
        log = Log(topics)
        log.topic(topic).verify(begin, end)
        log.close()

    prover = Prover(topics, table.layout, verify=verify)
    first, second = Journal(table.layout).update()
    prover.prove(first)
    with pytest.raises(ConnectionError):
        prover.prove(second)
    away = False
    (proof,) = prover.prove(second)
    assert proof.holds
    assert (proof.total("gap.corrupt"), proof.total("duplicate")) == (1, 1)


def test_deleted_topic_is_proved_from_table_only(topics: Path, table: HandWritten) -> None:
    table.commit({"t": 2}, [landed_message(0)])
    assert [proof.unaccounted for proof in prove(topics, table)] == [[1]]


def test_written_proof_reads_back_equal(table: HandWritten) -> None:
    proof = Proof(3, "t", 5, 9, {}, [7], [12])
    proof.add(("udp", 60), "landed.event", 2)
    proof.add(("udp", 120), "duplicate")
    table.layout.proofs.parent.mkdir(parents=True)
    write_proofs(table.layout, 3, [proof])
    assert list(read_proofs(table.layout)) == [[proof]]


def test_rebuild_from_table_and_log_equals_proofs(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1), b"x"])
    table.commit({"t": 1}, [landed_event(0, "u1")])
    table.commit({"t": 3}, [landed_message(2)])
    proofs = prove(topics, table)
    assert list(rebuild(topics, table.layout)) == proofs


def test_rebuild_after_expiry_equals_proofs(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1), b"x", b"y"])
    changed = landed_event(0, "u1", reason="redacted")
    table.commit({"t": 4}, [changed, landed_message(2), {"topic": "t", "offset": 3, "kind": "dropped"}])
    prover = Prover(topics, table.layout)
    (commit,) = Journal(table.layout).update()
    proofs = prover.prove(commit)
    write_proofs(table.layout, 0, proofs)
    (topics / "t" / "gaps.jsonl").write_bytes(encode_gap(Gap(0, 4, "expired_read", {"events-udp": {BUCKET: 4}})))
    assert proofs[0].total("duplicate") == 1
    assert list(rebuild(topics, table.layout)) == proofs


def test_duplicate_of_a_row_that_another_program_deleted_before_the_proof(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2)])
    table.commit({"t": 1}, [landed_event(0, "u1")])
    append(topics, "t", [event(1)])
    table.commit({"t": 3}, [landed_event(1, "u2")])
    deltalake.DeltaTable(str(table.layout.landed)).delete("uuid = 'u1'")
    *_, commit = Journal(table.layout).update()
    (proof,) = Prover(topics, table.layout).prove(commit)
    assert (proof.unaccounted, proof.counts_by[ORIGIN]["duplicate"]) == ([], 1)


def test_rebuild_counts_duplicate_of_a_deleted_row_that_the_log_has_lost(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1)], [event(1), b"x"])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_message(2)])
    (commit,) = Journal(table.layout).update()
    write_proofs(table.layout, 0, Prover(topics, table.layout).prove(commit))
    request_deletion(table.layout, REQUESTED, [Condition("uuid", IN, ("u1",))])
    execute_deletions(table.layout, 600_000_000)
    (topics / "t" / "gaps.jsonl").write_bytes(encode_gap(Gap(0, 1, "expired_read", {"events-udp": {BUCKET: 1}})))
    (second,) = rebuild(topics, table.layout)
    assert isinstance(second, Proof)
    assert (second.counts_by, second.unaccounted) == ({ORIGIN: {"landed.message": 1, "duplicate": 1}}, [])


def test_rebuild_trusts_table_over_earlier_proof(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1), b"x"])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_message(2)])
    (commit,) = Journal(table.layout).update()
    write_proofs(table.layout, 0, Prover(topics, table.layout).prove(commit))
    shutil.rmtree(table.layout.landed / "kind=message")
    (second,) = rebuild(topics, table.layout)
    assert second.unaccounted == [2]


def test_proofs_can_be_read_during_write(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(1)])
    log = Log(topics, TopicSettings())
    try:
        log.topic("t")
        table.commit({"t": 2}, [landed_event(0, "u1")])
        assert [proof.holds for proof in prove(topics, table)] == [True]
    finally:
        log.close()
