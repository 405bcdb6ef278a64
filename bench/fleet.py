"""The balance of a large fleet after a year: 200 hosts with 10 listeners each, which relay to one Penstock, or forward
to a Kafka that it lands.

The books of the year are generated and stored as the ledger's checkpoint: days for each listener, and minutes of the
last week. The daemon starts with them, and the command, the answer that the page Hosts shows, and memory are measured.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from bench.timing import fastest
from penstock.console.pages.senders import hosts_html
from penstock.counts import Counts, Origin, bucket_of
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.book.book_pages import BookPages, Covered, TopicFates
from penstock.ledger.book.bucket_tables import RowTable
from penstock.ledger.book.checkpoint import write
from penstock.ledger.hosts import kafka_hosts
from penstock.ledger.hosts.host_posts import HostPost, ListenerReport
from penstock.ledger.hosts.hosts import FOLDER, HostRegister
from penstock.ledger.hosts.kafka_hosts import KafkaHostRegister, KafkaPost, KafkaReport
from penstock.log import Log
from penstock.records import body
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import anonymous, cpu

HOSTS, LISTENERS, DAYS, MINUTES = 200, 10, 365, 100
"""``MINUTES`` with entries in the last week for each listener: all 10,080 would be 20 million of each tier."""
ROWS, HASH = 1_000, 0x9E3779B97F4A7C15
RUNS, START_S = 3, 600
LISTENER = """
[[listener]]
name = "lines"
protocol = "tcp"
port = 0
"""
TOPIC, KAFKA_TOPIC, DAY_S = "events", "orders/0", 86_400


def measure() -> dict[str, Any]:
    """All figures; those of hosts that forward to Kafka begin with ``fleet_kafka``."""
    return _measure("fleet", _register_relays) | _measure("fleet_kafka", _register_kafka_hosts)


def _measure(prefix: str, register: Callable[[Path, Sequence[int], int], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        pipe = Pipe(Path(folder))
        pipe.configure(LISTENER)
        _generate(pipe.data_dir, KAFKA_TOPIC if "kafka" in prefix else TOPIC, register)
        began = time.perf_counter()
        pipe.start(wait=False)
        try:
            wait_until(pipe.answers, START_S, "the daemon answers")
            started = time.perf_counter() - began
            daemon = pipe.pid("log daemon")
            before = anonymous(daemon)
            spent = cpu(daemon)
            answer = fastest(lambda: httpx.get(f"http://{pipe.http}/balance", timeout=60).raise_for_status(), RUNS)
            spent = (cpu(daemon) - spent) / RUNS
            balance = httpx.get(f"http://{pipe.http}/balance", timeout=60).json()
            assert len(balance["hosts"]) == HOSTS * LISTENERS
            page = fastest(lambda: hosts_html(balance, time.time()), RUNS)
            before_commands = cpu_of_children()
            command = [sys.executable, "-m", "penstock.cli.main", "balance", *pipe.options]
            printed = {name: fastest(partial(_run, [*command, *options]), RUNS) for name, options in COMMANDS.items()}
            of_commands = cpu_of_children() - before_commands
            after = anonymous(daemon)
        finally:
            pipe.stop()
    figures = {
        "start_s": started,
        "answer_s": answer,
        "answer_cpu_s": spent,
        "page_s": page,
        "command_cpu_s": of_commands / RUNS / len(COMMANDS),
        **printed,
        "daemon_mib": before / (1 << 20),
        "daemon_mib_after_answers": after / (1 << 20),
    }
    return {f"{prefix}_{name}": round(figure, 3) for name, figure in figures.items()}


def cpu_of_children() -> float:
    """CPU of all finished child processes, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


COMMANDS = {
    "command_s": [],
    "command_hosts_s": ["--hosts"],
    "command_by_listener_s": ["--by", "listener"],
}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode not in (0, 1) or b"Traceback" in done.stderr:
        raise RuntimeError(done.stderr.decode())


def _generate(data: Path, topic: str, register: Callable[[Path, Sequence[int], int], None]) -> None:
    """Write the checkpoint of a year, a topic of the log that agrees with it, and the posts of all hosts."""
    topics, now = data / "topics", time.time()
    log = Log(topics)
    log.topic(TOPIC, create=True).append(body([b"x"]), Origin("http", bucket_of(now), 0, 0)).result()
    end = log.topic(TOPIC).end
    log.close()
    today = int(now) // DAY_S * DAY_S
    buckets = [today - (DAYS - day) * DAY_S for day in range(DAYS - 7)]
    rolled = today - 7 * DAY_S
    buckets += [rolled + 60 * minute for minute in range(MINUTES)]
    pages = BookPages(rolled=rolled, covered={TOPIC: Covered(end, 0)})
    fates, rows_by_bucket, total = TopicFates(), RowTable(), 0
    for host in range(HOSTS):
        for listener in range(LISTENERS):
            source = f"host-{host:03}/listener-{listener}"
            for number, bucket in enumerate(buckets):
                rows, key = ROWS + number, (source, bucket)
                pages.received.add(key, Counts(seen=rows, accepted=rows))
                rows_by_bucket.add(key, rows)
                total += rows
                fates.counts.add(key, Counts({"landed.event": rows - 1, "duplicate": 1}))
                fates.uuids.add(
                    key, Counts({"rows.landed.event": rows - 1, "sum.landed.event": rows * HASH % (1 << 64)})
                )
    fates.through, fates.version = total, 1
    pages.logged[topic], pages.ends[topic], pages.landed[topic] = rows_by_bucket, total, fates
    write(topics, pages)
    register(data, buckets, int(now * 1000))


def _register_relays(data: Path, buckets: Sequence[int], time_ms: int) -> None:
    accepted = _rows(buckets)
    arrived = {f"listener-{listener}": accepted for listener in range(LISTENERS)}
    register = HostRegister(data / FOLDER, lambda _: arrived, time.time)
    reports = {name: ListenerReport(accepted=accepted, forwarded=accepted) for name in arrived}
    for host in range(HOSTS):
        post = HostPost(f"host-{host:03}", "up", f"disk-{host}", "process", 1, time_ms, 0, "1", reports)
        register.post(post.document())


def _register_kafka_hosts(data: Path, buckets: Sequence[int], time_ms: int) -> None:
    accepted = _rows(buckets)
    register = KafkaHostRegister(data / kafka_hosts.FOLDER, dict, time.time)
    minutes = {bucket: (ROWS + number, 0) for number, bucket in enumerate(buckets)}
    newest = {bucket: minutes[bucket] for bucket in buckets[1 - MAX_BUCKETS :]}
    report = KafkaReport(accepted=accepted, forwarded=accepted, minutes=newest)
    reports = {f"listener-{listener}": report for listener in range(LISTENERS)}
    for host in range(HOSTS):
        post = KafkaPost(f"host-{host:03}", f"disk-{host}", "process", 1, time_ms, "1", reports)
        register.post(post.document())


def _rows(buckets: Sequence[int]) -> int:
    return sum(ROWS + number for number in range(len(buckets)))


if __name__ == "__main__":
    print(measure())
