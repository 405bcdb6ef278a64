"""Peers beside Penstock in one run, in turn: each round measures them one after the other, the next one backwards.

A peer is looked for on the PATH, or where ``BENCH_RSYSLOGD``, ``BENCH_SLOGD``, ``BENCH_OTELCOL_CONTRIB`` and
``BENCH_NATS_SERVER`` say; one that is absent is refused before the measurement. NATS is spoken to by nats-py, which is
no part of Penstock: ``pip install nats-py``. Kafka is ``bench.kafka_log``.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.peers import appends, datagrams, kafka, lines
from bench.peers.exports import Collector, PenstockRequests, exports
from bench.peers.nats import Nats, NatsUnsynced
from bench.peers.peer import Peer
from bench.peers.penstock import Penstock, PenstockReceiving, PenstockSyslog, PenstockSyslogTcp
from bench.peers.rsyslog import Rsyslog, RsyslogParsed
from bench.peers.slogd import Slogd
from penstock.testing.pipe import wait_until

LOGS: dict[str, tuple[type[Peer], ...]] = {"slogd": (Slogd,), "nats": (Nats, NatsUnsynced)}
"""Those that take appends, and are measured together: so Penstock's figures are of the same turns."""
MISSING = {
    "collector": Collector.missing,
    "rsyslog": Rsyslog.missing,
    "slogd": Slogd.missing,
    "nats": Nats.missing,
    "kafka": kafka.missing,
}
"""Of each peer: what is to be installed before it can be measured, empty where nothing is."""
IDLE_SECONDS = 1.0
Work = Callable[[Any], dict[str, float]]


def named(text: str) -> list[str]:
    """The peers that ``text`` names, with commas between. Raises SystemExit for one that is not known or installed."""
    names = text.split(",")
    for name in names:
        if name not in MISSING:
            sys.exit(f"no peer {name!r}: there are {', '.join(MISSING)}")
        if missing := MISSING[name]():
            sys.exit(missing)
    return names


def in_groups(names: Iterable[str]) -> list[list[str]]:
    """Return the peers that are measured in the same turns: all logs together, and each of the others alone."""
    logs, others = [name for name in names if name in LOGS], [[name] for name in names if name not in LOGS]
    return [logs, *others] if logs else others


def measure(names: list[str], rounds: int = 3, seconds: float = 2.0) -> dict[str, Any]:
    """Medians of all rounds, for Penstock and those named."""
    figures: dict[str, Any] = {}
    if logs := [kind for name in names for kind in LOGS.get(name, ())]:
        figures |= in_turn([Penstock, *logs], rounds, lambda peer: appends.writes(peer, seconds) | appends.reads(peer))
    if "rsyslog" in names:
        for sender, name in (("syslog", "udp_"), ("separate_syslog", "udp_separate_")):
            work = datagrams.lossless(sender, name, seconds)
            figures |= in_turn([PenstockReceiving, PenstockSyslog, Rsyslog], rounds, work, name)
        figures |= in_turn([PenstockSyslogTcp, RsyslogParsed], rounds, lambda peer: lines.parsed(peer, seconds), "tcp_")
    if "collector" in names:
        figures |= in_turn([PenstockRequests, Collector], rounds, lambda peer: exports(peer, seconds), "requests_")
    if "kafka" in names:
        figures |= kafka.measure(rounds)
    return figures


def in_turn(kinds: Iterable[type[Peer]], rounds: int, work: Work, load: str = "") -> dict[str, Any]:
    """What ``work`` finds of each, and what memory they have before it and after it; ``load`` stands in its names."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as folder, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(_running(kind, Path(folder))) for kind in kinds]
        time.sleep(IDLE_SECONDS)
        _keep(found, peers, lambda peer: peer.memory(f"{load}idle"))
        for number in range(rounds):
            _keep(found, peers[:: 1 if number % 2 == 0 else -1], lambda peer: work(peer) | peer.memory(f"{load}loaded"))
    return {name: round(statistics.median(values), 3) for name, values in sorted(found.items())}


def _keep(found: dict[str, list[float]], peers: list[Peer], work: Work) -> None:
    for peer in peers:
        for name, value in work(peer).items():
            found[f"{peer.name}_{name}"].append(value)


@contextlib.contextmanager
def _running(kind: type[Peer], folder: Path) -> Iterator[Peer]:
    peer = kind(folder)
    try:
        wait_until(peer.ready, what=f"{peer.name} listens")
        yield peer
    finally:
        peer.stop()
