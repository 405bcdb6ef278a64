"""Kafka's protocol on the log beside a real broker: the same clients, in turn, in one run; the median of the rounds.

Java's own ``kafka-producer-perf-test`` and ``kafka-consumer-perf-test``, and librdkafka's consumer.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.peer import memory
from bench.peers.penstock import LOG_ALONE
from penstock.java.jars import Library, fetch
from penstock.java.runtime import find_java
from penstock.kafka.broker import Broker
from penstock.testing.pipe import Pipe, free_ports

KAFKA_TOOLS = Library("org.apache.kafka", "kafka-tools", "4.3.1")
ROUNDS = 3
SIZES = {"1_KB": (1000, 300_000), "100_B": (100, 1_000_000)}
"""Bytes of a record, and how many are sent."""
BATCHES = {"small_batches": (16 << 10, 1), "large_batches": (512 << 10, 4)}
"""``batch.size`` of the producer: the client's default, and one where the way to the disk weighs less; with it, so many
times as many records are sent, that what a client takes for its start does not weigh more than the server.
"""
FLUSHED, PLAIN, OURS = "kafka_flush_1", "kafka", "penstock"
PRODUCED = re.compile(r"([0-9.]+) records/sec")
Rates = dict[str, list[float]]


def measure(rounds: int = ROUNDS) -> dict[str, Any]:
    """Records a second of each client against each server, what of a real broker's rate that is, and their memory."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, _servers(Path(folder)) as (servers, pids):
        bench, used = Bench(servers), _memory(pids, "idle")
        bench.round(1000, 30_000, "warm", defaultdict(list))
        found: dict[str, Rates] = {name: defaultdict(list) for name in SIZES}
        for number in range(rounds):
            for name, (size, count) in SIZES.items():
                bench.round(size, count, f"{name.lower()}-{number}", found[name], is_backwards=number % 2 == 1)
        used |= _memory(pids, "loaded")
    return used | {f"kafka_log_{name}_{what}": value for name in SIZES for what, value in _figures(found[name])}


def _memory(pids: dict[str, int], when: str) -> dict[str, Any]:
    """MiB of all processes of each server."""
    return {
        f"kafka_log_{server}_{name}": round(value, 1)
        for server, pid in pids.items()
        for name, value in memory(pid, when).items()
    }


def _figures(rates: Rates) -> Iterator[tuple[str, Any]]:
    best = {name: statistics.median(several) for name, several in rates.items()}
    for name, rate in best.items():
        yield f"{name}_per_s", round(rate)
    for name in {name.removesuffix(f"_{OURS}") for name in best if name.endswith(OURS)}:
        for other in (FLUSHED, PLAIN):
            if f"{name}_{other}" in best:
                yield f"{name}_ratio_to_{other}", round(best[f"{name}_{OURS}"] / best[f"{name}_{other}"], 2)


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """The addresses and processes of a Penstock that syncs what it acknowledges, and of a broker."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    (folder / "penstock").mkdir()
    pipe = Pipe(folder / "penstock", f"log.kafka={address}")
    pipe.configure(LOG_ALONE)
    pipe.start()
    try:
        with Broker(folder / "broker") as broker:
            assert pipe.process
            assert broker.pid
            addresses = {OURS: address, PLAIN: broker.address, FLUSHED: broker.address}
            yield addresses, {OURS: pipe.process.pid, PLAIN: broker.pid}
    finally:
        pipe.stop()


class Bench:
    """The measurements, each against all servers in turn."""

    def __init__(self, servers: dict[str, str]) -> None:
        self._servers = servers

    def round(self, size: int, count: int, topic: str, rates: Rates, *, is_backwards: bool = False) -> None:
        """Produce and consume once; ``is_backwards`` reverses the order of the servers."""
        step = -1 if is_backwards else 1
        for batches, (octets, times) in BATCHES.items():
            for server, address in list(self._servers.items())[::step]:
                name = f"{topic}-{batches}-{server}"
                _create(address, name, {"flush.messages": "1"} if server == FLUSHED else {})
                rates[f"produced_{batches}_{server}"].append(_produce(address, name, size, times * count, octets))
        for who, consume in CONSUMERS.items():
            for server in (OURS, PLAIN)[::step]:
                name = f"{topic}-small_batches-{server}"
                rates[f"consumed_{who}_{server}"].append(consume(self._servers[server], name, count))


def _create(address: str, topic: str, config: dict[str, str]) -> None:
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def _java(tool: str, *options: str) -> str:
    jars = os.pathsep.join(map(str, fetch(KAFKA_TOOLS)))
    command = [str(find_java().home / "bin" / "java"), "-Xmx256m", "-cp", jars, f"org.apache.kafka.tools.{tool}"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=300)
    return done.stdout


def _produce(address: str, topic: str, size: int, count: int, batch: int) -> float:
    told = _java(
        *("ProducerPerformance", "--bootstrap-server", address, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(count), "--record-size", str(size)),
        *("--command-property", "acks=all", f"batch.size={batch}", "linger.ms=5"),
    )
    return float(PRODUCED.findall(told)[-1])


def _consume_java(address: str, topic: str, count: int) -> float:
    """Records a second while it fetches: the last column of its line."""
    told = _java(
        *("ConsumerPerformance", "--bootstrap-server", address, "--topic", topic, "--num-records", str(count)),
        "--hide-header",
    )
    line = next(line for line in told.splitlines() if line.count(",") == 9)
    return float(line.rsplit(",", 1)[1])


def _consume_librdkafka(address: str, topic: str, count: int) -> float:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = len(consumer.consume(1, 60))
    began = time.perf_counter()
    while got < count:
        got += len(consumer.consume(10_000, 1.0))
    took = time.perf_counter() - began
    consumer.close()
    return count / took


CONSUMERS: dict[str, Callable[[str, str, int], float]] = {"java": _consume_java, "librdkafka": _consume_librdkafka}
