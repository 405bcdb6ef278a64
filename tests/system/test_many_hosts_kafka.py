"""Hosts that forward to Kafka, from which the pipeline of a central instance lands their events in a table.

Each acknowledged event is in the table once, through partitions, kills of everything, and a disk that is lost, and the
sum of each listener closes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.broker import HOST, Broker, CannotStart
from penstock.testing.pipe import free_ports, wait_until
from tests.spark.spark_helpers import event
from tests.system.host_network import HostNetwork, Namespaces, host_network
from tests.system.test_many_hosts import WAIT_S, Host
from tests.system.test_many_hosts_landing import LANDING_WAIT_S, LandingFleet

TOPIC = "events"
LINES = 7
"""Lines that wait on a host while its disk is lost."""


class ForwardingHost(Host):
    """A host whose listeners forward to Kafka; a request is answered once Kafka has its events."""

    def __init__(self, network: HostNetwork, number: int, folder: Path, kafka: str) -> None:
        self._kafka = kafka
        super().__init__(network, number, folder)

    def configuration(self, central: str) -> str:
        handler = (
            f'handlers = [{{ type = "kafka", default_topic = "{TOPIC}", origin_header = true, '
            f'host = "{self.name}", producer = {{ "bootstrap.servers" = "{self._kafka}" }} }}]\n'
        )
        keys = {
            "events-udp": ("udp", 'defrag.max_size = "16KiB"\n'),
            "events-tcp": ("tcp", ""),
            "web": ("http", 'max_line = "32KiB"\n'),
        }
        heads = [
            f'[[listener]]\nname = "{name}"\nprotocol = "{protocol}"\nport = 0\n{more}{handler}'
            for name, (protocol, more) in keys.items()
        ]
        return "".join(heads) + f'[[relay]]\nname = "up"\nkafka = true\nto = "{central}"\nhost = "{self.name}"\n'

    def payload(self, way: str, number: int) -> bytes:
        return event(0, uuid=f"{self.name} {way} {number}")

    def post(self, way: str, number: int) -> None:
        """Send an event by HTTP, and repeat it until it is acknowledged."""
        payload = self.payload(way, number)

        def post() -> bool:
            with contextlib.suppress(httpx.TransportError, OSError, ValueError):
                address, port = self.pipe.address("web")
                return httpx.post(f"http://{address}:{port}", content=payload, timeout=20).is_success
            return False

        with self.inside():
            wait_until(post, LANDING_WAIT_S, f"{self.name} posts")
        self.acknowledged.add(payload)

    def _send_acknowledged(self) -> None:
        for number in self.numbers():
            self.post("request", number)


class Scene(LandingFleet):
    """A central instance with a broker and a pipeline, and its hosts."""

    hosts: list[ForwardingHost]

    def __init__(self, network: HostNetwork, hosts: int, folder: Path) -> None:
        super().__init__(network, folder)
        address = network.central_address.partition(":")[0] if isinstance(network, Namespaces) else HOST
        with self.at_central():
            self.broker = Broker(folder / "broker", host=address, port=free_ports(1)[0])
        kafka = self.broker.address
        self.hosts = [ForwardingHost(network, number, folder / f"web{number}", kafka) for number in range(hosts)]
        topics = f'pipeline.topics=["{TOPIC}"]'
        self.land_with("pipeline.source=kafka", topics, f"pipeline.kafka.bootstrap.servers={kafka}")

    def start(self) -> None:
        self.start_broker()
        with self.at_central():
            admin = AdminClient({"bootstrap.servers": self.broker.address})
            admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(30)
        super().start()

    def start_broker(self) -> None:
        def starts() -> bool:
            try:
                self.broker.start()
            except CannotStart:  # next to everything else that starts again, it may need longer than its limit
                return False
            return True

        with self.at_central():
            wait_until(starts, LANDING_WAIT_S, "the broker starts")

    def kill_services(self) -> None:
        super().kill_services()
        self.broker.kill()

    def start_services(self) -> None:
        self.start_broker()
        super().start_services()

    def stop(self) -> None:
        super().stop()
        self.broker.stop()

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the comparison of each listener of a host with the table, by host and listener."""
        with self.at_central():
            rows = self.central.balance().get("hosts", [])
        return {(row["host"], row["listener"]): row["over_kafka"] for row in rows if row["over_kafka"]}

    def waiting(self, host: Host) -> Counter[str]:
        """Return the messages that wait on a host, by listener."""
        return +Counter(
            {name: row["pending"] for (host_name, name), row in self.rows().items() if host_name == host.name}
        )

    def lose_disk(self) -> None:
        """Let lines wait on the last host while there is no broker, then delete its disk; it starts again."""
        last = self.hosts[-1]
        wait_until(lambda: not self.waiting(last), WAIT_S, "nothing waits on the last host")
        self.broker.kill()
        with last.inside():
            last.pipe.lines(b"".join(last.payload("lost line", number) + b"\n" for number in range(LINES)))
        wait_until(lambda: self.waiting(last) == {"events-tcp": LINES}, WAIT_S, "the lines wait on the last host")
        with last.inside():
            last.pipe.kill_all()
        shutil.rmtree(last.pipe.data_dir)
        self.start_broker()
        last.start()
        last.wait_ready()
        last.post("request of the new disk", 0)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(host_network(request.param), request.param, tmp_path)
    try:
        scene.start()
        yield scene
    finally:
        scene.stop()


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.survives("hosts", "peer away")
@pytest.mark.survives("hosts", "SIGKILL")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("scene", "partition_s"), [(3, 5.0), (10, 60.0)], indirect=["scene"])
def test_events_of_hosts_are_in_the_table_once_through_kafka_partitions_kills_and_a_lost_disk(
    scene: Scene, partition_s: float
) -> None:
    scene.send_through_faults(partition_s)
    scene.lose_disk()
    acknowledged = {json.loads(payload)["uuid"] for host in scene.hosts for payload in host.acknowledged}
    wait_until(lambda: scene.landed().keys() >= acknowledged, LANDING_WAIT_S, "the acknowledged events land", pause=1)

    def has_settled() -> bool:
        return not any(row["pending"] + row["in_kafka"] + row["unposted"] for row in scene.rows().values())

    wait_until(has_settled, LANDING_WAIT_S, "nothing waits on hosts or in Kafka")
    assert set(scene.landed().values()) == {1}
    rows = scene.rows()
    assert len(rows) == 3 * len(scene.hosts)
    for key, row in rows.items():
        there = row["forwarded"] + row["failed"] + row["dropped"] + row["lost_with_disk"]
        assert row["accepted"] == there, (key, row)
        assert row["landed"] == row["forwarded"] + row["doubled"] + row["failed_landed"], (key, row)
        assert row["missing"] == 0, (key, row)
    lost = {key: row["lost_with_disk"] for key, row in rows.items() if row["lost_with_disk"]}
    assert lost == {(scene.hosts[-1].name, "events-tcp"): LINES}
    with scene.at_central():
        assert scene.central.balance()["unaccounted"] == 0
