"""Transformations in a real Spark: on every way into the table, with a balance that closes."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.kafka.broker import Broker
from penstock.landing.event_rules import MessageKind
from penstock.landing.journal import Journal
from penstock.landing.transform.rules import BadTransform, TransformRules
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.prover import Prover
from penstock.proof.reread.kafka import KafkaRecords
from penstock.spark.pipeline import tidied
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.spark.views import read_landed, register_views
from penstock.sql.quarantined import Selection, newest
from penstock.sql.tables import Tables
from penstock.upkeep.backfill_planner import BackfillPlanner, are_proved, request_backfill
from penstock.upkeep.quarantine.send_back import SendBack
from tests.spark.query.test_kafka_landing import GAP, plain, send
from tests.spark.query.test_kafka_landing import topic as kafka_topic  # noqa: F401  a fixture
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import append, event
from tests.upkeep.test_backfill_planner import rebuilt_balance

pytestmark = pytest.mark.spark
MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

def own(rows):
    if any(b"explode" in (payload or b"") for payload in rows["payload"].to_pylist()):
        raise RuntimeError("it did")
    return rows.filter(pc.fill_null(pc.not_equal(rows["type"], pa.scalar("debug")), True))
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TransformRules:
    """A module that lies where no Python of Spark's looks by itself."""
    name = f"own_rows_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return TransformRules(f"{name}:own", patterns=(r"[a-z]+@[a-z.]+",), fields=("data.user",), salt=b"salt")


def land(spark: SparkSession, landing: Landing, ledger: LedgerClient | None = None) -> None:
    start_landing(spark, landing, available_now=True).wait(120)
    assert ledger is None or ProofWorker(landing, ledger).step()


def fates(spark: SparkSession, landing: Landing) -> dict[tuple[str, int], str]:
    spark.catalog.clearCache()
    return {(row.topic, row.offset): row.kind for row in read_landed(spark, landing.tables).collect()}


def test_all_sources_are_transformed_and_the_balance_closes(
    spark: SparkSession, topics: Path, tmp_path: Path, rules: TransformRules
) -> None:
    mail = event(1, data={"user": "ann", "to": "ann@example.org", "n": 1})
    append(topics, "a", [mail, event(2, "debug"), event(2), b"explode", b"from ann@example.org", event(2)])
    append(topics, "b", [event(3, "debug"), event(4), b"<1> explode"], codec="syslog")
    landing = Landing(topics, tmp_path / "tables", topic="a", transform=rules)
    with daemon(tmp_path) as running:
        ledger = LedgerClient(running.http)
        land(spark, landing, ledger)
        assert fates(spark, landing) == {
            ("a", 0): "event",
            ("a", 1): "dropped",
            ("a", 2): "event",
            ("a", 3): "quarantine",
            ("a", 4): "message",
        }
        register_views(spark, landing.tables)
        shown = spark.sql("select data:to::string, payload from events where uuid = 'u1'").collect()
        assert shown[0][0] == "***"
        assert b"ann" not in bytes(shown[0][1])
        assert [row.offset for row in spark.sql("select * from events order by offset").collect()] == [0, 2]

        _backfill(spark, landing, ledger)
        _send_back(spark, landing, running.log, ledger)
        balance = running.ledger.balance()
        assert (balance.unaccounted, balance.pending) == (0, 0)
        told = sum((Counter(one.fates) for one in balance.topics), Counter())
        assert (told["transformed.dropped"], told["transformed.redacted"]) == (1, 2)
        assert (told["quarantined.transform_failed"], told["duplicate"]) == (2, 1)
        assert rebuilt_balance(landing) == balance.document()["topics"]


def _backfill(spark: SparkSession, landing: Landing, ledger: LedgerClient) -> None:
    with tidied(landing):
        survey = BackfillPlanner(landing.topics, landing.layout, ["a"], running=False).survey("b", 0, None)
    asked = request_backfill(landing.layout, survey)
    land(spark, replace(landing, only_backfills=True), ledger)
    assert are_proved(landing.layout, asked)
    found = {place: kind for place, kind in fates(spark, landing).items() if place[0] == "b"}
    assert found == {("b", 0): "syslog", ("b", 1): "syslog", ("b", 2): "quarantine"}


def _send_back(spark: SparkSession, landing: Landing, log: object, ledger: LedgerClient) -> None:
    """Send failed messages back: they return as messages of the log and are transformed."""
    chosen = newest(Tables(landing.layout), Selection(topic="a"), 10)
    sent, _ = SendBack(landing.layout, _Appends(log), lambda _: b"mended").run(chosen)
    assert sent == 1
    land(spark, landing, ledger)
    assert fates(spark, landing)["a", 6] == "message"


class _Appends:
    """The log, as a client of it."""

    def __init__(self, log: object) -> None:
        self._log = log

    def append_batch(self, topic: str, body: object, producer: object = None) -> list[int]:
        from penstock.counts import Origin

        del producer
        opened = self._log.topic(topic)  # type: ignore[attr-defined]
        opened.append(body, Origin("grpc", 1_700_000_040, 1, 2, "plog", {"accepted": 1, "seen": 1})).result(20)
        return [opened.end - 1]


def test_records_of_kafka_are_transformed(
    spark: SparkSession,
    kafka_broker: Broker,
    kafka_topic: str,  # noqa: F811
    topics: Path,
    tmp_path: Path,
    rules: TransformRules,
) -> None:
    client = {"bootstrap.servers": kafka_broker.address}
    landing = Landing(topics, tmp_path / "tables", topic=kafka_topic, kafka=client, expiry_gap=GAP, transform=rules)
    send(kafka_broker, kafka_topic, [plain(event(1, "debug")), plain(event(2)), plain(b"explode")])
    land(spark, landing)
    assert Counter(fates(spark, landing).values()) == dict.fromkeys(["dropped", "event", "quarantine"], 1)
    prover = Prover(topics, landing.layout, kafka=KafkaRecords(client, GAP))
    proofs = [proof for commit in Journal(landing.layout).update() for proof in prover.prove(commit)]
    assert all(proof.holds for proof in proofs)
    assert sum(proof.total("transformed.dropped") for proof in proofs) == 1


def test_missing_function_is_refused_with_its_key(spark: SparkSession, topics: Path, tmp_path: Path) -> None:
    landing = Landing(topics, tmp_path / "tables", transform=TransformRules("nowhere_at_all:f"))
    with pytest.raises(BadTransform, match=r"^pipeline\.transform = 'nowhere_at_all:f'"):
        start_landing(spark, landing)
    assert not list((tmp_path / "tables").rglob(f"kind={MessageKind.EVENT}"))
