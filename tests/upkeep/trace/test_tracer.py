"""Traces of messages, also of lost ones, with hand-written tables and a real log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.counts import Origin
from penstock.files.file_system import OS
from penstock.landing.journal import Journal
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.log import Log
from penstock.log.store.gaps import Gap, Gaps
from penstock.proof.proofs import write_proofs
from penstock.proof.prover import Prover
from penstock.records import ANNOTATIONS, body
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.quarantine.send_back import Row, SendBack
from penstock.upkeep.trace.tracer import NoSuchTopic, Trace, Tracer
from tests.spark.spark_helpers import BUCKET, HandWritten, append, event, flip, landed_event, landed_message

PAYLOADS = [event(1), b"plain", b"{no json", event(1), event(2)]


def prove(topics: Path, table: HandWritten) -> None:
    """Write the proofs of all committed batches."""
    prover = Prover(topics, table.layout)
    for commit in Journal(table.layout).update():
        write_proofs(table.layout, commit.batch, prover.prove(commit))


@pytest.fixture
def tracer(topics: Path, table: HandWritten) -> Tracer:
    """An event, a message, one in quarantine, a duplicate; and an event that waits."""
    append(topics, "t", PAYLOADS)
    bad = {"topic": "t", "offset": 2, "kind": "quarantine", "reason": "bad_json"}
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_message(1)])
    table.commit({"t": 4}, [bad])
    prove(topics, table)
    return Tracer(topics, table.layout, ["t"])


def details_of_step(trace: Trace, step: str) -> dict[str, Any]:
    (trace_step,) = (trace_step for trace_step in trace.steps if trace_step.step == step)
    return trace_step.details


def test_trace_follows_event_from_listener_to_proof(tracer: Tracer, table: HandWritten) -> None:
    trace = tracer.trace("t", 0)
    assert (trace.fate, trace.uuid, trace.is_explained) == ("landed.event", "u1", True)
    assert [step.step for step in trace.steps] == ["received", "log buffer", "log", "micro-batch", "table", "proof"]
    received = details_of_step(trace, "received")
    assert (received["source"], received["bucket"], received["first"]) == ("events-udp", BUCKET, BUCKET * 1_000_000 + 5)
    batch = details_of_step(trace, "micro-batch")
    assert (batch["batch"], batch["begin"], batch["end"]) == (0, 0, 2)
    assert details_of_step(trace, "table")["file"] == table.files[0]
    assert details_of_step(trace, "proof") == {"proved": True, "holds": True, "unaccounted": 0}
    json.dumps(trace.document())


def test_trace_names_drop_and_change_by_transformation(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), event(2)])
    table.commit({"t": 2}, [{"topic": "t", "offset": 0, "kind": "dropped"}, landed_message(1)])
    tracer = Tracer(topics, table.layout, ["t"])
    dropped, changed = tracer.trace("t", 0), tracer.trace("t", 1)
    assert (dropped.fate, dropped.is_explained) == ("transformed.dropped", True)
    assert dropped.meaning == "was dropped by the transformation of the pipeline"
    assert changed.fate == "landed.message", "an event that was given another kind"


def test_trace_names_every_fate(tracer: Tracer) -> None:
    fates = [tracer.trace("t", offset).fate for offset in range(6)]
    assert fates == ["landed.event", "landed.message", "quarantined.bad_json", "duplicate", "pending", "absent"]
    assert tracer.trace("t", 3).meaning == "is a duplicate of t:0, which has landed"
    assert not tracer.trace("t", 5).is_explained


def test_trace_names_position_in_log_buffer(topics: Path, table: HandWritten) -> None:
    log = Log(topics)
    log.topic("t", create=True).append(body([b"x"]), Origin("udp", 60, 1, 2, "plog", {}, "udp", 96, 192)).result(20)
    log.close()
    trace = Tracer(topics, table.layout).trace("t", 0)
    assert details_of_step(trace, "log buffer") == {"buffer": "udp", "begin": 96, "end": 192}


def test_uuid_leads_to_its_last_landed_event(tracer: Tracer, topics: Path, table: HandWritten) -> None:
    assert tracer.landed("u1") == ("t", 0)
    append(topics, "t", [event(1)])
    table.commit({"t": 6}, [landed_event(4, "u2"), landed_event(5, "u1")])
    assert Tracer(topics, table.layout).landed("u1") == ("t", 5), "also in a batch that is not in the journal yet"
    assert Tracer(topics, table.layout).trace("t", 5).fate == "landed.event"
    prove(topics, table)
    assert Tracer(topics, table.layout).landed("u1") == ("t", 5)


def test_waiting_uuid_is_found_after_landed_offsets(tracer: Tracer) -> None:
    assert tracer.landed("u2") is None
    assert tracer.waiting("u2") == ("t", 4)
    assert tracer.waiting("u1") is None, "it has landed: only what is behind is looked at"
    assert tracer.waiting("u") is None


def test_message_is_found_by_id_of_its_protocol(topics: Path, table: HandWritten) -> None:
    annotations: Any = pa.array([[("uuid", f"c{number}")] for number in (1, 2, 1)], ANNOTATIONS)
    log = Log(topics)
    for rows in (slice(0, 2), slice(2, 3)):
        batch = body([b"line"] * (rows.stop - rows.start), annotations=annotations[rows])
        log.topic("t", create=True).append(batch, Origin("requests", 60, 1, 2, "forward")).result(20)
    log.close()
    tracer = Tracer(topics, table.layout, ["t"])
    assert tracer.waiting("c2") == ("t", 1)
    assert tracer.waiting("c") is None
    assert tracer.trace("t", 1).uuid == "c2"
    table.commit({"t": 3}, [landed_message(0, uuid="c1"), landed_message(1, uuid="c2")])
    prove(topics, table)
    duplicate = Tracer(topics, table.layout, ["t"]).trace("t", 2)
    assert (duplicate.fate, duplicate.meaning) == ("duplicate", "is a duplicate of t:0, which has landed")


def test_message_without_row_or_survivor_is_unaccounted(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), b"x", event(2)])
    table.commit({"t": 3}, [landed_event(0, "u1")])
    tracer = Tracer(topics, table.layout)
    assert tracer.trace("t", 1).fate == "pending", "not in the journal yet"
    prove(topics, table)
    tracer = Tracer(topics, table.layout)
    assert [tracer.trace("t", offset).fate for offset in (1, 2)] == ["unaccounted", "unaccounted"]
    assert details_of_step(tracer.trace("t", 1), "proof")["holds"] is False


def test_message_of_removed_file_is_no_loss(tracer: Tracer, table: HandWritten) -> None:
    for path in table.layout.landed.glob("kind=message/*/*.parquet"):
        path.unlink()
    assert tracer.trace("t", 1).fate == "removed"
    assert tracer.trace("t", 0).fate == "landed.event"


def test_message_that_expired_after_landing_has_landed(tracer: Tracer, topics: Path, table: HandWritten) -> None:
    Gaps(OS, topics / "t").add([Gap(0, 5, "expired_unread", {"events-udp": {BUCKET: 5}})])
    later_tracer = Tracer(topics, table.layout, ["t"])
    assert [later_tracer.trace("t", n).fate for n in (0, 4)] == ["landed.event", "gap.expired_unread"]
    assert later_tracer.trace("t", 3).meaning.endswith("proved to be a duplicate before)")
    assert details_of_step(later_tracer.trace("t", 4), "received") == {"source": "events-udp", "bucket": BUCKET}


def test_trace_names_corrupt_batch(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"needle"])
    append(topics, "t", [event(7)])
    flip(topics, "t", b"needle")
    tracer = Tracer(topics, table.layout)
    assert tracer.trace("t", 0).fate == "corrupt"
    assert tracer.waiting("u7") == ("t", 1), "the search continues behind it"


def test_message_of_unread_topic_stays_in_log(topics: Path, table: HandWritten) -> None:
    append(topics, "other", [b"x"])
    assert Tracer(topics, table.layout, ["t"]).trace("other", 0).fate == "kept"
    for name in ("none", "a/b", "..", "t/0"):
        with pytest.raises(NoSuchTopic):
            Tracer(topics, table.layout).trace(name, 0)


def test_partition_of_kafka_is_traced_by_journal(topics: Path, table: HandWritten) -> None:
    table.commit({"events/0": 2}, [{"topic": "events", "partition": 0, "offset": 0, "kind": "event", "uuid": "u1"}])
    topics.mkdir()
    Journal(table.layout).update()
    tracer = Tracer(topics, table.layout)
    assert [tracer.trace("events/0", n).fate for n in (0, 1, 2)] == ["landed.event", "unknown", "pending"]
    assert tracer.landed("u1") == ("events/0", 0)


def test_deleted_row_is_deleted_before_and_after_removal_of_file(tmp_path: Path, topics: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    append(topics, "t", [event(1), event(2)])
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_event(1, "u2")])
    prove(topics, table)
    request_deletion(table.layout, REQUESTED, parse_conditions("uuid = 'u1'"))
    execute_deletions(table.layout, 1)
    for _ in range(2):
        traced = Tracer(topics, table.layout, ["t"])
        assert (traced.trace("t", 0).fate, traced.trace("t", 1).fate) == ("deleted", "landed.event")
        assert traced.landed("u1") is None
        (table.layout.landed / table.files[0]).unlink(missing_ok=True)


def test_row_that_was_sent_back_is_resolved_and_both_ends_are_shown(
    topics: Path, tracer: Tracer, table: HandWritten
) -> None:
    class Client:
        def append_batch(self, topic: str, body: pa.RecordBatch, producer: object = None) -> list[int]:
            append(topics, topic, [row["payload"] for row in body.to_pylist()])
            return [5]

    assert tracer.trace("t", 2).meaning == (
        "is in quarantine: bad_json (not valid JSON: expecting property name enclosed in double quotes, at character 2)"
    )
    quarantined = Row("t", None, 2, datetime(2026, 1, 1, tzinfo=UTC), "udp", "bad_json", b"{no json", None, [])
    SendBack(table.layout, Client(), lambda _: event(7), "fix m:f").run([quarantined])
    waiting = tracer.trace("t", 2)
    assert (waiting.fate, details_of_step(waiting, "sent back")["fate"]) == ("quarantined.bad_json", "pending")
    table.commit({"t": 6}, [landed_event(4, "u2"), landed_event(5, "u7")])
    origin, successor = (Tracer(topics, table.layout, ["t"]).trace("t", offset) for offset in (2, 5))
    assert origin.meaning.startswith("was in quarantine and was sent back on 2")
    assert origin.meaning.endswith("(fix m:f) as t:5, which has landed: event")
    assert details_of_step(successor, "sent back from") == {"topic": "t", "offset": 2, "fix": "fix m:f"}
    assert (successor.fate, successor.meaning) == ("landed.event", "has landed: event")
