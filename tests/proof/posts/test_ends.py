"""Posts of the ends of partitions of a real Kafka to a real ledger."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.kafka.broker import Broker
from penstock.kafka.client import administration
from penstock.ledger.hosts import kafka_hosts
from penstock.ledger.hosts.kafka_hosts import KafkaPost, KafkaReport
from penstock.proof.posts import ends as ends_posts
from penstock.proof.posts.ends import IDLE_INTERVAL_S, POST_INTERVAL_S, EndsPosts, pipeline_id
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from tests.kafka.kafka_helpers import Topics
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import HandWritten

HOST = KafkaPost("web1", "d", "p", 1, 0, "1", {"udp": KafkaReport(3, 3, minutes={60: (3, 0)})})


def until_due(posts: EndsPosts) -> float:
    return posts._due_at - time.monotonic()


def test_ends_are_posted_by_one_client_and_more_often_for_a_host(
    tmp_path: Path, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(kafka_broker, f"ends{time.time_ns():x}")
    topic = topics.new()
    topics.plain(topic, [b"a", b"b", b"c"])
    clients: list[object] = []
    make_client = administration.AdminClient

    def count_client(properties: dict[str, str]) -> object:
        clients.append(properties)
        return make_client(properties)

    monkeypatch.setattr(administration, "AdminClient", count_client)
    with daemon(tmp_path) as running:
        register, ledger = running.ledger.kafka_hosts, LedgerClient(running.http)
        posts = EndsPosts({"bootstrap.servers": kafka_broker.address}, [topic], tmp_path / "pipeline.json")
        posts.post_if_due(ledger)
        ((_, first),) = register._pipelines.items()
        assert first.waiting is not None
        assert first.waiting[1] == {f"{topic}/0": 3}
        assert POST_INTERVAL_S < until_due(posts) <= IDLE_INTERVAL_S
        running.ledger.post(HOST.document())
        for _ in range(2):
            posts._due_at = 0.0
            posts.post_if_due(ledger)
            assert 0 < until_due(posts) <= POST_INTERVAL_S
        assert list(register._pipelines) == [pipeline_id(tmp_path / "pipeline.json")]
    assert len(clients) == 1
    topics.close()


def test_refusal_is_logged_once(
    tmp_path: Path, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics(kafka_broker, f"ends{time.time_ns():x}")
    topic = topics.new()
    monkeypatch.setattr(kafka_hosts, "MAX_PARTITIONS", 0)
    with daemon(tmp_path) as running:
        posts = EndsPosts({"bootstrap.servers": kafka_broker.address}, [topic], tmp_path / "pipeline.json")
        for _ in range(2):
            posts._due_at = 0.0
            posts.post_if_due(LedgerClient(running.http))
    (line,) = [line for line in caplog.messages if "refused the ends of Kafka's partitions" in line]
    assert "ends is not an object with at most 0 names" in line
    topics.close()


def test_worker_waits_briefly_for_a_kafka_that_does_not_answer_and_not_at_its_stop(
    tmp_path: Path, topics: Path, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_posts, "ANSWER_TIMEOUT_S", 0.2)
    landing = Landing(topics, table.layout.tables, kafka={"bootstrap.servers": "127.0.0.1:1"})
    with daemon(tmp_path) as running:
        worker = ProofWorker(landing, LedgerClient(running.http))
        posts = worker._ends_posts
        assert posts is not None
        assert worker.step()
        assert POST_INTERVAL_S < until_due(posts) <= IDLE_INTERVAL_S
        posts._due_at = 0.0
        worker._stop.set()
        assert worker.step()
        assert posts._due_at == 0.0


def test_pipeline_keeps_its_id_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"
    first = pipeline_id(path)
    assert pipeline_id(path) == first
    path.write_bytes(b"damaged")
    assert pipeline_id(path) != first
