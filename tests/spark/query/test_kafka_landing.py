"""Landing from a real Kafka: the same tables as from the log, large messages whole, every offset accounted for."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.kafka.broker import Broker
from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.headers import LARGE_MESSAGE, V3, LargeMessageHeader, encode_large_message_header, message_key
from penstock.landing.journal import Journal
from penstock.landing.requests import deletions
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.proof.proofs import Proof
from penstock.proof.prover import Prover, rebuild
from penstock.proof.reread.kafka import KafkaRecords
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.views import register_views
from penstock.upkeep.deletion.removal import execute_deletions
from tests.audit.audited import run_audit
from tests.spark.spark_helpers import append, event

pytestmark = pytest.mark.spark
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
GAP = 50


def plain(value: bytes) -> Record:
    return value, None, []


def segments(payload: bytes, size: int, *, in_header: bool = False) -> list[Record]:
    message_id = uuid.uuid4()
    pieces = [payload[n : n + size] for n in range(0, len(payload), size)]
    found: list[Record] = []
    for number, piece in enumerate(pieces):
        header = LargeMessageHeader(V3 if in_header else 1, message_id, number, len(pieces), len(payload))
        value = piece if in_header else encode_chunk(message_id, number, len(pieces), len(payload), piece)
        found.append((value, message_key(message_id), [(LARGE_MESSAGE, encode_large_message_header(header))]))
    return found


@pytest.fixture
def topic(kafka_broker: Broker) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})  # kept until the answer is there
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return name


def send(
    broker: Broker, topic: str, records: Iterable[Record], partition: int = 0, transactional: bool = False
) -> None:
    more = {"transactional.id": uuid.uuid4().hex} if transactional else {}
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, **more})
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value, key, headers in records:
        producer.produce(topic, value, key, partition, headers=headers)
    if transactional:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def land(spark: SparkSession, landing: Landing) -> None:
    start_landing(spark, landing, available_now=True).wait(240)


def proofs_of(landing: Landing) -> list[Proof]:
    assert landing.kafka is not None
    prover = Prover(landing.topics, landing.layout, kafka=KafkaRecords(landing.kafka, GAP))
    return [proof for commit in Journal(landing.layout).update() for proof in prover.prove(commit)]


def landed(spark: SparkSession, tables: Path) -> list[tuple[object, ...]]:
    register_views(spark, tables)
    found = spark.sql("select kind, type, uuid, host, length(payload), reason from landed order by 1, 3, 5").collect()
    return [tuple(row) for row in found]


def test_kafka_and_log_give_the_same_tables(
    spark: SparkSession, kafka_broker: Broker, topic: str, topics: Path, tmp_path: Path
) -> None:
    large = [event(n, data={"text": "x" * size}) for n, size in ((100, 1_000_000), (101, 2_500_000))]
    small = [event(1), event(2, "view"), event(1), b"{bad", b"text"]
    kafka = Landing(
        topics, tmp_path / "kafka", topic=topic, kafka={"bootstrap.servers": kafka_broker.address}, expiry_gap=GAP
    )
    first, second = segments(large[0], 400_000), segments(large[1], 400_000, in_header=True)
    send(kafka_broker, topic, [plain(small[0]), *first[:2], second[0]])
    land(spark, kafka)
    send(kafka_broker, topic, [first[2], plain(small[1]), *second[1:], plain(small[2])])
    send(kafka_broker, topic, map(plain, small[3:]), partition=1, transactional=True)
    send(kafka_broker, topic, segments(b"never whole" * 9, 20)[:2], partition=1)
    land(spark, kafka)

    append(topics, "t", small + large)
    log = Landing(topics, tmp_path / "log", topic="t")
    land(spark, log)
    assert landed(spark, kafka.tables) == landed(spark, log.tables)
    offsets = spark.sql("select partition, offset from landed").collect()
    assert all(row.partition is None for row in offsets), "those of the log"

    proofs = proofs_of(kafka)
    assert all(proof.holds for proof in proofs), [proof.document() for proof in proofs]
    total = {
        name: sum(proof.total(name) for proof in proofs)
        for name in ("landed.", "quarantined.", "duplicate", "segment", "not_a_message.control", "gap.")
    }
    assert total == {
        "landed.": 5,
        "quarantined.": 1,
        "duplicate": 1,
        "segment": len(first) + len(second) - 2 + 2,
        "not_a_message.control": 1,
        "gap.": 0,
    }
    assert sum(proof.rows for proof in proofs) == 5 + 1 + 1 + total["segment"], "a control record is no row"
    status, report, errors = run_audit(kafka_broker.address, topic, kafka.layout.landed)
    assert (status, report.get("missing"), report.get("doubled")) == (0, 0, 0), errors
    absences: Counter[str] = sum((Counter(part["absences"]) for part in report["partitions"]), Counter())
    assert absences == {"duplicate": 1, "chunk": len(first) + len(second), "control": 1}


def test_message_that_did_not_land_is_unaccounted(
    spark: SparkSession, kafka_broker: Broker, topic: str, topics: Path, tmp_path: Path
) -> None:
    landing = Landing(topics, tmp_path / "tables", topic=topic, kafka={"bootstrap.servers": kafka_broker.address})
    send(kafka_broker, topic, [plain(event(1)), *segments(b"large" * 10, 20), plain(b"text")])
    land(spark, landing)
    lost = list((landing.layout.landed / "kind=message").rglob("*.parquet"))  # one or two, as their keys fall
    for file in lost:
        file.unlink()
    (proof,) = proofs_of(landing)
    assert proof.unaccounted == [3, 4]
    status, report, errors = run_audit(kafka_broker.address, topic, landing.layout.landed)
    assert (status, report["missing"], len(report["lost_files"])) == (1, 2, len(lost)), errors
    assert proof.total("segment") == 2


def test_deleted_rows_of_partitions_do_not_return(
    spark: SparkSession, kafka_broker: Broker, topic: str, topics: Path, tmp_path: Path
) -> None:
    kafka = {"bootstrap.servers": kafka_broker.address}
    landing = Landing(topics, tmp_path / "tables", topic=topic, kafka=kafka)
    send(kafka_broker, topic, [plain(event(n)) for n in range(4)], 0)
    send(kafka_broker, topic, [plain(event(n, "view")) for n in range(10, 13)], 1)
    land(spark, landing)
    missing = [json.loads(event(n))["uuid"] for n in (1, 2)]
    request_deletion(landing.layout, REQUESTED, parse_conditions(f"uuid in ('{missing[0]}', '{missing[1]}')"))
    request_deletion(landing.layout, REQUESTED, parse_conditions("type = 'view'"))
    assert execute_deletions(landing.layout, 600_000_000) == 2
    send(kafka_broker, topic, [plain(event(2)), plain(event(5))], 0)
    land(spark, landing)
    rows = (
        deltalake.DeltaTable(str(landing.layout.landed)).to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    )
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(0, 0), (0, 3), (0, 5)]
    proofs = list(rebuild(topics, landing.layout, kafka=KafkaRecords(kafka, GAP)))
    assert all(isinstance(proof, Proof) and proof.holds for proof in proofs), proofs
    assert {topic: runs.tolist() for topic, runs in deletions.DeletionRecord(landing.layout).runs().items()} == {
        f"{topic}/0": [[1, 3]],
        f"{topic}/1": [[0, 3]],
    }
    status, report, errors = run_audit(kafka_broker.address, topic, landing.layout.landed)
    assert (status, report.get("missing")) == (0, 0), errors
    assert [part["absences"] for part in report["partitions"]] == [{"deleted": 2, "duplicate": 1}, {"deleted": 3}]


def test_lagging_partition_loses_nothing_and_keeps_its_keys(
    spark: SparkSession, kafka_broker: Broker, topic: str, topics: Path, tmp_path: Path
) -> None:
    kafka = {"bootstrap.servers": kafka_broker.address}
    landing = Landing(topics, tmp_path / "tables", topic=topic, kafka=kafka, max_rows=150)
    long = [(event(number), b"k%d" % (number % 7), []) for number in range(400)]
    short: list[Record] = [(event(1000), b"k1", []), (event(3), b"k3", []), (b"text", b"k1", []), (b"text", None, [])]
    send(kafka_broker, topic, long, 0)
    send(kafka_broker, topic, short, 1)
    land(spark, landing)
    register_views(spark, landing.tables)
    rows = spark.sql("select partition, offset, key, payload from landed").collect()
    found = {(row.partition, row.offset): (row.key, bytes(row.payload)) for row in rows}
    sent = {
        (partition, offset): (key, value)
        for partition, records in enumerate((long, short))
        for offset, (value, key, _) in enumerate(records)
    }
    same = [found.pop(offset, None) for offset in ((0, 3), (1, 1))]
    assert same.count(None) == 1, "one uuid in both partitions lands once"
    assert found == {offset: record for offset, record in sent.items() if offset not in ((0, 3), (1, 1))}
    proofs = proofs_of(landing)
    assert all(proof.holds for proof in proofs)
    assert len({proof.batch for proof in proofs}) > 2
