"""Periodic evaluation of the rules. Each alarm is reported once when it begins and once when it ends."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from penstock.ledger.event_words import unwritten_text
from penstock.ledger.receipt import receipt
from penstock.ledger.receipt_words import reasons, sentence, verdict
from penstock.server.alarms.evaluation import Evaluation, Key, Moment, labels_of
from penstock.server.alarms.rules import RULES, Rule
from penstock.server.metrics.prometheus import Family

BEGINS, ENDS = "begins", "ends"
RESTORE_GRACE_S = 60.0
"""Time after a start in which alarms from before it do not end: receivers and the pipeline may not report yet."""
_LOGGER = logging.getLogger(__name__)


def format_receipt(balance: dict[str, Any]) -> str:
    """Format the receipt of a balance: the verdict, the sum, what was lost and why."""
    summary = receipt(balance)
    lost = f"lost: {reasons(summary.losses_by_reason(), skipped_bytes=summary.skipped_bytes)}" if summary.lost else ""
    return "\n".join(line for line in (verdict(summary), sentence(summary), lost, unwritten_text(balance)) if line)


class WatchClock(Protocol):
    """Clock of the log, which knows what the wall clock should show."""

    def monotonic(self) -> float: ...

    def expected(self) -> float: ...


class RuleState:
    """State of one rule: since when its condition holds for which labels, and for which of them that was reported."""

    def __init__(self, rule: Rule, firing: Iterable[Mapping[str, Any]] = ()) -> None:
        """Create the state; ``firing`` are the messages of alarms that fired before a restart."""
        self.rule, self._evaluation = rule, Evaluation(rule.condition)
        self._since: dict[Key, float] = {}
        self._values: dict[Key, float] = {}
        names = labels_of(rule.condition)
        self._reported: dict[Key, float] = {
            tuple(message["labels"][name] for name in names): message["value"]
            for message in firing
            if message["alarm"] == rule.name and message["labels"].keys() == set(names)
        }
        self._restored, self._restored_until_s = set(self._reported), 0.0

    def changes(self, families: dict[str, Family], now: Moment) -> Iterable[dict[str, Any]]:
        """Yield each alarm once when it has lasted long enough, and once when it ends."""
        self._values = holds = self._evaluation.holds(families, now)
        # A label for which the condition no longer holds starts its ``hold`` again.
        self._since = {key: self._since.get(key, now.monotonic) for key in holds}
        for key, value in holds.items():
            if key not in self._reported and now.monotonic - self._since[key] >= self.rule.hold:
                # Order: the message first. An alarm whose message cannot be made is not reported yet.
                message = self._message(BEGINS, key, value, now)
                self._reported[key] = value
                yield message
        self._restored_until_s = self._restored_until_s or now.monotonic + RESTORE_GRACE_S
        if now.monotonic >= self._restored_until_s:
            self._restored.clear()
        # An alarm that holds again belongs to this run: from then on it ends like any other.
        self._restored -= holds.keys()
        for key in [key for key in self._reported if key not in holds and key not in self._restored]:
            message = self._message(ENDS, key, self._reported[key], now)
            del self._reported[key]
            yield message

    def pending(self, now: Moment) -> Iterable[dict[str, Any]]:
        """Yield the labels for which the condition holds, but not for long enough, and since when."""
        for key, since in self._since.items():
            if key not in self._reported:
                labels = dict(zip(labels_of(self.rule.condition), key, strict=True))
                yield {"alarm": self.rule.name, "labels": labels, "since": stamp(now.time - now.monotonic + since)}

    def current(self, now: Moment) -> Iterable[dict[str, Any]]:
        """Yield the messages of alarms that fire, with the values of the last evaluation."""
        for key, value in self._values.items():
            if key in self._reported:
                yield self._message(BEGINS, key, value, now)

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
            "at": stamp(now.time),
            "host": socket.gethostname(),
        }


def stamp(time: float) -> str:
    """Return a time (seconds since the epoch) as text."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


class AlarmWatch(threading.Thread):
    """Thread that evaluates all rules every ``every`` seconds. ``enter`` gets the changes with the receipt, what is
    pending, and the current messages of alarms that fire; ``firing`` are the messages of alarms that fired before a
    restart.
    """

    def __init__(
        self,
        every: float,
        clock: WatchClock,
        families: Callable[[], Iterable[Family]],
        make_receipt: Callable[[], str],
        enter: Callable[[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]], None],
        firing: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(name="alarms", daemon=True)
        self._every, self._clock = every, clock
        self._families, self._make_receipt, self._enter = families, make_receipt, enter
        firing = list(firing)
        self._states = [RuleState(rule, firing) for rule in RULES]
        self._is_stopped = False
        self._changed = threading.Event()

    def run(self) -> None:
        """Evaluate at once, then until stopped; a failed evaluation is logged and repeated."""
        # At once: growth is measured from the first evaluation, so a loss before it would not be seen.
        while not self._is_stopped:
            self._changed.clear()
            try:
                self.evaluate()
            # An error in the metrics must not stop the daemon.
            except Exception:
                _LOGGER.exception("alarms: the rules cannot be evaluated")
            # Order: the state is read after the event is cleared; a change in between ends the wait at once.
            if not self._is_stopped:
                self._changed.wait(self._every)

    def evaluate(self) -> None:
        """Evaluate all rules once. A rule that fails, and a receipt that cannot be made, lose no change."""
        now = Moment(self._clock.monotonic(), self._clock.expected())
        families = {family.name: family for family in self._families()}
        changes, pending, current = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
        for state in self._states:
            # Changes before the error are reported, so they are entered, too.
            try:
                changes.extend(state.changes(families, now))
                pending.extend(state.pending(now))
                current.extend(state.current(now))
            except Exception:
                _LOGGER.exception("alarms: rule %s cannot be evaluated", state.rule.name)
        # Order: all rules are evaluated before the receipt is made, which takes time.
        receipt_text = self._receipt_text() if changes else ""
        self._enter([{**change, "receipt": receipt_text} for change in changes], pending, current)

    def _receipt_text(self) -> str:
        try:
            return self._make_receipt()
        # The balance reads many files. Alarms are about such faults, so they are delivered without it.
        except Exception as error:  # noqa: BLE001
            _LOGGER.warning("alarms: delivered without a receipt, which cannot be made: %s", error)
            return ""

    def set_interval(self, every: float) -> None:
        """Evaluate now, and every ``every`` seconds from now on."""
        self._every = every
        self._changed.set()

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self._changed.set()
