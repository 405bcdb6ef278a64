"""Register of alarms: which fire, who acknowledged or muted them, what happened before, and what is delivered.

Invariant: of an alarm that fires, the begin is delivered once, unless it is muted or acknowledged first; its end is
delivered after it if its begin was or may have been. Both survive a restart: what is not delivered is in the state.
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
from penstock.server.alarms.delivery import FAILED, SENT
from penstock.server.alarms.evaluation import labels_of
from penstock.server.alarms.rules import RULES, Away, Rule, expression
from penstock.server.alarms.templates import Alarm
from penstock.server.alarms.watch import BEGINS, ENDS, stamp
from penstock.slogd.errors import BadRequest, NotFound

FILE_NAME = "alarms.state"
MAX_HISTORY = 500
MAX_MUTES = 500
MAX_TEXT_CHARS = 500
"""Limit of a note and of a name."""
MAX_NAMED_MUTES = 3
"""Limit: mutes that an error names."""
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
    is_given_up: bool = False
    """A destination did not accept the message within ``retry_for``, or it was dropped."""


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
    ending: list[dict[str, Any]] = field(default_factory=list)
    """Undelivered messages of alarms that have ended, the oldest first: ends, and begins that were in flight."""
    mutes: list[Mute] = field(default_factory=list)
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_HISTORY))
    """Newest last."""


class AlarmRegister:
    """The alarms of one daemon. Thread-safe: the watch, the delivery and requests use it.

    ``deliver`` queues a message and returns at once, False if it dropped the message; None while alarms have no
    destination. ``time`` returns seconds since the epoch.
    """

    def __init__(self, path: Path, deliver: Callable[[dict[str, Any]], bool] | None, time: Callable[[], float]) -> None:
        self._path, self._deliver, self._time = path, deliver, time
        # The lock guards the state, its file, and the messages that are in flight.
        self._lock = threading.Lock()
        self._in_flight: list[Alarm] = []
        self._pending: list[dict[str, Any]] = []
        self._current: list[dict[str, Any]] = []
        self._state = self._read()

    def deliver_by(self, deliver: Callable[[dict[str, Any]], bool] | None, *, is_changed: bool) -> None:
        """Deliver by ``deliver`` from now on, or not at all.

        If the destinations changed, alarms that still fire and were given up are delivered again.
        """
        with self._lock:
            self._deliver = deliver
            if self._deliver_due(also_given_up=is_changed):
                self._save()

    def firing(self) -> list[dict[str, Any]]:
        """Return the messages of alarms that fire, such as those before a restart."""
        with self._lock:
            return [alarm.message for alarm in self._state.firing]

    def enter(
        self,
        changes: Iterable[Mapping[str, Any]],
        pending: Iterable[dict[str, Any]],
        current: Iterable[dict[str, Any]] = (),
    ) -> None:
        """Enter begins and ends, what holds but not for long enough, and current values; deliver what is due."""
        with self._lock:
            changed = False
            self._pending, self._current = list(pending), list(current)
            for message in map(dict, changes):
                changed = True
                self._remember(message["state"], message, "", "")
                before = [alarm for alarm in self._state.firing if _is_same(alarm.message, message)]
                self._state.firing = [alarm for alarm in self._state.firing if alarm not in before]
                if message["state"] == BEGINS:
                    self._state.firing.append(FiringAlarm(message))
                    continue
                begins = [alarm.message for alarm in before if self._is_in_flight(alarm.message)]
                # A destination such as PagerDuty closes what the begin opened, also while the alarm is muted.
                if begins or any(alarm.is_delivered or alarm.is_given_up for alarm in before):
                    self._state.ending += [*begins, message]
            # Order: delivery is queued before the state is saved. After a crash in between, it is delivered again.
            if self._deliver_due() or changed:
                self._save()

    def _deliver_due(self, *, also_given_up: bool = False) -> bool:
        """Deliver what is not delivered yet, also alarms whose mute has ended; report whether the state changed."""
        if self._deliver is None:
            # The destinations that got the begin messages are no longer configured. Others must not get the ends.
            has_ended = bool(self._state.ending)
            self._state.ending = []
            return has_ended
        # Order: ends first. An alarm that begins again after a restart must not be closed by its earlier end.
        ending = self._state.ending
        self._state.ending = [message for message in ending if self._is_in_flight(message) or self._queue(message)]
        is_changed = len(self._state.ending) < len(ending)
        for alarm in self._state.firing:
            is_settled = alarm.is_delivered or alarm.acknowledged is not None or self._is_in_flight(alarm.message)
            if is_settled or (alarm.is_given_up and not also_given_up) or self._mute_of(alarm.message):
                continue
            was_given_up, alarm.is_given_up = alarm.is_given_up, not self._queue(alarm.message)
            is_changed = is_changed or alarm.is_given_up != was_given_up
        return is_changed

    def _queue(self, message: dict[str, Any]) -> bool:
        """Deliver a message; False if it is dropped."""
        assert self._deliver is not None
        if not self._deliver(message):
            return False
        self._in_flight.append(message)
        return True

    def mark_finished(self, message: Alarm, outcome: str) -> None:
        """Remember the outcome of a delivery. A begin whose destinations were removed is delivered to the new ones."""
        with self._lock:
            self._in_flight = [other for other in self._in_flight if other is not message]
            self._state.ending = [other for other in self._state.ending if other is not message]
            for alarm in self._state.firing:
                if alarm.message is message and outcome in (SENT, FAILED):
                    alarm.is_delivered, alarm.is_given_up = outcome == SENT, outcome == FAILED
            self._save()

    def acknowledge(self, name: str, labels: Labels, by: str, note: str) -> int:
        """Acknowledge the alarms of a rule that fire and have all ``labels``; return how many.

        Raises NotFound, BadRequest.
        """
        _check_labels(rule_of(name), labels)
        with self._lock:
            alarms = [
                alarm
                for alarm in self._state.firing
                if alarm.message["alarm"] == name and labels.items() <= alarm.message["labels"].items()
            ]
            if not alarms:
                raise NotFound(f"{name} does not fire{f' for {_label_words(labels)}' * bool(labels)}")
            for alarm in alarms:
                entry = self._remember(ACKNOWLEDGED, alarm.message, by, note)
                alarm.acknowledged = {key: entry[key] for key in ("at", "by", "note")}
            self._save()
        return len(alarms)

    def mute(self, name: str, labels: Labels, until: float, by: str, note: str) -> None:
        """Mute a rule until a time (seconds since the epoch); a time in the past ends the mute with these labels.

        Raises NotFound, BadRequest.
        """
        rule = rule_of(name)
        _check_labels(rule, labels)
        with self._lock:
            now = self._time()
            if until > now and isinstance(rule.condition, Away):
                raise BadRequest(f"{name} is evaluated and sent by Prometheus only: silence it in its Alertmanager")
            mutes = [mute for mute in self._state.mutes if mute.alarm == name and mute.until > now]
            if until <= now and labels not in [mute.labels for mute in mutes]:
                raise NotFound(_missing_mute_words(name, labels, mutes))
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
                **{key: self._current_message(alarm)[key] for key in ("labels", "value", "summary")},
                "since": alarm.message["at"],
                "acknowledged": alarm.acknowledged,
                "muted": self._mute_of(alarm.message) is not None,
                "delivered": alarm.is_delivered,
                "given_up": alarm.is_given_up,
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

    def _current_message(self, alarm: FiringAlarm) -> Mapping[str, Any]:
        """Return the message with the current value; the first one before the first evaluation after a restart."""
        return next((message for message in self._current if _is_same(message, alarm.message)), alarm.message)

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
            "ending": self._state.ending,
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
                # A file of an earlier version has none.
                list(map(dict, document.get("ending", ()))),
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


def _check_labels(rule: Rule, labels: Labels) -> None:
    """Refuse labels that no alarm of the rule has. Raises BadRequest."""
    names = labels_of(rule.condition)
    if unknown := [label for label in labels if label not in names]:
        expected = f"its labels are {', '.join(names)}" if names else "it has no labels"
        raise BadRequest(f"{rule.name} has no label {unknown[0][:100]!r}: {expected}")


def _missing_mute_words(name: str, labels: Labels, mutes: list[Mute]) -> str:
    """Return why a mute cannot be ended, and which can."""
    if not mutes:
        return f"{name} is not muted: penstock alarms list shows the mutes"
    others = [_label_words(mute.labels) if mute.labels else "all its alarms" for mute in mutes[:MAX_NAMED_MUTES]]
    others += ["others"] * (len(mutes) > MAX_NAMED_MUTES)
    subject = _label_words(labels) if labels else "all its alarms"
    return f"{name} has no mute for {subject}, but for {' and for '.join(others)}: name the labels of the mute to end"


def _label_words(labels: Labels) -> str:
    return ", ".join(f"{label}={text}" for label, text in labels.items())


def _is_same(message: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(message["alarm"] == other["alarm"] and message["labels"] == other["labels"])
