"""Hosts that relay to one central instance, whose pipeline lands their entries in a table.

Each acknowledged entry is in the table once, through partitions, kills of everything, and a disk that is lost.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.pipe import wait_until
from tests.spark.spark_helpers import event
from tests.system.host_network import HostNetwork, host_network
from tests.system.landing import Driver, landed_rows
from tests.system.test_many_hosts import WAIT_S, Fleet, Host, Scene

LANDING_WAIT_S = 600
"""Limit of a wait for the table: a JVM starts next to all processes of the hosts."""


class EventHost(Host):
    """A host whose senders send events with a uuid."""

    def payload(self, way: str, number: int) -> bytes:
        return event(0, uuid=f"{self.name} {way} {number}")


class LandingFleet(Fleet):
    """A central instance with a pipeline, and its hosts."""

    driver: Driver

    def land_with(self, *settings: str) -> None:
        """Let the pipeline run with these settings, besides few resources."""
        few = ("pipeline.spark.driver.memory=1g", "pipeline.target_lag=1s")
        self.driver = Driver(self.central, *(part for setting in (*settings, *few) for part in ("-o", setting)))

    def start(self) -> None:
        super().start()
        self.start_pipeline()

    def start_pipeline(self) -> None:
        with self.at_central():
            self.driver.start()

    def stop(self) -> None:
        self.driver.stop()
        super().stop()

    def landed(self) -> Counter[str]:
        """Return the uuids of the table."""
        return Counter(row["uuid"] for row in landed_rows(self.central.data_dir / "tables"))

    def kill_services(self) -> None:
        """Kill everything on the central host."""
        self.driver.kill()
        with self.at_central():
            self.central.kill_all()

    def start_services(self) -> None:
        self.start_central()
        self.start_pipeline()

    def send_through_faults(self, partition_s: float) -> None:
        """Let the hosts send while half of them are cut off for a time and everything is killed."""
        half = len(self.hosts) // 2
        for host in self.hosts:
            host.begin_sending()
        try:
            wait_until(lambda: self.landed().total() > 20, LANDING_WAIT_S, "entries land")
            for number in range(half):
                self.network.cut(number)
            cut_at = time.monotonic()
            for host in self.hosts[half:]:
                host.kill()
            self.kill_services()
            self.start_services()
            time.sleep(max(cut_at + partition_s - time.monotonic(), 0))
            for number in range(half):
                self.network.restore(number)
            # Also the hosts that were cut off: they have sent something of which the answer did not come.
            for host in self.hosts[:half]:
                host.kill()
            for host in self.hosts:
                host.wait_ready()
        finally:
            for host in self.hosts:
                host.end_sending()


class LandingScene(Scene, LandingFleet):
    """A central instance with a pipeline, and hosts that relay to it."""

    host_type = EventHost

    def __init__(self, network: HostNetwork, hosts: int, folder: Path) -> None:
        super().__init__(network, hosts, folder)
        self.land_with('pipeline.topics=["events", "orders"]')

    def fates(self) -> Counter[str]:
        """Return the fates of the entries of all hosts in the balance."""
        fates = Counter[str]()
        for row in self.rows().values():
            fates.update(row["fates"])
        return fates


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LandingScene]:
    scene = LandingScene(host_network(request.param), request.param, tmp_path)
    try:
        scene.start()
        yield scene
    finally:
        scene.stop()


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.survives("hosts", "peer away")
@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("scene", "partition_s"), [(3, 5.0), (10, 60.0)], indirect=["scene"])
def test_entries_of_hosts_are_in_the_table_once_through_partitions_kills_and_a_lost_disk(
    scene: LandingScene, partition_s: float
) -> None:
    scene.send_through_faults(partition_s)
    lost, expected = scene.lose_disk()
    uuids = Counter(json.loads(payload)["uuid"] for payload in expected.elements())
    wait_until(lambda: scene.landed().total() >= uuids.total(), LANDING_WAIT_S, "the entries land", pause=1)
    wait_until(lambda: not any(map(scene.waits_there, scene.hosts)), WAIT_S, "nothing waits on hosts")
    assert scene.landed() == uuids
    wait_until(lambda: scene.fates().total() >= uuids.total(), LANDING_WAIT_S, "the balance has the landed entries")
    assert scene.fates() == {"landed.event": uuids.total()}
    scene.check_sums(lost)
