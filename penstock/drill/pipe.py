"""The processes of a drill: ``penstock serve`` and the pipeline, as ``penstock up`` runs them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.counts import Counts, Name
from penstock.drill.faults import VARIABLE, Faults
from penstock.errors import PenstockError
from penstock.kafka.broker import Broker
from penstock.process.child import Child
from penstock.supervise.endpoints import endpoints
from penstock.testing.processes import alive

SERVE, PIPELINE = "penstock.cli.run.serve", "penstock.cli.tables.pipeline"
INJECTED = Path(__file__).parent / "injected"
POLL_INTERVAL_S = 0.05


class NotBack(PenstockError, RuntimeError):
    """The pipe did not come back in time; the drill ends."""


class DrillPipe:
    """The pipe of ``settings`` in ``folder``, which holds its data directory ``data``, its outputs and its faults."""

    def __init__(self, settings: Settings, folder: Path, spark: bool, kafka: Broker | None = None) -> None:
        self.settings, self.folder, self.kafka = settings, folder, kafka
        self.starts: list[float] = []
        self._faults = folder / "faults.json"
        self.faults(Faults())
        os.environ[VARIABLE] = str(self._faults)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECTED), os.environ.get("PYTHONPATH", "")]))
        task = settings.model_dump(mode="json")
        source: dict[str, Any] = {"settings": task, "config": None, "overrides": []}
        self._serve = Child("serve", SERVE, source, output=folder / "serve.log")
        self.pipeline = Child("pipeline", PIPELINE, task, output=folder / "pipeline.log") if spark else None
        self._client = Access(settings).client(timeout=10)

    def start(self, timeout_s: float) -> float:
        """Start the missing processes and wait until all work; return the seconds that took. Raises NotBack."""
        started_at = time.monotonic()
        self.launch()
        self.wait_back({}, timeout_s)
        self.starts.append(time.monotonic() - started_at)
        return self.starts[-1]

    def launch(self) -> None:
        """Start the missing processes."""
        for child in self._children():
            if child.pid is None:
                child.start()

    def _children(self) -> list[Child]:
        return [child for child in (self._serve, self.pipeline) if child]

    def faults(self, faults: Faults) -> None:
        """Switch the faults of all processes."""
        faults.write(self._faults)

    def wait_back(self, killed: dict[str, int], timeout_s: float) -> None:
        """Wait until the daemon responds and every process in ``killed`` (id by name) has a new id. Raises NotBack."""
        self._until(lambda: self._is_back(killed), timeout_s)

    def _is_back(self, killed: dict[str, int]) -> bool:
        for child in self._children():
            child.check()
        pids = self.pids()
        if not pids or any(pids.get(name) in (None, pid) for name, pid in killed.items()):
            return False
        listeners = {listener.name for listener in self.settings.listener}
        stat = self.get("/stat")
        return bool(stat) and all(stat["listeners"].get(name, {}).get("pid") for name in listeners)

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotBack(f"the pipe is not back after {timeout_s:g} s; see {self.folder}/serve.log")
            time.sleep(POLL_INTERVAL_S)

    def pids(self) -> dict[str, int | None]:
        """Return the ids of receivers, forwarders and log daemon by name; empty before the supervisor is up."""
        pids: dict[str, int | None] = self._endpoints().get("pids", {})
        return pids

    def _endpoints(self) -> dict[str, Any]:
        """Return the running supervisor's document of sockets and processes; empty before it exists."""
        # After a kill the document of the previous supervisor remains: it must not be taken for the new one.
        document = endpoints(self.settings.data_dir)
        return document if document.get("supervisor") == self._serve.pid else {}

    def address(self, listener: str) -> tuple[str, int] | None:
        """Return the address of a listener; None if no supervisor runs."""
        host, port = self._endpoints().get("listeners", {}).get(listener, (None, None))
        return (host, port) if host else None

    def get(self, path: str) -> Any:
        """Return the daemon's response; None if it does not respond."""
        with contextlib.suppress(httpx.HTTPError):
            return self._client.get(path).raise_for_status().json()
        return None

    def balance(self, timeout_s: float = 30.0) -> dict[str, Any]:
        """Return the balance. Raises NotBack if the daemon does not respond in time."""
        deadline = time.monotonic() + timeout_s
        while (response := self.get("/balance")) is None:
            if time.monotonic() > deadline:
                raise NotBack(f"the log daemon does not respond; see {self.folder}/serve.log")
            time.sleep(POLL_INTERVAL_S)
        document: dict[str, Any] = response
        return document

    def settled(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """Return the balance once nothing is in flight and nothing changes; the last one if that takes too long."""
        deadline, same = time.monotonic() + timeout_s, 0
        last: dict[str, Any] = {}
        while same < 5 and time.monotonic() < deadline:
            balance = self.balance()
            is_still = balance == last and not (balance["pending"] and self.pipeline)
            same, last = same + 1 if is_still else 0, balance
            time.sleep(0.2)
        return last

    def kill_all(self) -> None:
        """End all processes at once, as a power cut does."""
        pids = [pid for pid in self.pids().values() if pid]
        for child in self._children():
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)
                child.wait(time.monotonic() + 5)
                child.check()
        self._until(lambda: not any(alive(pid) for pid in pids), 10)

    def halt(self) -> None:
        """End all processes in order; they can be started again."""
        # Limit: each process may take the shutdown time to end, and the supervisor waits for its own children first.
        deadline = time.monotonic() + 2 * self.settings.shutdown_time
        for child in reversed(self._children()):
            child.stop()
            child.wait(deadline)

    def stop(self) -> None:
        """End all processes and the broker for good."""
        self.halt()
        if self.kafka:
            self.kafka.stop()
        self._client.close()


def datagrams_of(balance: Mapping[str, Any], listener: str) -> int:
    """Return the number of datagrams that reached a listener: accepted, or dropped by the kernel."""
    counts = Counts(next((row["counts"] for row in balance["listeners"] if row["name"] == listener), {}))
    return counts[Name.TAKEN] + counts[Name.KERNEL_DROPPED]
