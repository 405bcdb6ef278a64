"""Alarms on their way out: to a webhook and a command, again and again for a while, never in anybody's way."""

from __future__ import annotations

import http.client
import json
import logging
import queue
import shlex
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from penstock.config.keys.alarms import AlarmsConfig
from penstock.server.metrics.prometheus import Family

MOST_WAITING = 100
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SENT, FAILED, DROPPED = "sent", "failed", "dropped"
_LOGGER = logging.getLogger(__name__)


class AlarmDelivery(threading.Thread):
    """Tells what it is given, in order. ``counts``: alarms sent, given up, and dropped because too many wait."""

    def __init__(self, config: AlarmsConfig) -> None:
        super().__init__(name="alarm delivery", daemon=True)
        self._config = config
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(MOST_WAITING)
        self._stopping = threading.Event()
        self.counts: Counter[str] = Counter()

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message; where there is no room it is dropped, and that is said."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self.counts[DROPPED] += 1
            _LOGGER.warning("alarms: too many wait: one was dropped")

    def run(self) -> None:
        """Until stopped."""
        while not self._stopping.is_set():
            try:
                self.deliver(self._waiting.get(timeout=0.5))
            except queue.Empty:
                continue

    def deliver(self, message: dict[str, Any]) -> None:
        """To each of those configured, each for ``retry_for`` seconds at most."""
        body = json.dumps(message).encode()
        for name, attempt in (("webhook", self._post), ("command", self._run)):
            if getattr(self._config, name):
                self.counts[SENT if self._insist(name, attempt, body) else FAILED] += 1

    def _insist(self, name: str, attempt: Any, body: bytes) -> bool:
        pause, spent = FIRST_PAUSE, 0.0
        while True:
            try:
                attempt(body)
                return True
            except (OSError, http.client.HTTPException, subprocess.SubprocessError, ValueError) as error:
                reason = str(error) or type(error).__name__
            if spent >= self._config.retry_for or self._stopping.is_set():
                _LOGGER.warning("alarms.%s: an alarm was given up: %s", name, reason)
                return False
            _LOGGER.warning("alarms.%s: %s; again in %.0f s", name, reason, pause)
            self._stopping.wait(pause)
            spent, pause = spent + pause, min(2 * pause, LONGEST_PAUSE)

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._config.webhook, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self._config.timeout):
            pass

    def _run(self, body: bytes) -> None:
        command = shlex.split(self._config.command)
        done = subprocess.run(command, input=body, capture_output=True, timeout=self._config.timeout, check=False)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise subprocess.SubprocessError(f"status {done.returncode}{f': {said[-1]}' if said else ''}")

    def family(self) -> Family:
        """What became of alarms, as a metric."""
        samples = [({"result": result}, self.counts[result]) for result in (SENT, FAILED, DROPPED)]
        return Family("penstock_alarms_total", "counter", "Alarms told to a hook, by result", samples)

    def stop(self) -> None:
        """End; what waits is not told any more."""
        self._stopping.set()
