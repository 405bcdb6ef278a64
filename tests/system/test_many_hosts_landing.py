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
from tests.system.host_network import host_network
from tests.system.landing import Driver, landed_rows
from tests.system.test_many_hosts import WAIT_S, Host, Scene

LANDING_WAIT_S = 600
"""Limit of a wait for the table: a JVM starts next to all processes of the hosts."""


class EventHost(Host):
    """A host whose senders send events with a uuid."""

    def payload(self, way: str, number: int) -> bytes:
        return event(0, uuid=f"{self.name} {way} {number}")


class LandingScene(Scene):
    """A central instance with a pipeline, and its hosts."""

    host_type = EventHost
    driver: Driver

    def start_pipeline(self) -> None:
        topics = 'pipeline.topics=["events", "orders"]'
        settings = (topics, "pipeline.spark.driver.memory=1g", "pipeline.target_lag=1s")
        self.driver = Driver(self.central, *(part for setting in settings for part in ("-o", setting)))
        self.restart_pipeline()

    def restart_pipeline(self) -> None:
        with self.at_central():
            self.driver.start()

    def landed(self) -> Counter[str]:
        """Return the uuids of the table."""
        return Counter(row["uuid"] for row in landed_rows(self.central.data_dir / "tables"))

    def fates(self) -> Counter[str]:
        """Return the fates of the entries of all hosts in the balance."""
        fates = Counter[str]()
        for row in self.rows().values():
            fates.update(row["fates"])
        return fates

    def kill_central(self) -> None:
        with self.at_central():
            self.central.kill_all()
        self.start_central()


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LandingScene]:
    scene = LandingScene(host_network(request.param), request.param, tmp_path)
    try:
        scene.start()
        scene.start_pipeline()
        yield scene
    finally:
        if hasattr(scene, "driver"):
            scene.driver.stop()
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
    half = len(scene.hosts) // 2
    for host in scene.hosts:
        host.begin_sending()
    try:
        wait_until(lambda: scene.landed().total() > 20, LANDING_WAIT_S, "entries land")
        for number in range(half):
            scene.network.cut(number)
        cut_at = time.monotonic()
        for host in scene.hosts[half:]:
            host.kill()
        scene.driver.kill()
        scene.kill_central()
        scene.restart_pipeline()
        time.sleep(max(cut_at + partition_s - time.monotonic(), 0))
        for number in range(half):
            scene.network.restore(number)
        # Also the hosts that were cut off: their positions are those of appends whose answers did not come.
        for host in scene.hosts[:half]:
            host.kill()
        for host in scene.hosts:
            host.wait_ready()
    finally:
        for host in scene.hosts:
            host.end_sending()

    lost, expected = scene.lose_disk()
    uuids = Counter(json.loads(payload)["uuid"] for payload in expected.elements())
    wait_until(lambda: scene.landed().total() >= uuids.total(), LANDING_WAIT_S, "the entries land", pause=1)
    wait_until(lambda: not any(map(scene.waits_there, scene.hosts)), WAIT_S, "nothing waits on hosts")
    assert scene.landed() == uuids
    wait_until(lambda: scene.fates().total() >= uuids.total(), LANDING_WAIT_S, "the balance has the landed entries")
    assert scene.fates() == {"landed.event": uuids.total()}
    scene.check_sums(lost)
