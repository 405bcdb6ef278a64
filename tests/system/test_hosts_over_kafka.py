"""Hosts that forward to Kafka, and the pipeline that lands from it: the balance names what is missing or doubled.

The judge is a consumer of confluent-kafka that counts records by their header.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.broker import Broker
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import stopped
from tests.spark.spark_helpers import event
from tests.spark.test_pipeline import start
from tests.system.configured_pipe import SMALL, listener

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
WAIT_S = 240
HEADER = "_penstock_origin"
EVENTS, DELETED, COPIES = 200, 20, 7
TIMEOUT_MS = 15_000


class Kafka:
    """A topic with two partitions, and an independent reader of it."""

    def __init__(self, broker: Broker) -> None:
        self.kafka, self.topic = {"bootstrap.servers": broker.address}, f"hosts-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient(self.kafka)
        self.admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(30)

    def records(self) -> list[Message]:
        consumer = Consumer({**self.kafka, "group.id": uuid.uuid4().hex, "enable.auto.commit": "false"})
        records: list[Message] = []
        for partition in (TopicPartition(self.topic, number) for number in (0, 1)):
            begin, end = consumer.get_watermark_offsets(partition, 30)
            consumer.assign([TopicPartition(self.topic, partition.partition, begin)])
            while begin < end:
                record = consumer.poll(30)
                assert record is not None
                assert record.error() is None
                records.append(record)
                begin = record.offset() + 1
        consumer.close()
        return records

    def delete_first(self, count: int) -> None:
        """Delete the first records of partition 0."""
        partition = TopicPartition(self.topic, 0, count)
        self.admin.delete_records([partition])[partition].result(30)

    def produce_again(self, records: list[Message]) -> None:
        """Store copies of records, as the retry of a producer does whose answer was lost."""
        producer = Producer(self.kafka)
        for record in records:
            producer.produce(self.topic, record.value(), headers=record.headers())
        assert producer.flush(30) == 0


def origin(record: Message) -> str:
    """Return HOST/LISTENER of a record."""
    ((_, text),) = [header for header in record.headers() or [] if header[0] == HEADER]
    return str(text.decode().partition("@")[0])


def by_origin(records: list[Message]) -> Counter[str]:
    return Counter(map(origin, records))


class Scene:
    """A central instance, and hosts that forward to Kafka and post their counts to it."""

    def __init__(self, kafka: Kafka, folder: Path, hosts: int) -> None:
        self.kafka, self.sent = kafka, Counter[str]()
        (folder / "central").mkdir()
        self.central = Pipe(folder / "central")
        self.central.configure(SMALL + listener("own", "tcp"))
        self.hosts = [self._host(folder, f"web{number}") for number in range(hosts)]
        self.pipeline: subprocess.Popen[str] | None = None

    def _host(self, folder: Path, name: str) -> Pipe:
        (folder / name).mkdir()
        pipe = Pipe(folder / name)
        server = self.kafka.kafka["bootstrap.servers"]
        handler = (
            f'handlers = [{{ type = "kafka", default_topic = "{self.kafka.topic}", origin_header = true, '
            f'host = "{name}", producer = {{ "bootstrap.servers" = "{server}", '
            f'"message.timeout.ms" = {TIMEOUT_MS} }} }}]\n'
        )
        keys = {"tcp": "", "udp": 'defrag.max_size = "16KiB"\n'}
        heads = [f'[[listener]]\nname = "{n}"\nprotocol = "{n}"\nport = 0\n{more}' for n, more in keys.items()]
        relay = f'[[relay]]\nname = "up"\nkafka = true\nto = "{self.central.grpc}"\nhost = "{name}"\n'
        pipe.configure(SMALL + "".join(head + handler for head in heads) + relay)
        return pipe

    def send(self, host: int, count: int) -> None:
        """Send events to both listeners of a host."""
        pipe, first = self.hosts[host], 10_000 * host + self.sent.total()
        pipe.lines(b"".join(event(first + number) + b"\n" for number in range(count)), "tcp")
        pipe.datagrams(*(event(first + count + number) for number in range(count)), listener="udp", pause=0.001)
        for name in ("tcp", "udp"):
            self.sent[f"web{host}/{name}"] += count

    def start_pipeline(self) -> None:
        settings = ["pipeline.source=kafka", f'pipeline.topics=["{self.kafka.topic}"]']
        settings += [f"pipeline.kafka.{key}={text}" for key, text in self.kafka.kafka.items()]
        options = [part for setting in settings for part in ("-o", setting)]
        self.pipeline = start(self.central.data_dir, self.central.http, *options, stderr=subprocess.DEVNULL)

    def compared(self) -> dict[str, dict[str, Any]]:
        """Return the comparison of each listener of a host."""
        return {name: row["over_kafka"] for name, row in hosts_rows(self.central).items()}

    def stop(self) -> None:
        if self.pipeline is not None:
            self.pipeline.terminate()
            self.pipeline.wait(60)
        for pipe in (*self.hosts, self.central):
            pipe.stop()


@pytest.fixture
def scene(request: pytest.FixtureRequest, kafka_broker: Broker, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(Kafka(kafka_broker), tmp_path, hosts=request.param)
    try:
        for pipe in (scene.central, *scene.hosts):
            pipe.start(wait=False)
        for pipe in (scene.central, *scene.hosts):
            pipe.wait_ready()
        yield scene
    finally:
        scene.stop()


def hosts_rows(central: Pipe) -> dict[str, dict[str, Any]]:
    """Return the row of each listener of a host that forwards to Kafka, in the balance of the central host."""
    rows = central.balance().get("hosts", [])
    return {f"{row['host']}/{row['listener']}": row for row in rows if row["over_kafka"]}


def counts(compared: dict[str, dict[str, Any]], name: str) -> Counter[str]:
    return +Counter({origin: row[name] for origin, row in compared.items()})


@pytest.mark.parametrize("scene", [3], indirect=True)
def test_missing_and_doubled_records_are_named_by_host_and_the_sums_close(scene: Scene) -> None:
    for host in range(3):
        scene.send(host, EVENTS)
    scene.hosts[1].kill_all()
    scene.hosts[1].start()
    scene.send(1, EVENTS)
    origins = sorted(scene.sent)

    def is_forwarded() -> bool:
        compared = scene.compared()
        return sorted(compared) == origins and all(
            row["forwarded"] + row["failed"] >= scene.sent[name] and not row["pending"]
            for name, row in compared.items()
        )

    wait_until(is_forwarded, WAIT_S, "the hosts post that everything is forwarded")
    forwarded = counts(scene.compared(), "forwarded")
    records = scene.kafka.records()
    # A killed handler sends its last batch again, and counts it once.
    retried = by_origin(records) - forwarded
    assert retried.keys() <= {"web1/tcp", "web1/udp"}
    deleted = by_origin([record for record in records if record.partition() == 0 and record.offset() < DELETED])
    copied = [record for record in records if origin(record) == "web2/tcp" and record.partition() == 1][:COPIES]
    copied += [record for record in records if origin(record) == "web2/tcp"][: COPIES - len(copied)]
    scene.kafka.delete_first(DELETED)
    scene.kafka.produce_again(copied)
    landing = by_origin(scene.kafka.records())
    assert counts(scene.compared(), "in_kafka") == forwarded  # nothing has landed, and that is not a loss

    scene.start_pipeline()
    wait_until(lambda: counts(scene.compared(), "landed") == landing, WAIT_S, "the records land")
    expected_missing = deleted - retried
    expected_doubled = +Counter({name: landing[name] - forwarded[name] for name in landing})

    def is_named() -> bool:
        compared = scene.compared()
        return counts(compared, "missing") == expected_missing and counts(compared, "doubled") == expected_doubled

    wait_until(is_named, WAIT_S, f"missing {expected_missing}, doubled {expected_doubled}: {scene.compared()}")
    compared = scene.compared()
    for name, row in compared.items():
        right = row["forwarded"] + row["doubled"] + row["failed_landed"] + row["unposted"]
        assert row["landed"] + row["in_kafka"] + row["missing"] == right, (name, row)
        assert row["accepted"] == row["forwarded"] + row["failed"] + row["dropped"] + row["pending"], (name, row)
        assert (row["in_kafka"], row["unposted"]) == (0, 0)
        assert bool(row["missing_minutes"]) == bool(row["missing"])
    fates = {row["listener"]: row["fates"] for row in scene.central.balance()["hosts"] if row["host"] == "web2"}
    assert fates["tcp"]["duplicate"] == COPIES
    command = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "balance", "--hosts", "--json"],
        env=scene.central.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert command.returncode == 1, command.stderr
    assert {row["listener"] for row in json.loads(command.stdout)["rows"]} == {"tcp", "udp"}

    # A host that loses its disk keeps its sums, and a new one is seen with its first post.
    scene.hosts[0].kill_all()
    shutil.rmtree(scene.hosts[0].data_dir)
    scene.hosts[0].start()
    scene.send(0, 5)
    wait_until(lambda: scene.compared()["web0/tcp"]["landed"] == landing["web0/tcp"] + 5, WAIT_S, "the new disk lands")
    wait_until(lambda: scene.compared()["web0/tcp"]["forwarded"] == forwarded["web0/tcp"] + 5, WAIT_S, "it posts")
    missing = deleted["web0/tcp"]
    wait_until(lambda: scene.compared()["web0/tcp"]["missing"] == missing, WAIT_S, "missing ones are named again")
    row = scene.compared()["web0/tcp"]
    assert (row["accepted"], row["lost_with_disk"], row["in_kafka"]) == (EVENTS + 5, 0, 0)


@pytest.mark.survives("hosts", "peer away")
@pytest.mark.parametrize("scene", [1], indirect=True)
def test_messages_that_a_host_counts_as_failed_while_kafka_is_away_are_told_from_those_that_it_stored(
    scene: Scene, kafka_broker: Broker
) -> None:
    scene.send(0, EVENTS)
    wait_until(lambda: counts(scene.compared(), "forwarded").total() == 2 * EVENTS, WAIT_S, "all is forwarded")
    assert kafka_broker.pid is not None
    with stopped(kafka_broker.pid):
        scene.send(0, EVENTS)
        wait_until(lambda: counts(scene.compared(), "failed").total() == 2 * EVENTS, WAIT_S, "deliveries fail")
    scene.send(0, EVENTS)

    def is_forwarded() -> bool:
        total = counts(scene.compared(), "forwarded") + counts(scene.compared(), "failed")
        return total == scene.sent

    wait_until(is_forwarded, WAIT_S, "the host forwards again")
    forwarded = counts(scene.compared(), "forwarded")
    scene.start_pipeline()
    # Requests that had reached the socket of the broker may be carried out after the host has given up.
    landing = by_origin(scene.kafka.records())
    wait_until(lambda: counts(scene.compared(), "landed") == landing, WAIT_S, "the records land")
    wait_until(lambda: not counts(scene.compared(), "in_kafka"), WAIT_S, "the landing has reached the ends")
    compared = scene.compared()
    assert counts(compared, "failed_landed") == landing - forwarded
    assert not counts(compared, "missing") + counts(compared, "doubled")
    assert counts(compared, "accepted") == scene.sent
