"""The rounds of a drill: the pipe runs, senders send, a disaster strikes, and its cost is reported."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.drill.disasters import RECOVERY_TIMEOUT_S, Scene, Sort, disasters_of
from penstock.drill.kafka import broker_in
from penstock.drill.pipe import DrillPipe
from penstock.drill.senders import senders_of
from penstock.drill.settings import isolate_settings
from penstock.drill.verdict import Verdict, in_words, judge, losses_of, unaccounted_in
from penstock.errors import PenstockError

RATE_PER_S = 500.0
"""Messages per second of each sender."""
PAUSE_RANGE_S = (0.5, 3.0)
"""Shortest and longest pause between two disasters."""
FINAL_PAUSE_S = 2.0
CLOSE_TIMEOUT_S = 10.0
"""Limit for the balance to close after a disaster."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A completed disaster: ``second`` of the drill, the event, its cost by name.

    ``unaccounted``: messages that the balance could not account for afterwards, by route or topic.
    """

    second: float
    event: str
    cost: dict[str, int]
    unaccounted: dict[str, int]

    def __str__(self) -> str:
        cost = in_words(self.cost) or "nothing lost"
        unaccounted = f"; unaccounted for: {in_words(self.unaccounted)}" if self.unaccounted else ""
        return f"{self.event}: {cost}{unaccounted}"

    def document(self) -> dict[str, Any]:
        """Return the incident as a JSON-ready object."""
        return {"second": self.second, "what": self.event, "cost": self.cost, "unaccounted": self.unaccounted}


class Drill:
    """A drill of a copy of ``settings``: the pipe runs on entry and is removed on exit.

    ``seed`` decides the order of disasters, limited to the sorts ``only``; each damage hits ``damages`` files.
    ``report_line`` takes a line about each setting that the copy leaves out.
    """

    def __init__(
        self,
        settings: Settings,
        seed: int,
        report_line: Callable[[str], None],
        *,
        spark: bool,
        kafka: bool,
        keep: bool,
        only: Sequence[Sort] = (),
        damages: int = 1,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-drill-"))
        broker = broker_in(self.folder / "kafka") if kafka else None
        copy, left_out = isolate_settings(settings, self.folder / "data", broker.address if broker else "")
        copy.data_dir.mkdir()
        for line in left_out:
            report_line(line)
        self._keep = keep
        self._pipe = DrillPipe(copy, self.folder, spark, broker)
        self._senders = list(senders_of(self._pipe, RATE_PER_S))
        self._scene = Scene(self._pipe, self._senders, random.Random(seed), damages)
        self._disasters = disasters_of(only, spark, kafka)
        self._unclosed: list[str] = []

    def __enter__(self) -> Drill:
        try:
            if self._pipe.kafka:
                self._pipe.kafka.start()
            self._pipe.start(RECOVERY_TIMEOUT_S)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pipe.stop()
        names_the_folder = kind is not None and issubclass(kind, PenstockError)
        if not (self._keep or names_the_folder):
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, seconds: float) -> Iterator[Incident]:
        """Strike one disaster after the other. Raises NotBack if the pipe does not come back."""
        for sender in self._senders:
            sender.start()
        started_at = time.monotonic()
        before: dict[str, int] = {}
        while (now := time.monotonic() - started_at) < seconds:
            time.sleep(self._scene.dice.uniform(*PAUSE_RANGE_S))
            event = self._scene.dice.choice(self._disasters)(self._scene)
            balance = self._closed()
            after = losses_of(balance)
            cost = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
            incident = Incident(round(now, 1), event, cost, unaccounted_in(balance))
            if incident.unaccounted:
                self._unclosed.append(f"after {incident}")
            yield incident
            before = after
        time.sleep(FINAL_PAUSE_S)
        for sender in self._senders:
            sender.stop()

    def _closed(self) -> dict[str, Any]:
        """Return the balance as soon as it closes; the last one if it does not."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while (balance := self._pipe.balance())["unaccounted"] and time.monotonic() < deadline:
            time.sleep(0.2)
        return balance

    def summary(self) -> str:
        """Summarize the disasters so far in words."""
        return self._scene.summary()

    def verdict(self) -> Verdict:
        """Judge every message once the pipe is idle, and name the disasters after which the balance stayed open."""
        last = judge(self._pipe, self._senders)
        return replace(last, wrong=[*self._unclosed, *last.wrong])
