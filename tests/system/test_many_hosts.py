"""Hosts that relay to one central instance: partitions, kills of everything, and a disk that is lost.

Each acknowledged entry arrives once, and the sum closes: accepted on hosts = arrived + pending on hosts + lost with a
disk.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from penstock.testing.pipe import Pipe, wait_until
from tests.system.configured_pipe import SMALL, listener
from tests.system.host_network import CENTRAL, HostNetwork, host_network
from tests.system.topic_files import entries

WAIT_S = 240
"""Limit of each wait: many processes start at the same time, on machines that may have other work."""
LARGE = b"l" * 5000
"""A payload that the central topic ``large`` refuses, so that it waits on its host."""


class Host:
    """A host with its senders. ``acknowledged`` has the payloads that may not be lost."""

    pause_s = 0.01
    """Pause of each sender after a message or an append."""

    def __init__(self, network: HostNetwork, number: int, folder: Path) -> None:
        self.name, self._network, self._number = f"web{number}", network, number
        folder.mkdir()
        with self.inside():
            self.pipe = Pipe(folder)
        self.pipe.configure(SMALL + self.configuration(network.address_from(number)))
        self.acknowledged: set[bytes] = set()
        self._ends = threading.Event()
        self._threads: list[threading.Thread] = []

    def configuration(self, central: str) -> str:
        """Return the listeners, and the relay to the central instance (``host:port``), as TOML."""
        return (
            listener("events-udp", "udp", 'defrag.max_size = "16KiB"', topic="events")
            + listener("events-tcp", "tcp", topic="events")
            + f'[[relay]]\nname = "up"\nto = "{central}"\nhost = "{self.name}"\n'
            'topic = ["events", "orders", "large"]\n'
        )

    def inside(self) -> contextlib.AbstractContextManager[None]:
        return self._network.inside(self._number)

    def start(self) -> None:
        with self.inside():
            self.pipe.start(wait=False)

    def kill(self) -> None:
        """Kill all processes, and start them again."""
        with self.inside():
            self.pipe.kill_all()
        self.start()

    def wait_ready(self) -> None:
        with self.inside():
            wait_until(self.pipe.answers, WAIT_S, f"{self.name} answers")
            self.pipe.wait_ready()

    def begin_sending(self) -> None:
        for send in (self._send_acknowledged, self._send_datagrams, self._send_lines):
            thread = threading.Thread(target=self._run, args=(send,))
            thread.start()
            self._threads.append(thread)

    def end_sending(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _run(self, send: Callable[[], None]) -> None:
        with self.inside():
            send()

    def payload(self, way: str, number: int) -> bytes:
        return f"{self.name} {way} {number}".encode()

    def append(self, topic: str, payloads: list[bytes], producer: str = "", sequence: int = 0) -> None:
        """Append entries by HTTP, and repeat it until they are acknowledged."""
        document = {
            "logs": [{"rawBytes": b64encode(payload).decode()} for payload in payloads],
            "producerId": producer or uuid.uuid4().hex,
            "sequence": sequence,
        }

        def append() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.post(f"http://{self.pipe.http}/topic/{topic}/logs", json=document, timeout=20).is_success
            return False

        with self.inside():
            wait_until(append, WAIT_S, f"{self.name} appends to {topic}")
        self.acknowledged.update(payloads)

    def _send_acknowledged(self) -> None:
        producer, sequence = uuid.uuid4().hex, 0
        while not self._ends.is_set():
            numbers = range(5 * sequence, 5 * sequence + 5)
            self.append("orders", [self.payload("order", number) for number in numbers], producer, sequence)
            sequence += 1
            self._ends.wait(self.pause_s)

    def _send_datagrams(self) -> None:
        for number in self.numbers():
            with contextlib.suppress(OSError, ValueError):
                self.pipe.datagrams(self.payload("datagram", number))

    def _send_lines(self) -> None:
        for number in self.numbers():
            with contextlib.suppress(OSError, ValueError):
                self.pipe.lines(self.payload("line", number) + b"\n")

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of further messages until the senders end."""
        number = 0
        while not self._ends.wait(self.pause_s):
            yield number
            number += 1

    def payloads(self, topic: str) -> list[bytes]:
        return payloads_of(self.pipe, topic)


class Fleet:
    """A central instance and its hosts."""

    hosts: Sequence[Host]

    def __init__(self, network: HostNetwork, folder: Path, topics: str = "") -> None:
        """Create the central instance; ``topics``: settings of its topics as TOML."""
        self.network = network
        (folder / CENTRAL).mkdir()
        with self.at_central():
            self.central = Pipe(folder / CENTRAL, "security.insecure=true", f"log.grpc={network.central_address}")
        self.central.configure(SMALL + listener("own", "tcp") + topics)

    def at_central(self) -> contextlib.AbstractContextManager[None]:
        return self.network.inside(CENTRAL)

    def start_central(self) -> None:
        with self.at_central():
            self.central.start(wait=False)
            wait_until(self.central.answers, WAIT_S, "the central instance answers")

    def start(self) -> None:
        self.start_central()
        for host in self.hosts:
            host.start()
        for host in self.hosts:
            host.wait_ready()

    def stop(self) -> None:
        for pipe in (*(host.pipe for host in self.hosts), self.central):
            if pipe.process is not None:
                pipe.process.terminate()
        for host in self.hosts:
            with host.inside():
                host.pipe.stop()
        with self.at_central():
            self.central.stop()
        self.network.close()


