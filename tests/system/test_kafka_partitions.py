"""Hosts that forward to one Kafka broker over links that fail, and are killed: each message is counted once.

The judge is a consumer of confluent-kafka that counts records by their header.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka.broker import Broker
from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.spark.spark_helpers import event
from tests.spark.test_pipeline import start
from tests.system.configured_pipe import SMALL, listener
from tests.system.host_network import CENTRAL, HostNetwork, host_network
from tests.system.test_hosts_over_kafka import Kafka, by_origin, counts, hosts_rows

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]
WAIT_S = 900
EVENTS = 200
PHASES = 3


class Partitions:
    """A central host with Kafka, a daemon and a pipeline, and hosts that forward to it."""

    def __init__(self, network: HostNetwork, hosts: int, folder: Path) -> None:
        self.network, self.numbers = network, range(hosts)
        ip = network.central_address.partition(":")[0]
        with network.inside(CENTRAL):
            own, control, *ports = free_ports(hosts + 2)
        links = [network.link_to(host, ports[host]) for host in self.numbers]
        # A client continues at the address that the broker names, so each link has a listener of its own.
        names = [f"LINK{host}" for host in self.numbers]
        listeners = [f"PLAINTEXT://{ip}:{own}", *(f"{n}://{ip}:{port}" for n, port in zip(names, ports, strict=True))]
        settings = {
            "controller.quorum.voters": f"1@{ip}:{control}",
            "listeners": ",".join([*listeners, f"CONTROLLER://{ip}:{control}"]),
            "advertised.listeners": ",".join(
                [listeners[0], *(f"{name}://{link}" for name, link in zip(names, links, strict=True))]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in ["PLAINTEXT", "CONTROLLER", *names]),
        }
        options = ("-XX:TieredStopAtLevel=1",)
        self.broker = Broker(folder / "broker", host=ip, port=own, memory="256m", settings=settings, options=options)
        self.folder, self.links = folder, links
        (folder / CENTRAL).mkdir()
        with network.inside(CENTRAL):
            self.central = Pipe(folder / CENTRAL, "security.insecure=true", f"log.grpc={network.central_address}")
        self.central.configure(SMALL + listener("own", "tcp"))
        self.hosts: list[Pipe] = []
        self.pipeline: subprocess.Popen[str] | None = None
        self.sent = Counter[str]()

    def start(self) -> None:
        with self.network.inside(CENTRAL):
            self.broker.start()
            self.kafka = Kafka(self.broker)
            self.central.start()
            settings = ["pipeline.source=kafka", f'pipeline.topics=["{self.kafka.topic}"]']
            settings.append(f"pipeline.kafka.bootstrap.servers={self.broker.address}")
            overrides = [part for setting in settings for part in ("-o", setting)]
            self.pipeline = start(self.central.data_dir, self.central.http, *overrides, stderr=subprocess.DEVNULL)
        for host in self.numbers:
            self.hosts.append(self._host(host))
            self.start_host(host)

    def _host(self, host: int) -> Pipe:
        folder = self.folder / f"web{host}"
        folder.mkdir()
        with self.network.inside(host):
            pipe = Pipe(folder)
        # Idempotence: the producer itself doubles nothing. The timeout outlives the partition, so nothing fails.
        producer = f'"bootstrap.servers" = "{self.links[host]}", "enable.idempotence" = true'
        pipe.configure(
            SMALL
            + '[[listener]]\nname = "tcp"\nprotocol = "tcp"\nport = 0\n'
            + f'handlers = [{{ type = "kafka", default_topic = "{self.kafka.topic}", origin_header = true, '
            + f'host = "web{host}", producer = {{ {producer}, "message.timeout.ms" = 600000 }} }}]\n'
            + f'[[relay]]\nname = "up"\nkafka = true\nto = "{self.network.address_from(host)}"\nhost = "web{host}"\n'
        )
        return pipe

    def start_host(self, host: int) -> None:
        with self.network.inside(host):
            self.hosts[host].start(wait=False)
            wait_until(self.hosts[host].answers, WAIT_S, f"web{host} answers")
            self.hosts[host].wait_ready()

    def kill(self, host: int) -> None:
        with self.network.inside(host):
            self.hosts[host].kill_all()

    def send(self) -> None:
        """Send events to each host."""
        for host in self.numbers:
            first = 100_000 * host + self.sent[f"web{host}/tcp"]
            with self.network.inside(host):
                self.hosts[host].lines(b"".join(event(first + number) + b"\n" for number in range(EVENTS)), "tcp")
            self.sent[f"web{host}/tcp"] += EVENTS

    def hosts_rows(self) -> dict[str, dict[str, Any]]:
        """Return the row of each listener of a host in the balance of the central host."""
        with self.network.inside(CENTRAL):
            return hosts_rows(self.central)

    def compared(self) -> dict[str, dict[str, Any]]:
        return {name: row["over_kafka"] for name, row in self.hosts_rows().items()}

    def stop(self) -> None:
        if self.pipeline is not None:
            self.pipeline.terminate()
            self.pipeline.wait(60)
        for pipe in (*self.hosts, self.central):
            pipe.stop()
        self.broker.stop()
        self.network.close()


@pytest.fixture(params=[(3, 10), (10, 60)], ids=["3 hosts, 10 s", "10 hosts, 60 s"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Partitions, int]]:
    hosts, seconds = request.param
    partitions = Partitions(host_network(hosts), hosts, tmp_path)
    try:
        partitions.start()
        yield partitions, seconds
    finally:
        partitions.stop()


def test_balance_closes_after_partitions_and_kills_of_hosts_that_forward_to_kafka(
    scene: tuple[Partitions, int],
) -> None:
    hosts, seconds = scene
    hosts.send()
    wait_until(lambda: counts(hosts.compared(), "landed") == hosts.sent, WAIT_S, "the first events land")
    killed = [host for host in hosts.numbers if host % 3 == 1]
    for host in hosts.numbers:
        hosts.network.cut(host)
    restored_at = time.monotonic() + seconds
    hosts.send()
    landed = counts(hosts.compared(), "landed").total()
    for host in killed:
        hosts.kill(host)
        hosts.start_host(host)
    time.sleep(max(restored_at - time.monotonic(), 0))
    assert counts(hosts.compared(), "landed").total() == landed, "the links are cut"
    for host in hosts.numbers:
        hosts.network.restore(host)
    # A kill while the handler sends what had waited.
    for host in killed:
        hosts.kill(host)
        hosts.start_host(host)
    hosts.send()
    assert set(hosts.sent.values()) == {PHASES * EVENTS}

    def is_forwarded() -> bool:
        compared = hosts.compared()
        return counts(compared, "forwarded") == hosts.sent and not counts(compared, "pending")

    wait_until(is_forwarded, WAIT_S, "the hosts have forwarded everything")
    with hosts.network.inside(CENTRAL):
        records = by_origin(hosts.kafka.records())
    doubled = records - hosts.sent

    def is_settled() -> bool:
        compared = hosts.compared()
        return counts(compared, "landed") == records and counts(compared, "doubled") == doubled

    wait_until(is_settled, WAIT_S, f"{records} land, doubled: {doubled}")
    # Only a handler that was killed may send its last batch again.
    assert doubled.keys() <= {f"web{host}/tcp" for host in killed}
    for name, row in hosts.hosts_rows().items():
        compared = row["over_kafka"]
        assert compared["accepted"] == hosts.sent[name], (name, row)
        for column in ("failed", "dropped", "pending", "in_kafka", "missing", "unposted", "lost_with_disk"):
            assert not compared[column], (name, column, row)
        # Each event has a uuid of its own, so it lands once.
        assert row["fates"] == +Counter({"landed.event": hosts.sent[name], "duplicate": doubled[name]}), (name, row)
