"""Looks at the rules every now and then, and says once what begins and once what ends."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from penstock.ledger.receipt import receipt
from penstock.ledger.receipt_words import reasons, sentence, verdict
from penstock.server.alarms.evaluation import Evaluation, Key, Moment, labels_of
from penstock.server.alarms.rules import RULES, Rule
from penstock.server.metrics.prometheus import Family

BEGINS, ENDS = "begins", "ends"
_LOGGER = logging.getLogger(__name__)


def words_of(balance: dict[str, Any]) -> str:
    """The receipt of a balance: the verdict, the sum, what was lost and why."""
    told = receipt(balance)
    lost = f"lost: {reasons(told.losses_by_reason(), skipped_bytes=told.skipped_bytes)}" if told.lost else ""
    return "\n".join(line for line in (verdict(told), sentence(told), lost) if line)


class WatchClock(Protocol):
    """The clock of the log, which knows what the wall clock should say."""

    def monotonic(self) -> float: ...

    def expected(self) -> float: ...


class RuleState:
    """The state of one rule: where its condition holds since when, and where that was told."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self._evaluation = rule, Evaluation(rule.condition)
        self._since: dict[Key, float] = {}
        self._told: dict[Key, float] = {}

    def changes(self, families: dict[str, Family], now: Moment) -> Iterable[dict[str, Any]]:
        """Yield what begins, once it has lasted, and what ends; each once."""
        holds = self._evaluation.holds(families, now)
        self._since = {key: self._since.get(key, now.monotonic) for key in holds}
        for key, value in holds.items():
            if key not in self._told and now.monotonic - self._since[key] >= self.rule.hold:
                self._told[key] = value
                yield self._message(BEGINS, key, value, now)
        for key in [key for key in self._told if key not in holds]:
            yield self._message(ENDS, key, self._told.pop(key), now)

    def _message(self, state: str, key: Key, value: float, now: Moment) -> dict[str, Any]:
        labels = dict(zip(labels_of(self.rule.condition), key, strict=True))
        return {
            "alarm": self.rule.name,
            "state": state,
            "severity": self.rule.severity,
            "labels": labels,
            "value": value,
            "summary": self.rule.summary.format(value=f"{value:,.0f}", **labels),
            "advice": self.rule.advice,
            "at": datetime.fromtimestamp(now.time, UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(),
        }


class AlarmWatch(threading.Thread):
    """Evaluates all rules every ``every`` seconds; ``tell`` gets what changed, with the receipt, and does not wait."""

    def __init__(
        self,
        every: float,
        clock: WatchClock,
        families: Callable[[], Iterable[Family]],
        receipt: Callable[[], str],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(name="alarms", daemon=True)
        self._every, self._clock = every, clock
        self._families, self._receipt, self._tell = families, receipt, tell
        self._states = [RuleState(rule) for rule in RULES]
        self._stopping = threading.Event()

    def run(self) -> None:
        """At once, then until stopped; what cannot be looked at is said, and looked at again."""
        pause = 0.0  # what is lost before the first look is told by no rule
        while not self._stopping.wait(pause):
            pause = self._every
            try:
                self.look()
            except Exception:  # the daemon goes on whatever the rules meet
                _LOGGER.exception("alarms: the rules cannot be looked at")

    def look(self) -> None:
        """Evaluate all rules once."""
        now = Moment(self._clock.monotonic(), self._clock.expected())
        families = {family.name: family for family in self._families()}
        for change in [change for state in self._states for change in state.changes(families, now)]:
            self._tell({**change, "receipt": self._receipt()})

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
