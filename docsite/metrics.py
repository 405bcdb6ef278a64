"""The page of all metrics, from the ``/metrics`` of a pipe with one listener, handler, topic, cursor and table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from penstock.config import Settings
from penstock.counts import Counts, Origin
from penstock.files.checked_document import write_document
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.paths import relay_state_file, senders_file, state_file
from penstock.handover.positions.accounts import Accounts
from penstock.handover.sender_table import SenderTable, named_arrivals, sender_counts
from penstock.handover.state_page import RELAY_TEXTS, STATISTICS, StatePage
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import CANNOT_START, EventPost
from penstock.log import Log
from penstock.process.servers.connection_limit import ConnectionLimit
from penstock.process.servers.http_limits import HttpLimits
from penstock.records import body
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.http.body_limits import closed_family, refused_family
from penstock.server.metrics.prometheus import Family
from penstock.server.metrics.topic_metrics import refused_batches_family
from penstock.wire.plog.statistics import Statistics

STAT = "penstock_plog_"
INTRODUCTION = """# Metrics

`GET /metrics` at `log.http` (127.0.0.1:8844) returns Prometheus text; with `otel.endpoint` the same metrics go to an
OpenTelemetry collector. Names are stable ([compatibility](compatibility.md)). With `security.tokens` the scraper needs
a token with the right `monitor`; a token for some topics gets the metrics of these topics only.

Values of the label `name`, and of `fate` by topic, are the counts of the [glossary](glossary.md#counts); by handler
`fate` is `delivered`, `policy_drop`, `handler_failed` or `corrupt`. `examples/prometheus` has alert rules
([alarms](alarms.md)), `examples/grafana` a dashboard.

```sh
curl -s 127.0.0.1:8844/metrics | grep penstock_unaccounted
```"""
OF_STAT = """
## Of the receivers

The values of a listener's `STAT` since its receiver started: `{stat}` and plog's key. Counts by size have the labels
`fragments` (class of a message's number of fragments, by log2) and `index` (class of a fragment's index)."""


def sample_families(folder: Path) -> list[Family]:
    """Return the metrics of a pipe that has one of each: listener, handler, topic, cursor, table."""
    export = {"name": "copy", "to": f"duckdb:{folder}/copy.duckdb"}
    relay = {"name": "up", "topic": "t", "to": "127.0.0.1:1"}
    listener = {"name": "in", "protocol": "udp"}
    settings = Settings.model_validate(
        {"data_dir": str(folder), "listener": [listener], "export": [export], "relay": [relay]}
    )
    settings.buffers.mkdir()
    settings.export_states.mkdir(parents=True)
    write_document(settings.export_states / "copy.json", {"at": 60.0, "failure": "", "batch": 0})
    write_document(settings.contracts, {"violations": {"contract.order.amount.min": 1}})
    settings.audits.mkdir()
    check = {"topic": "orders", "table": "s3://lake/orders", "status": 0, "every_s": 300.0, "at_s": 60.0}
    write_document(settings.audits / "orders.json", check)
    _write_statistics(settings)
    _write_senders(settings)
    log = Log(settings.topics)
    ledger = Ledger(log, settings.buffers, ["in"])
    counts = Counts({"taken": 2, "unboxed": 2, "seen": 2, "accepted": 2})
    topic = log.topic("t", create=True)
    topic.append(body([b"x", b"y"]), Origin("in", 60, 0, 0, "plog", counts)).result()
    topic.wait_until_idle()
    topic.cursors.commit("reader", 1)
    topic.cursors.commit("relay-up", 1)
    minute = int(time.time()) // 60 * 60
    for number in range(20):
        topic.append(body([b"m"]), Origin("db1/in", minute - 3600 + 60 * number, 0, 0)).result()
    landed = [{"source": "in", "bucket": 60, "counts": {"landed.message": 2}}]
    ledger.post({"tier": "landed", "topic": "t", "version": 0, "through": 2, "counts": landed})
    cause = f"{CANNOT_START}: its folder cannot be written"
    ledger.post(EventPost("restart", 1, "restart", 60_000, what="receiver in", cause=cause).document())
    alarms = AlarmDelivery(settings.alarms)
    limits = HttpLimits(rpc_connections={"grpc": ConnectionLimit(1, "key"), "flight": ConnectionLimit(1, "key")})
    of_limits = partial(refused_family, limits), partial(closed_family, limits)
    of_kafka = partial(refused_batches_family, {"message_too_large": 1})
    families = MonitoringApi(settings, log, ledger, *of_limits, of_kafka, alarms.family).metrics()
    log.close()
    return families


def _write_senders(settings: Settings) -> None:
    """Let one sender send every second for an hour and fall silent, and another one begin."""
    now = [0.0]
    table = SenderTable(senders_file(settings.buffers, "in"), -1, lambda: now[0])
    for number in range(3602):
        now[0] += 1.0
        if number == 3601:
            now[0] += 61.0
        counts = {"192.0.2.1" if number < 3601 else "192.0.2.2": sender_counts(1)[0] + 1}
        table.stage(named_arrivals(counts), number, 1_800_000_000_000_000)
        table.confirm(number)
    table.tick()


def _write_statistics(settings: Settings) -> None:
    """Write statistics as a receiver does; arrays of zeros would not be shown."""
    statistics = Statistics()
    statistics.add_invalid(np.array([2]), np.array([1]))
    statistics.add_dropped(2, np.array([1]))
    handlers = [{"name": "kafka", "failed_to_send": 0, "refused_topics": 0}]
    state = {
        "uptime": 1,
        "receive_buffer": 1,
        "kernel_dropped": 0,
        "total": 0,
        "version": "0.2.0",
        "handlers": handlers,
    }
    page = StatePage(state_file(settings.buffers, "in"))
    page.write(STATISTICS, statistics.as_dict() | state)
    page.close()
    forwarder = Accounts(settings.buffers, "in", "kafka")
    forwarder.write_statistics(Heartbeat().beat())
    forwarder.close()
    path = relay_state_file(settings.data_dir, "up")
    path.parent.mkdir(parents=True)
    relay = StatePage(path, RELAY_TEXTS)
    numbers = {"entries": 1, "bytes": 1, "retries": 0, "refusals": 0}
    relay.write(STATISTICS, {"connected": True, "topics": {"t": numbers}} | Heartbeat().beat())
    relay.close()


def metrics_page() -> str:
    """Return the page as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        families = sample_families(Path(folder))
    pipe_families = [family for family in families if not family.name.startswith(STAT)]
    stat_families = [family for family in families if family.name.startswith(STAT)]
    return "\n".join(
        [
            INTRODUCTION,
            "\n## Of the pipe\n",
            *_table(pipe_families),
            OF_STAT.format(stat=STAT),
            "",
            *_table(stat_families),
            "",
        ]
    )


def _table(families: list[Family]) -> Iterator[str]:
    yield from ("| metric | kind | labels | meaning |", "| --- | --- | --- | --- |")
    for family in families:
        labels = dict.fromkeys(name for labels, _ in family.samples for name in labels)
        yield f"| `{family.name}` | {family.kind} | {', '.join(f'`{name}`' for name in labels)} | {family.help} |"
