"""``[[relay]]`` between two real instances: kills of the relay and of the other daemon while entries arrive."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Log
from penstock.testing.pipe import Pipe, wait_until
from tests.system.topic_files import entries

KILLS = 4
RELAY = "relay up"


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[tuple[Pipe, Pipe]]:
    """A host that relays to a central instance."""
    for name in ("central", "host"):
        (tmp_path / name).mkdir()
    central = Pipe(tmp_path / "central")
    relay = f'relay=[{{name="up", topic=["events", "orders"], to="{central.grpc}", host="web1"}}]'
    host = Pipe(tmp_path / "host", relay)
    for pipe in (central, host):
        pipe.start(wait=False)
    try:
        for pipe in (central, host):
            pipe.wait_ready()
        yield host, central
    finally:
        host.stop()
        central.stop()


def test_kills_lose_and_repeat_nothing(pipes: tuple[Pipe, Pipe]) -> None:
    host, central = pipes
    seed = random.randrange(1 << 32)
    random_pauses, ends = random.Random(seed), threading.Event()
    sent: list[bytes] = []

    def send() -> None:
        with Log(host.grpc) as log:
            while not ends.is_set():
                payloads = [b"%d" % number for number in range(len(sent), len(sent) + 5)]
                log.append("orders", payloads)
                sent.extend(payloads)
                host.datagrams(*payloads)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for number in range(KILLS):
            time.sleep(random_pauses.uniform(0.05, 0.5))
            (host, central)[number % 2].kill((RELAY, "log daemon")[number % 2])
    finally:
        ends.set()
        sender.join()
    host.settled()
    accepted = host.counts("events-udp")["accepted"]
    wait_until(lambda: count_relayed(central) >= accepted, 60, f"the datagrams arrive, seed {seed}")
    wait_until(lambda: len(payloads_of(central, "orders")) >= len(sent), 60, f"the orders arrive, seed {seed}")
    assert payloads_of(central, "orders") == sent, seed
    assert payloads_of(central, "events") == payloads_of(host, "events"), seed
    assert count_relayed(central) == accepted, seed
    assert central.settled()["unaccounted"] == 0
    # The cursor moves after the acknowledgement.
    wait_until(lambda: lags(host) == {"relay-up": 0}, 30, f"the cursor reaches the end, seed {seed}")


def count_relayed(central: Pipe) -> int:
    return central.counts("web1/events-udp")["accepted"]


def lags(host: Pipe) -> dict[str, int]:
    with Log(host.grpc) as log:
        return {cursor.name: cursor.lag_entries for cursor in log.cursors("orders")}


def payloads_of(pipe: Pipe, topic: str) -> list[bytes]:
    """Return the payloads of a topic; empty before its first append."""
    if not (pipe.data_dir / "topics" / topic).exists():
        return []
    return [entry["payload"] for entry in entries(pipe, topic)]
