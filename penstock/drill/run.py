"""The rounds of a drill: the pipe runs, senders send, a disaster strikes, and what it cost is told."""

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
from penstock.drill.disasters import PATIENCE, Scene, Sort, disasters_of
from penstock.drill.kafka import broker_in
from penstock.drill.pipe import DrillPipe
from penstock.drill.senders import senders_of
from penstock.drill.settings import copied
from penstock.drill.verdict import Verdict, in_words, judge, losses_of, unaccounted_in
from penstock.errors import PenstockError

RATE = 500.0
"""Messages per second of each sender."""
CALM = (0.5, 3.0)
"""Seconds between two disasters."""
QUIET_AT_THE_END = 2.0
SECONDS_TO_CLOSE = 10.0
"""For the balance, after a disaster."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A disaster that was gone through: ``second`` of the drill, what happened, what it cost by name.

    ``unaccounted``: what the balance could not account for when it was over, by where.
    """

    second: float
    what: str
    cost: dict[str, int]
    unaccounted: dict[str, int]

    def __str__(self) -> str:
        cost = in_words(self.cost) or "nothing lost"
        return f"{self.what}: {cost}" + (f"; unaccounted for: {in_words(self.unaccounted)}" if self.unaccounted else "")


class Drill:
    """A drill of a copy of ``settings``; on entry the pipe runs, on exit all of it is gone.

    ``seed`` decides which disasters, of the sorts ``only``, come in which order; ``damages`` files are damaged at
    once. ``say`` takes lines about what the copy leaves out.
    """

    def __init__(
        self,
        settings: Settings,
        seed: int,
        say: Callable[[str], None],
        *,
        spark: bool,
        kafka: bool,
        keep: bool,
        only: Sequence[Sort] = (),
        damages: int = 1,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-drill-"))
        broker = broker_in(self.folder / "kafka") if kafka else None
        copy, left_out = copied(settings, self.folder / "data", broker.address if broker else "")
        copy.data_dir.mkdir()
        for line in left_out:
            say(line)
        self._keep = keep
        self._pipe = DrillPipe(copy, self.folder, spark, broker)
        self._senders = list(senders_of(self._pipe, RATE))
        self._scene = Scene(self._pipe, self._senders, random.Random(seed), damages)
        self._disasters = disasters_of(only, spark, kafka)
        self._unclosed: list[str] = []

    def __enter__(self) -> Drill:
        try:
            if self._pipe.kafka:
                self._pipe.kafka.start()
            self._pipe.start(PATIENCE)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pipe.stop()
        points_into_it = kind is not None and issubclass(kind, PenstockError)
        if not (self._keep or points_into_it):
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, seconds: float) -> Iterator[Incident]:
        """One disaster after the other. Raises NotBack where the pipe does not come up again."""
        for sender in self._senders:
            sender.start()
        begun = time.monotonic()
        before: dict[str, int] = {}
        while (now := time.monotonic() - begun) < seconds:
            time.sleep(self._scene.dice.uniform(*CALM))
            what = self._scene.dice.choice(self._disasters)(self._scene)
            balance = self._closed()
            after = losses_of(balance)
            cost = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
            incident = Incident(round(now, 1), what, cost, unaccounted_in(balance))
            if incident.unaccounted:
                self._unclosed.append(f"after {incident}")
            yield incident
            before = after
        time.sleep(QUIET_AT_THE_END)
        for sender in self._senders:
            sender.stop()

    def _closed(self) -> dict[str, Any]:
        """The balance as soon as it closes; the last one where it does not."""
        end = time.monotonic() + SECONDS_TO_CLOSE
        while (balance := self._pipe.balance())["unaccounted"] and time.monotonic() < end:
            time.sleep(0.2)
        return balance

    def done(self) -> str:
        """What has been done to the pipe so far, in words."""
        return self._scene.told()

    def verdict(self) -> Verdict:
        """What became of every message, once all is still, and after which disasters the balance did not close."""
        last = judge(self._pipe, self._senders)
        return replace(last, wrong=[*self._unclosed, *last.wrong])
