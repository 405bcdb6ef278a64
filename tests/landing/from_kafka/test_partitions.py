"""Partitions of a real Kafka as a status shows them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.landing.journal import Journal
from penstock.proof.posts.ends import EndsPosts
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.status import status
from penstock.spark.source.interfaces import ReadAllAvailable
from penstock.spark.source.kafka_ranges import KafkaRangeReader
from penstock.testing.pipe import free_ports, wait_until
from tests.cli.command_line import run
from tests.kafka.kafka_helpers import Topics
from tests.spark.spark_helpers import HandWritten, landed_event


@pytest.fixture
def cluster(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Topics]:
    topics = Topics(kafka_broker, f"p{time.time_ns():x}")
    yield topics
    topics.close()


def test_status_shows_ends_and_lag_of_partitions(cluster: Topics, table: HandWritten) -> None:
    topic = cluster.new(partitions=2)
    cluster.plain(topic, [b"a", b"b", b"c"])
    table.commit({f"{topic}/0": 1}, [landed_event(0, "u1")])
    Journal(table.layout).update()
    source = KafkaPartitions({"bootstrap.servers": cluster.address})
    first, second = status(source, table.layout, [topic]).topics
    assert (first.topic, first.end, first.landed, first.lag_rows) == (f"{topic}/0", 3, 1, 2)
    assert 0 < first.lag < 60
    assert (second.topic, second.end, second.lag_rows, second.lag) == (f"{topic}/1", 0, 0, 0.0)


def test_internal_topics_are_shown_by_their_full_name_only(cluster: Topics) -> None:
    source = KafkaPartitions({"bootstrap.servers": cluster.address})
    topic = cluster.new()

    def finds_topic() -> bool:
        try:
            return f"{topic}/0" in source.views(["*"])
        except KafkaAway:  # a broker hears of a new topic a moment later: it does not know yet that it leads it
            return False

    wait_until(finds_topic, 30)
    assert not any(name.startswith("_") for name in source.views(["*"]))


def test_a_cluster_that_does_not_answer_is_reported_with_the_rest(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.partitions.ANSWER_TIMEOUT_S", 0.5)
    source = KafkaPartitions({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(KafkaAway, match=r"Kafka at 127\.0\.0\.1:1 does not answer: .*Connection refused$"):
        source.views(["*"])
    table.commit({"events/0": 1}, [landed_event(0, "u1")])
    Journal(table.layout).update()
    shown = status(source, table.layout, ["*"])
    assert (shown.topics, shown.last_batch) == ([], 0)
    assert shown.problem.startswith("Kafka at 127.0.0.1:1 does not answer")


def test_selected_topics_that_kafka_does_not_show_are_named_with_the_next_step(
    guarded: tuple[Broker, dict[str, str]], table: HandWritten, tmp_path: Path
) -> None:
    broker, limited = guarded
    topics = Topics(broker, "guarded")
    seen, hidden = topics.new(), topics.new()
    source, address = KafkaPartitions(limited), limited["bootstrap.servers"]
    denied = f"topic {hidden!r} may not be described: grant Describe and Read on it to this user"
    for patterns, problem in (
        ([hidden], denied),
        (["*"], "no topic matches '*': create one, correct pipeline.topics, or grant this user Describe and Read"),
    ):
        state = status(source, table.layout, patterns)
        assert (state.problem, state.topics) == (f"Kafka at {address}: {problem}", [])
    options = [part for name, text in limited.items() for part in ("-o", f"pipeline.kafka.{name}={text}")]
    options += ["-o", "pipeline.source=kafka", "-o", f"pipeline.topics=[{hidden!r}]"]
    (tmp_path / "penstock-data").mkdir()
    shown = run("pipeline", "status", *options, folder=tmp_path)
    assert (shown.status, denied in shown.output) == (1, True), shown.text
    assert denied in run("doctor", *options, folder=tmp_path).output
    topics.grant(seen, AclOperation.DESCRIBE)

    def sees_topic() -> bool:
        return f"{seen}/0" in source.views([seen, hidden])

    wait_until(sees_topic, 30)
    assert source.problem == f"Kafka at {address}: {denied}"
    source.views([seen[:-1] + "?"])
    assert source.problem == ""
    topics.close()


def test_partitions_whose_leaders_have_just_changed_are_asked_again(
    cluster: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, asked = cluster.new(2), AdminClient.list_offsets
    codes = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH]

    def list_offsets(admin: AdminClient, partitions: Any, **options: Any) -> Any:
        if not codes:
            return asked(admin, partitions, **options)
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(codes.pop())))
        return dict.fromkeys(partitions, refused)

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    assert [*KafkaPartitions({"bootstrap.servers": cluster.address}).views([topic])] == [f"{topic}/0", f"{topic}/1"]
    assert not codes


def test_topic_that_does_not_exist_is_named(cluster: Topics) -> None:
    source, topic = KafkaPartitions({"bootstrap.servers": cluster.address}), cluster.new()
    assert f"{topic}/0" in source.views([topic, f"{topic}-typo"])
    assert source.problem.endswith(f"topic '{topic}-typo' does not exist: create it, or correct pipeline.topics")


def test_name_that_no_topic_may_have_does_not_hide_the_others(cluster: Topics) -> None:
    source, topic, name = KafkaPartitions({"bootstrap.servers": cluster.address}), cluster.new(), "x" * 250
    assert f"{topic}/0" in source.views([topic, name])
    assert f"topic {name!r} cannot be described: " in source.problem


@pytest.fixture
def leaderless(tmp_path: Path) -> Iterator[tuple[Broker, Broker, str]]:
    """A broker, and another one that has ended and holds partition 1 of a topic."""
    with Broker(tmp_path / "first", memory="256m") as first:
        settings = dict(line.split("=", 1) for line in (first.folder / "server.properties").read_text().splitlines())
        stored = dict(
            line.split("=", 1)
            for line in (first.folder / "data" / "meta.properties").read_text().splitlines()
            if not line.startswith("#")
        )
        second, (port,) = tmp_path / "second", free_ports(1)
        (second / "data").mkdir(parents=True)
        (second / "data" / "meta.properties").write_text(f"version=1\ncluster.id={stored['cluster.id']}\nnode.id=2\n")
        address = f"PLAINTEXT://127.0.0.1:{port}"
        own = {"process.roles": "broker", "node.id": "2", "listeners": address, "advertised.listeners": address}
        quorum = {"controller.quorum.voters": settings["controller.quorum.voters"]}
        other = Broker(second, port=port, memory="256m", settings={**own, **quorum})
        with other:
            admin = AdminClient({"bootstrap.servers": first.address})
            wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, 30)
            topic = NewTopic("held", 2, replica_assignment=[[1], [2]])
            admin.create_topics([topic])["held"].result(30)

            def has_both() -> bool:
                with suppress(KafkaAway):  # the other broker may not know the topic for a moment
                    return len(KafkaPartitions({"bootstrap.servers": first.address}).views(["held"])) == 2
                return False

            wait_until(has_both, 60)
        wait_until(lambda: admin.list_topics("held", 10).topics["held"].partitions[1].leader < 0, 60)
        yield first, other, "held"


def test_partition_without_a_leader_is_named_and_hides_no_other(
    leaderless: tuple[Broker, Broker, str],
    table: HandWritten,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.landing.from_kafka.partitions.ANSWER_TIMEOUT_S", 3.0)
    broker, other, topic = leaderless
    kafka = {"bootstrap.servers": broker.address}
    problem = f"Kafka at {broker.address}: no broker leads {topic}/1: start the brokers that hold it"
    source = KafkaPartitions(kafka, skips_leaderless=True)
    state = status(source, table.layout, [topic])
    assert ([shown.topic for shown in state.topics], state.problem) == ([f"{topic}/0"], problem)
    # The lag of a partition without a leader is unknown: a script must not take it for zero.
    options = [f"pipeline.kafka.bootstrap.servers={broker.address}", "pipeline.source=kafka"]
    options = [part for text in (*options, f"pipeline.topics=[{topic!r}]") for part in ("-o", text)]
    (tmp_path / "penstock-data").mkdir()
    shown = run("pipeline", "status", *options, folder=tmp_path)
    assert (shown.status, problem in shown.output, f"{topic}/0" in shown.output) == (1, True, True), shown.text
    # A deletion cannot say how many messages will land behind it.
    for arguments in (["--where", "host = 'x'"], ["--where", "topic = 'x'", "--json"]):
        shown = run("tables", "delete", *arguments, *options, folder=tmp_path)
        assert (shown.status, problem in shown.output) == (0, True), shown.text
    with caplog.at_level(logging.INFO, "penstock.proof"):
        posts = EndsPosts(kafka, [topic], tmp_path / "pipeline.json")
        for _ in range(2):
            posts._due_at = 0.0
            posts.post_if_due(LedgerClient("127.0.0.1:1"))
    assert caplog.messages == [f"{problem}; the other partitions land"]
    with pytest.raises(KafkaAway, match=f"^{problem}$"):
        KafkaPartitions(kafka).views([topic])
    # What is planned continues without the partition; a landing of all that is available may not end without it.
    endless, until_available = (
        KafkaRangeReader(kafka, (topic,), 0, tmp_path / "hold", until_available=ends) for ends in (False, True)
    )
    offsets = {topic: {"0": 0, "1": 7}}
    assert endless.latestOffset(offsets, ReadAllAvailable()) == offsets
    with pytest.raises(KafkaAway, match=f"^{problem}$"):
        until_available.latestOffset(offsets, ReadAllAvailable())
    # A leader that comes in time is waited for, as while brokers restart.
    names: list[str] = []

    def wait_for_leader() -> None:
        while not names:
            with suppress(KafkaAway):  # it may not know the topic for a moment
                names.extend(KafkaPartitions(kafka).views([topic], 120.0))

    waiting = threading.Thread(target=wait_for_leader, daemon=True)
    waiting.start()
    with other:
        waiting.join(120)
    assert names == [f"{topic}/0", f"{topic}/1"]