class Scene(Fleet):
    """A central instance, and hosts that relay to it."""

    host_type: ClassVar[type[Host]] = Host
    hosts: list[Host]

    def __init__(self, network: HostNetwork, hosts: int, folder: Path) -> None:
        super().__init__(network, folder, '[topic.large]\nmessage_size_limit = "1KiB"\n')
        self.hosts = [self.host_type(network, number, folder / f"web{number}") for number in range(hosts)]

    def lose_disk(self) -> tuple[int, Counter[bytes]]:
        """Let entries wait on the last host, then delete its disk; it starts again and appends an order.

        Return the number of lost entries, and the payloads that must arrive: all that the topics of the hosts had.
        """
        last = self.hosts[-1]
        # These wait, because the central topic permits no such entries.
        large = [LARGE + b"%d" % number for number in range(7)]
        last.append("large", large)
        wait_until(lambda: self.waits_there(last) == len(large), WAIT_S, "only the large entries wait on the last host")
        expected = Counter(payload for host in self.hosts for payload in host.payloads("events"))
        with last.inside():
            last.pipe.kill_all()
        shutil.rmtree(last.pipe.data_dir)
        last.start()
        last.wait_ready()
        last.append("orders", [last.payload("order of the new disk", 0)])
        expected.update(
            payload for host in self.hosts for payload in host.acknowledged if not payload.startswith(LARGE)
        )
        return len(large), expected

    def arrived(self) -> Counter[bytes]:
        """Return the payloads of the central topics."""
        return Counter(payloads_of(self.central, "orders") + payloads_of(self.central, "events"))

    def check_sums(self, lost_with_disk: int) -> None:
        """Wait until the hosts have posted their counts, and check that the sum of each listener closes."""

        def is_reported() -> bool:
            rows = self.rows()
            return all(rows[host.name, "http"]["on_host"]["accepted"] == len(host.acknowledged) for host in self.hosts)

        wait_until(is_reported, WAIT_S, "the hosts report what they have acknowledged")
        rows = self.rows()
        for row in rows.values():
            there = row["on_host"]
            elsewhere = there["expired"] + there["pending"] + there["lost_with_disk"]
            assert there["accepted"] == row["accepted"] + elsewhere, row
            assert there["unaccounted"] == 0, row
        lost = {key: row["on_host"]["lost_with_disk"] for key, row in rows.items() if row["on_host"]["lost_with_disk"]}
        assert lost == {(self.hosts[-1].name, "http"): lost_with_disk}
        with self.at_central():
            assert self.central.balance()["unaccounted"] == 0

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the rows of ``penstock balance --hosts`` by host and listener, of hosts that have registered."""
        with self.at_central():
            rows = self.central.balance().get("hosts", [])
        return {(row["host"], row["listener"]): row for row in rows if row["on_host"]}

    def waits_there(self, host: Host) -> int:
        """Return the entries that wait on a host as the central instance knows it."""
        return sum(row["on_host"]["pending"] for (name, _), row in self.rows().items() if name == host.name)


def payloads_of(pipe: Pipe, topic: str) -> list[bytes]:
    """Return the payloads of a topic; empty before its first append."""
    if not (pipe.data_dir / "topics" / topic).exists():
        return []
    return [entry["payload"] for entry in entries(pipe, topic)]


@pytest.fixture(params=[3, pytest.param(10, marks=pytest.mark.soak)])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(host_network(request.param), request.param, tmp_path)
    try:
        scene.start()
        yield scene
    finally:
        scene.stop()


@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.survives("hosts", "peer away")
@pytest.mark.timeout(1200)
def test_entries_of_hosts_arrive_once_through_partitions_kills_and_a_lost_disk(scene: Scene) -> None:
    first, second, *_ = scene.hosts
    for host in scene.hosts:
        host.begin_sending()
    try:
        wait_until(lambda: len(payloads_of(scene.central, "orders")) > 20, WAIT_S, "entries arrive")
        scene.network.cut(0)
        acknowledged = len(first.acknowledged)
        second.kill()
        with scene.at_central():
            scene.central.kill_all()
        scene.start_central()
        second.wait_ready()
        wait_until(
            lambda: len(first.acknowledged) > acknowledged + 20, WAIT_S, "a host that is cut off accepts entries"
        )
        scene.network.restore(0)
    finally:
        for host in scene.hosts:
            host.end_sending()

    lost, expected = scene.lose_disk()
    wait_until(lambda: scene.arrived().total() >= expected.total(), WAIT_S, "the entries arrive")
    wait_until(lambda: not any(map(scene.waits_there, scene.hosts)), WAIT_S, "nothing waits on hosts")
    assert scene.arrived() == expected
    scene.check_sums(lost)
