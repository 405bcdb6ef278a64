"""Register of alarms: which fire, who acknowledged or muted them, what happened before, and what is delivered.

Invariant: of an alarm that fires, the begin is delivered once, unless it is muted or acknowledged first; its end is
delivered if its begin was. Both survive a restart.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import FileError
from penstock.server.alarms.rules import RULES, Away, Rule, expression
from penstock.server.alarms.templates import Alarm
from penstock.server.alarms.watch import BEGINS, ENDS, stamp
from penstock.slogd.errors import NotFound

FILE_NAME = "alarms.state"
MAX_HISTORY = 500
MAX_MUTES = 500
MAX_TEXT_CHARS = 500
"""Limit of a note and of a name."""
ACKNOWLEDGED, MUTED, UNMUTED = "acknowledged", "muted", "unmuted"
QUIET, PENDING, FIRING = "quiet", "pending", "firing"
Labels = dict[str, str]
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class FiringAlarm:
    """An alarm that fires: its message, and what became of the message."""

    message: dict[str, Any]
    is_delivered: bool = False
    acknowledged: dict[str, str] | None = None
    """``at``, ``by`` and ``note``."""


@dataclass(frozen=True, slots=True)
class Mute:
    """A rule that is muted until a time (seconds since the epoch), for alarms that have all ``labels``."""

    alarm: str
    labels: Labels
    until: float
    by: str
    note: str = ""

    def covers(self, message: Mapping[str, Any], now: float) -> bool:
        """Report whether an alarm is muted now."""
        return (
            self.alarm == message["alarm"]
            and now < self.until
            and self.labels.items() <= dict(message["labels"]).items()
        )


@dataclass(slots=True)
class _State:
    firing: list[FiringAlarm] = field(default_factory=list)
    mutes: list[Mute] = field(default_factory=list)
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_HISTORY))
    """Newest last."""


class AlarmRegister:
    """The alarms of one daemon. Thread-safe: the watch, the delivery and requests use it.

    ``deliver`` queues a message and returns at once, False if it dropped the message; None while alarms have no
    destination. ``time`` returns seconds
    since the epoch.
    """

    def __init__(self, path: Path, deliver: Callable[[dict[str, Any]], bool] | None, time: Callable[[], float]) -> None:
        self._path, self._deliver, self._time = path, deliver, time
        # The lock guards the state, its file, and the messages that are in flight.
        self._lock = threading.Lock()
        self._in_flight: list[Alarm] = []
        self._pending: list[dict[str, Any]] = []
        self._state = self._read()

    def deliver_by(self, deliver: Callable[[dict[str, Any]], bool] | None) -> None:
        """Deliver by ``deliver`` from now on, or not at all."""
        with self._lock:
            self._deliver = deliver

    def firing(self) -> list[dict[str, Any]]:
        """Return the messages of alarms that fire, such as those before a restart."""
        with self._lock:
            return [alarm.message for alarm in self._state.firing]

    def enter(self, changes: Iterable[Mapping[str, Any]], pending: Iterable[dict[str, Any]]) -> None:
        """Enter begins and ends, and what holds but not for long enough; deliver what is due."""
        with self._lock:
            changed = False
            self._pending = list(pending)
            for message in map(dict, changes):
                changed = True
                self._remember(message["state"], message, "", "")
                before = [alarm for alarm in self._state.firing if _is_same(alarm.message, message)]
                self._state.firing = [alarm for alarm in self._state.firing if alarm not in before]
                if message["state"] == BEGINS:
                    self._state.firing.append(FiringAlarm(message))
                # A destination such as PagerDuty closes what the begin opened, also while the alarm is muted.
                elif self._deliver and any(a.is_delivered or self._is_in_flight(a.message) for a in before):
                    self._deliver(message)
            # Order: delivery is queued before the state is saved. After a crash in between, it is delivered again.
            self._deliver_due()
            if changed:
                self._save()

    def _deliver_due(self) -> None:
        """Deliver begins that are not delivered yet, also those whose mute has ended."""
        for alarm in self._state.firing if self._deliver else ():
            is_settled = alarm.is_delivered or alarm.acknowledged is not None or self._is_in_flight(alarm.message)
            if not is_settled and not self._mute_of(alarm.message):
                assert self._deliver is not None
                if self._deliver(alarm.message):
                    self._in_flight.append(alarm.message)
                else:
                    alarm.is_delivered = True

    def mark_finished(self, message: Alarm) -> None:
        """Remember that the delivery of a message has ended: it was accepted, given up, or dropped."""
        with self._lock:
            self._in_flight = [other for other in self._in_flight if other is not message]
            for alarm in self._state.firing:
                if alarm.message is message:
                    alarm.is_delivered = True
                    self._save()

    def acknowledge(self, name: str, labels: Labels, by: str, note: str) -> int:
        """Acknowledge the alarms of a rule that fire and have all ``labels``; return how many.

        Raises NotFound.
        """
        rule_of(name)
        with self._lock:
            alarms = [
                alarm
                for alarm in self._state.firing
                if alarm.message["alarm"] == name and labels.items() <= alarm.message["labels"].items()
            ]
            if not alarms:
                words = ", ".join(f"{label}={text}" for label, text in labels.items())
                raise NotFound(f"{name} does not fire{f' for {words}' * bool(words)}")
            for alarm in alarms:
                entry = self._remember(ACKNOWLEDGED, alarm.message, by, note)
                alarm.acknowledged = {key: entry[key] for key in ("at", "by", "note")}
            self._save()
        return len(alarms)

    def mute(self, name: str, labels: Labels, until: float, by: str, note: str) -> None:
        """Mute a rule until a time (seconds since the epoch); a time in the past unmutes it. Raises NotFound."""
        rule_of(name)
        with self._lock:
            now = self._time()
            self._state.mutes = [
                mute for mute in self._state.mutes if mute.until > now and (mute.alarm, mute.labels) != (name, labels)
            ][-MAX_MUTES + 1 :]
            if until > now:
                self._state.mutes.append(Mute(name, labels, until, by[:MAX_TEXT_CHARS], note[:MAX_TEXT_CHARS]))
            state = MUTED if until > now else UNMUTED
            self._remember(state, {"alarm": name, "labels": labels, "until": until}, by, note)
            self._save()

    def document(self) -> dict[str, Any]:
        """Return the rules with their state, and the history, newest first."""
        with self._lock:
            now = self._time()
            return {
                "alarms": [self._rule_document(rule, now) for rule in RULES],
                "history": list(reversed(self._state.history)),
                "delivered": self._deliver is not None,
            }

    def _rule_document(self, rule: Rule, now: float) -> dict[str, Any]:
        firing = [
            {
                **{key: alarm.message[key] for key in ("labels", "value", "summary")},
                "since": alarm.message["at"],
                "acknowledged": alarm.acknowledged,
                "muted": self._mute_of(alarm.message) is not None,
                "delivered": alarm.is_delivered,
            }
            for alarm in self._state.firing
            if alarm.message["alarm"] == rule.name
        ]
        pending = [
            {"labels": waiting["labels"], "since": waiting["since"]}
            for waiting in self._pending
            if waiting["alarm"] == rule.name
        ]
        return {
            "alarm": rule.name,
            "severity": rule.severity,
            "state": FIRING if firing else PENDING if pending else QUIET,
            "condition": expression(rule.condition),
            "hold_s": rule.hold,
            "summary": rule.summary,
            "advice": rule.advice,
            "evaluated": not isinstance(rule.condition, Away),
            "firing": firing,
            "pending": pending,
            "mutes": [
                {key: value for key, value in asdict(mute).items() if key != "alarm"}
                for mute in self._state.mutes
                if mute.alarm == rule.name and mute.until > now
            ],
        }

    def _mute_of(self, message: Mapping[str, Any]) -> Mute | None:
        now = self._time()
        return next((mute for mute in self._state.mutes if mute.covers(message, now)), None)

    def _is_in_flight(self, message: Alarm) -> bool:
        return any(other is message for other in self._in_flight)

    def _remember(self, state: str, message: Mapping[str, Any], by: str, note: str) -> dict[str, Any]:
        """Append to the history and return the entry."""
        entry = {
            "at": message["at"] if state in (BEGINS, ENDS) else stamp(self._time()),
            "state": state,
            "alarm": message["alarm"],
            "labels": message["labels"],
            "summary": message.get("summary", ""),
            "by": by[:MAX_TEXT_CHARS],
            "note": note[:MAX_TEXT_CHARS],
        } | ({"until": message["until"]} if state == MUTED else {})
        self._state.history.append(entry)
        return entry

    def _save(self) -> None:
        document = {
            "firing": [asdict(alarm) for alarm in self._state.firing],
            "mutes": [asdict(mute) for mute in self._state.mutes],
            "history": list(self._state.history),
        }
        try:
            write_document(self._path, document)
        except OSError as error:
            # The state in memory stays right; the next change tries again.
            _LOGGER.warning("alarms: the state is not saved: %s", error)

    def _read(self) -> _State:
        """Return the saved state; a damaged file is reported and forgotten."""
        try:
            document = read_document(self._path)
            return _State(
                [FiringAlarm(**alarm) for alarm in document["firing"]],
                [Mute(**mute) for mute in document["mutes"]],
                deque(document["history"], MAX_HISTORY),
            )
        except FileNotFoundError:
            return _State()
        except (FileError, OSError, KeyError, TypeError, ValueError) as error:
            _LOGGER.warning(
                "alarms: %s cannot be read (%s): acknowledgements, mutes and history are forgotten", self._path, error
            )
            return _State()


def rule_of(name: str) -> Rule:
    """Return a rule by its name. Raises NotFound."""
    for rule in RULES:
        if rule.name == name:
            return rule
    raise NotFound(f"no alarm is named {name[:100]!r}: {', '.join(rule.name for rule in RULES)}")


def _is_same(message: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(message["alarm"] == other["alarm"] and message["labels"] == other["labels"])
