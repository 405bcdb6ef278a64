"""The pipeline from a real Kafka, killed at random points: the tables equal the ones of an undisturbed run."""

from __future__ import annotations

import json
import random
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.kafka import Producer
from penstock.kafka.broker import Broker
from penstock.landing.journal import read_journal
from penstock.landing.rows.json_events import parse_events
from penstock.landing.table.table_file import as_written
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import read_rows
from penstock.proof.proofs import read_proofs
from tests.spark.spark_daemon import daemon
from tests.spark.spark_helpers import event
from tests.spark.test_pipeline import start, wait_for

MEGABYTE = 1 << 20


def payloads(count: int, chance: random.Random) -> Iterator[bytes]:
    """Events, some of 1 to 5 MB, a hundredth of them twice, and a few that are none."""
    for number in range(count):
        if chance.random() < 0.005:
            yield b"{broken"
        if number % (count // 4) == 3:
            yield event(number, data={"text": "x" * chance.randrange(MEGABYTE, 5 * MEGABYTE)})
            continue
        yield event(number)
        if chance.random() < 0.01:
            yield event(number)


def expected(sent: list[bytes]) -> Counter[tuple[str, str | None]]:
    """Kind and uuid of each row that there must be."""
    fates = parse_events(pa.array(sent, pa.binary()))
    rows = Counter(("event", fate.uuid) for fate in fates if fate)
    return Counter(dict.fromkeys(rows, 1)) + Counter(("quarantine", None) for fate in fates if not fate)


@pytest.mark.survives("landing from Kafka", "SIGKILL")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("count", "kills"),
    [(400, 1), *(pytest.param(*case, marks=pytest.mark.soak) for case in ((4000, 2), (200_000, 10), (60_000, 40)))],
)
@pytest.mark.timeout(3000)
def test_everything_from_kafka_lands_once_with_random_kills(
    kafka_broker: Broker, tmp_path: Path, count: int, kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, layout, name = random.Random(seed), Layout.for_tables(tmp_path / "tables"), f"k{uuid.uuid4().hex[:8]}"
    kafka = {"bootstrap.servers": kafka_broker.address}
    sent = list(payloads(count, chance))
    with daemon(tmp_path) as running, Producer({**kafka, "large.message.enabled": "true"}) as producer:

        def pipeline(*more: str) -> subprocess.Popen[str]:
            named = [f"pipeline.kafka.{key}={value}" for key, value in kafka.items()]
            settings = ["pipeline.source=kafka", f"pipeline.topics={json.dumps([name])}", *named]
            return start(tmp_path, running.http, *(part for expected in settings for part in ("-o", expected)), *more)

        def send(messages: list[bytes]) -> None:
            for payload in messages:
                producer.produce(name, payload)
                producer.poll(0)
            assert producer.flush(60) == 0

        step = len(sent) // (kills + 1) + 1
        for kill in range(kills):
            send(sent[kill * step : (kill + 1) * step])
            before = len(list((layout.checkpoint / "offsets").glob("[0-9]*")))
            killed = pipeline()
            wait_for(lambda before=before: len(list((layout.checkpoint / "offsets").glob("[0-9]*"))) > before)
            time.sleep(chance.random() * 3)
            killed.kill()
            killed.wait()
        send(sent[kills * step :])
        last = pipeline("--once")
        log_text = last.communicate(timeout=600)[1]
        assert last.returncode == 0, log_text
        assert running.ledger.balance().unaccounted == 0
    files = [name for commit in read_journal(layout) for name in commit.files]
    rows = read_rows(layout.landed, as_written(files))
    rows = Counter(zip(rows["kind"].to_pylist(), rows["uuid"].to_pylist(), strict=True))
    assert rows == expected(sent)
    proofs = [proof for of_batch in read_proofs(layout) for proof in of_batch]
    assert all(proof.holds for proof in proofs), [proof.document() for proof in proofs if not proof.holds]
