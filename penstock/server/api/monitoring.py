"""Monitoring: statistics, metrics, balance, watermarks, clock, and posts to the ledger. Blocking: runs on threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.config.explain import keys_of
from penstock.config.reloadable import FOLLOWED
from penstock.files.change_log import ChangeLog
from penstock.files.disk_space import DiskSpace, local_disks
from penstock.handover.heartbeat import HEARTBEAT, Pulse, take_pulse
from penstock.handover.landing_failure import LandingFailure, read_landing_failure
from penstock.handover.paths import account_file, pipeline_state_files, relay_state_file, state_file
from penstock.handover.sender_table import MAX_SENDERS
from penstock.handover.state_page import PIPELINE_TEXTS, RELAY_TEXTS, STATISTICS, TEXTS, StatePage
from penstock.ledger.balance import LAST, Within, as_range, minutes
from penstock.ledger.book.senders import new_senders, silent_senders
from penstock.ledger.event_words import merged, not_started
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import DISK, BadPost, LacksPosts
from penstock.ledger.receipt import unwritten_losses
from penstock.log import InvalidTopicName, Log, LogError, UnknownTopic
from penstock.server.auth.rights import ANONYMOUS, Principal
from penstock.server.metrics.prometheus import Family, statistics_families
from penstock.server.metrics.recorded_metrics import audit_families, contract_family, export_family
from penstock.server.metrics.topic_metrics import relay_families, topic_families
from penstock.slogd.errors import BadRequest, Exhausted, NoSuchTopic, OutOfOrder

MAX_DIGITS = 15
"""Limit: digits of a number in a query."""
MAX_EVENTS = 100
"""Default number of events in an answer."""
MAX_LABELLED_SENDERS, MANY_SENDERS = 20, "many"
"""Limit: senders of a listener with an alarm of their own. If more are silent, the network or the listener is."""
SILENT = "silent_s"
"""Key of the seconds since a process last published."""
FORWARDER_TEXTS = 2
"""Texts in the page of a forwarder."""
MAX_FAILURE_AGE_S = 86_400.0
"""Age from which the failure of a pipeline that does not run is forgotten. One that waits for space does not run."""
NOT_SUMMED = ("version", "uptime", "handlers", "pid", "incarnation", "receive_buffer", SILENT)
"""Statistics of a process, whose sum over listeners has no meaning."""
ROUTE_FATES = ("delivered", "policy_drop", "handler_failed", "corrupt")


class MonitoringApi:
    """Reports of one daemon. Blocking; every report reads the current state, so threads share one instance."""

    def __init__(self, settings: Settings, log: Log, ledger: Ledger, *more_families: Callable[[], Family]) -> None:
        """Create the reports; ``more_families`` return metrics of other parts of the daemon."""
        self.settings, self._log, self._ledger, self._more_families = settings, log, ledger, more_families

    def stat(self) -> dict[str, Any]:
        """Return plog's statistics by listener, and their sum."""
        listeners: dict[str, Any] = {}
        folder = self.settings.buffers
        for listener in self.settings.listener:
            # A listener that has not started yet has no state file.
            if statistics := _published(state_file(folder, listener.name), TEXTS):
                statistics[SILENT] = round(take_pulse(statistics).silent_s, 1)
                for handler in statistics.get("handlers", ()):
                    if forwarder := _published(account_file(folder, listener.name, handler["name"]), FORWARDER_TEXTS):
                        handler["pid"] = forwarder.get(HEARTBEAT, {}).get("pid")
                        handler[SILENT] = round(take_pulse(forwarder).silent_s, 1)
                listeners[listener.name] = statistics
        return {"listeners": listeners, "sum": add_up(list(listeners.values()))}

    def pulses(self) -> dict[str, Pulse]:
        """Return the states in the heartbeats of receivers, forwarders and the pipeline, by the name of the process."""
        folder, pulses = self.settings.buffers, self._pipeline_pulses()
        for listener in self.settings.listener:
            name = listener.name
            pulses |= _pulse(f"receiver {name}", state_file(folder, name), TEXTS)
            for label in (handler.label for handler in listener.forwarded):
                pulses |= _pulse(f"forwarder {name} {label}", account_file(folder, name, label), FORWARDER_TEXTS)
        return pulses

    def _pipeline_pulses(self) -> dict[str, Pulse]:
        pulses: dict[str, Pulse] = {}
        for name, page in pipeline_state_files(self.settings.data_dir).items():
            # The page of a pipeline that another user has run cannot be opened; what else there is must be shown.
            with contextlib.suppress(OSError):
                pulses |= _pulse(name, page, PIPELINE_TEXTS)
        return pulses

    def balance(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the balance; ``bucket`` selects one minute, ``since`` and ``until`` a range (seconds since the
        epoch).

        Raises BadRequest.
        """
        within = _within(query)
        audits = [asdict(audit) for audit in self._ledger.audits(within)]
        silent = {process: round(pulse.silent_s, 1) for process, pulse in self.pulses().items() if pulse.is_stopped}
        selected = as_range(within) or range(LAST)
        all_events = self._ledger.events()
        # Fast path: of up to ten thousand events few are full disks, or losses during another event.
        relevant = (event for event in all_events if event.kind == DISK or event.during)
        events = (event.document() for event in relevant)
        unwritten = unwritten_losses(events, 1000 * selected.start, 1000 * selected.stop)
        present = {"audits": audits, "clock": self._log.clock.state().text(), "silent": silent}
        present |= {"unwritten": unwritten} if unwritten else {}
        present |= {"not_started": processes} if (processes := not_started(all_events)) else {}
        if failure := self.landing_failure():
            present["landing_failure"] = failure.document()
        present["low_disks"] = {str(disk.folder): disk.free for disk in self._disks() if disk.missing}
        return self._ledger.balance(within).document() | present

    def landing_failure(self) -> LandingFailure | None:
        """Return why nothing lands, as the pipeline on this machine reports it.

        The failure of a pipeline that has ended, and is not started again, is forgotten after MAX_FAILURE_AGE_S.
        """
        failure = read_landing_failure(self.settings.landing_failure)
        if failure is None or time.time() - failure.newest / 1000 <= MAX_FAILURE_AGE_S:
            return failure
        return failure if any(pulse.is_running for pulse in self._pipeline_pulses().values()) else None

    def senders(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return senders by listener, the largest first, and their number; ``listener`` selects one.

        ``search`` selects senders with this text in their name. Raises BadRequest.
        """
        receivers = self._receivers_by_listener()
        if (only := query.get("listener")) is not None and only not in receivers:
            raise BadRequest(f"there is no listener {only!r}")
        limit, text = whole_number(query, "limit", MAX_SENDERS), query.get("search", "")
        listeners = []
        for name in [only] if only is not None else receivers:
            matching = [s for s in self._ledger.senders(*receivers[name]) if text.lower() in s.name.lower()]
            senders = [sender.document() for sender in matching[:limit]]
            listeners.append({"listener": name, "number": len(matching), "senders": senders})
        return {"listeners": listeners}

    def _disks(self) -> list[DiskSpace]:
        tables = self.settings.tables
        local = [tables] if isinstance(tables, Path) else []
        folders = [self.settings.data_dir, self.settings.data_dir / "topics", self.settings.buffers, *local]
        return local_disks(folders, *self.settings.alarms.disk_limits)

    def _disk_families(self) -> list[Family]:
        """Return the free space of each disk, and since when the log cannot be written.

        A disk that is full now counts at least a second: the alarm must not wait for its next evaluation.
        """
        labels = [({"folder": str(disk.folder)}, disk) for disk in self._disks()]
        full = next((e for e in reversed(self._ledger.events()) if e.kind == DISK and not e.until), None)
        unwritten_s = max(self._log.clock.expected() - full.at / 1000, 1.0) if full else 0.0
        return [
            Family("penstock_disk_free_bytes", "gauge", "Free space of a disk", [(f, disk.free) for f, disk in labels]),
            Family(
                "penstock_disk_missing_bytes",
                "gauge",
                "Bytes by which the free space is below alarms.disk_free and disk_free_share",
                [(folder, disk.missing) for folder, disk in labels],
            ),
            Family(
                "penstock_log_unwritable_seconds",
                "gauge",
                "Time since the log refuses appends for lack of space",
                [({}, unwritten_s)],
            ),
        ]

    def _receivers_by_listener(self) -> dict[str, tuple[list[str], float]]:
        """Return the receivers of each listener that count senders, and how long its senders may be silent.

        Receivers may share a port. One that counts no senders may have a table of former times, which is ignored.
        """
        by_address: dict[object, str] = {}
        receivers: dict[str, tuple[list[str], float]] = {}
        for listener in self.settings.listener:
            address = listener.listening_address if listener.shares_port else listener.name
            name = by_address.setdefault(address, listener.name)
            counting, _ = receivers.setdefault(name, ([], listener.expect))
            counting += [listener.name] if listener.senders != "off" else []
        return receivers

    def _sender_families(self) -> list[Family]:
        silent: list[tuple[dict[str, str], float]] = []
        new: list[tuple[dict[str, str], float]] = []
        for name, (receivers, expect_s) in self._receivers_by_listener().items():
            tables = [table for receiver in receivers if (table := self._ledger.sender_table(receiver)) is not None]
            silent += _bounded(name, silent_senders(tables, expect_s))
            new += _bounded(name, dict.fromkeys(sorted(new_senders(tables)), 1.0))
        silences = self._ledger.silent_hosts(self._log.clock.expected())
        hosts = [({"host": host}, silence_s) for host, silence_s in silences.items()]
        return [
            Family("penstock_sender_silent_seconds", "gauge", "Time since a sender stopped that sent steadily", silent),
            Family("penstock_sender_new", "gauge", "Senders that first came within the last hour", new),
            Family("penstock_host_silent_seconds", "gauge", "Time since a host stopped that relayed steadily", hosts),
        ]

    def metrics(self) -> list[Family]:
        """Return counts by listener, topic and fate."""
        balance = self._ledger.balance()
        counts = [
            ({"listener": listener.name, "name": name}, count)
            for listener in balance.listeners
            for name, count in listener.counts.items()
        ]
        fates = [
            ({"topic": topic.topic, "fate": fate}, count)
            for topic in balance.topics
            for fate, count in topic.fates.items()
        ]
        ends = [({"topic": topic.topic}, topic.end) for topic in balance.topics]
        routes = [
            ({"listener": route.source, "handler": route.handler, "fate": fate}, getattr(route, fate))
            for route in balance.routes
            for fate in ROUTE_FATES
        ]
        waits = [({"listener": route.source, "handler": route.handler}, route.in_buffer) for route in balance.routes]
        statistics = self.stat()["listeners"]
        silences = [({"listener": name}, published[SILENT]) for name, published in statistics.items()]
        silent_forwarders = [
            ({"listener": name, "handler": handler["name"]}, handler[SILENT])
            for name, published in statistics.items()
            for handler in published.get("handlers", ())
            if SILENT in handler
        ]
        running = [pulse.silent_s for pulse in self._pipeline_pulses().values() if pulse.is_running]
        failure = self.landing_failure()
        failing_s = max(time.time() - failure.since / 1000, 1.0) if failure else 0.0
        not_started_s = [
            ({"process": entry["process"]}, round(max(self._log.clock.expected() - entry["since"] / 1000, 1.0), 1))
            for entry in not_started(self._ledger.events())
        ]
        topics = topic_families(self._log)
        relays = {
            relay.name: _published(relay_state_file(self.settings.data_dir, relay.name), RELAY_TEXTS)
            for relay in self.settings.relay
        }
        marks = [({"table": mark.table, "topic": mark.topic}, mark.until) for mark in self._ledger.watermarks()]
        return [
            *statistics_families(statistics),
            Family("penstock_receiver_silent_seconds", "gauge", "Time since the receiver last reported", silences),
            Family(
                "penstock_forwarder_silent_seconds",
                "gauge",
                "Time since the forwarder last reported",
                silent_forwarders,
            ),
            Family(
                "penstock_pipeline_silent_seconds",
                "gauge",
                "Time since the pipeline last reported",
                [({}, round(max(running, default=0.0), 1))],
            ),
            Family(
                "penstock_pipeline_failing_seconds",
                "gauge",
                "Time since the landing fails",
                [({}, round(failing_s, 1))],
            ),
            Family("penstock_process_not_started_seconds", "gauge", "Time since a process cannot start", not_started_s),
            *self._sender_families(),
            Family("penstock_listener_count_total", "counter", "What a listener counted, by name", counts),
            Family("penstock_route_fate_total", "counter", "What became of a listener's messages, by handler", routes),
            Family("penstock_route_in_buffer", "gauge", "Messages that wait for a handler", waits),
            Family("penstock_topic_fate_total", "counter", "What became of a topic's messages", fates),
            Family("penstock_topic_end_offset", "gauge", "End of a topic's offsets", ends),
            *topics,
            *relay_families(relays, topics),
            Family("penstock_watermark_timestamp_seconds", "gauge", "Time up to which a table is complete", marks),
            Family("penstock_pending", "gauge", "Messages on their way", [({}, balance.pending)]),
            Family("penstock_unaccounted", "gauge", "Messages unaccounted for", [({}, balance.unaccounted)]),
            *self._disk_families(),
            export_family(self.settings),
            contract_family(self.settings),
            *audit_families(self.settings),
            *(family() for family in self._more_families),
        ]

    def series(self, since: int = 0, step: int = 60) -> dict[str, Any]:
        """Return the balance over time."""
        return self._ledger.series(since, step)

    def watermarks(self, caller: Principal = ANONYMOUS) -> dict[str, Any]:
        """Return up to when tables are complete, for topics that the caller may read."""

        def seen(topic: str) -> bool:
            return caller.monitor or caller.reads(topic, self._log.settings(topic))

        return {"tables": [asdict(mark) for mark in self._ledger.watermarks() if seen(mark.topic)]}

    def config(self) -> dict[str, Any]:
        """Return the configuration in force, secrets masked, and what a running pipeline follows; times in seconds."""
        followed = self.settings.pipeline.model_dump(mode="json", include={*FOLLOWED})
        return {"keys": [asdict(key) for key in keys_of(self.settings)], "pipeline": followed}

    def clock(self) -> dict[str, Any]:
        """Report whether the system clock is plausible."""
        return self._log.clock.state().document()

    def accept_clock(self, person: str, origin: str) -> dict[str, Any]:
        """Accept the system clock by the decision of a person at the address ``origin``; return its state."""
        self._log.clock.accept()
        ChangeLog(self.settings.data_dir).record(person or "somebody", "accept the system clock", origin)
        return self.clock()

    def events(self, since: int = 0, limit: int = MAX_EVENTS) -> dict[str, Any]:
        """Return up to ``limit`` events that ended at ``since`` (seconds since the epoch) or later, newest first,
        with texts.
        """
        events = merged([event.document() for event in self._ledger.events()])
        return {"events": [event for event in events if max(event["at"], event["until"]) >= since * 1000][:limit]}

    def counts_of_tier(self, tier: str) -> dict[str, Any]:
        """Return the position up to which each topic has landed, or the counts of an auditor. Raises BadRequest."""
        if tier != "landed":
            return self._audits(tier)
        landed = self._ledger.landed()
        return {
            "topics": {
                name: {"version": x.version, "through": x.through, "deletion": x.deletion} for name, x in landed.items()
            }
        }

    def _audits(self, tier: str) -> dict[str, Any]:
        audits = self._ledger.audits()
        if tier not in (tiers := sorted({audit.tier for audit in audits})):
            named = f", or the tier of an auditor: {', '.join(tiers)}" if tiers else ""
            raise BadRequest(f"tier must be landed{named}")
        return {"tier": tier, "audits": [asdict(audit) for audit in audits if audit.tier == tier]}

    def post(self, document: Any) -> dict[str, Any]:
        """Enter a post; report whether it was new. Raises BadRequest, Exhausted, OutOfOrder."""
        try:
            return {"new": self._ledger.post(document)}
        except LacksPosts as error:
            raise OutOfOrder(str(error)) from None
        except BadPost as error:
            raise BadRequest(str(error)) from None
        except (LogError, OSError) as error:
            raise Exhausted(str(error)) from None

    def verify(self, topic: str, begin: int, end: int, caller: Principal) -> dict[str, Any]:
        """Verify offsets [begin, end), 0 for the topic's end; return the gaps that damage made.

        Raises NotAllowed, NoSuchTopic, Exhausted.
        """
        caller.check_read(topic, self._log.settings(topic))
        try:
            gaps = self._log.topic(topic, internal=True).verify(begin, end or None)
        except (UnknownTopic, InvalidTopicName):
            raise NoSuchTopic(f"Topic does not exist: {topic}") from None
        except LogError as error:
            raise Exhausted(str(error)) from None
        return {"gaps": [{"begin": gap.begin, "end": gap.end, "reason": gap.reason} for gap in gaps]}


def _bounded(listener: str, senders: Mapping[str, float]) -> list[tuple[dict[str, str], float]]:
    """Return samples of a listener's senders, in the order given; of too many one sample, with the largest value."""
    if len(senders) > MAX_LABELLED_SENDERS:
        return [({"listener": listener, "sender": MANY_SENDERS}, max(senders.values()))]
    return [({"listener": listener, "sender": name}, seconds) for name, seconds in senders.items()]


def _published(path: Path, texts: int) -> dict[str, Any]:
    """Return the statistics that a process has published in its page; empty if it has published none."""
    if not path.exists():
        return {}
    page = StatePage(path, texts)
    try:
        return dict(page.read(STATISTICS) or {})
    finally:
        page.close()


def _pulse(process: str, page: Path, texts: int) -> dict[str, Pulse]:
    """Return the pulse by the name of the process; empty if it has published none. Raises OSError."""
    return {process: take_pulse(published, page)} if (published := _published(page, texts)) else {}


def _within(query: Mapping[str, str]) -> Within:
    """Return the minutes that a query selects; None for all. Raises BadRequest."""
    texts = {name: query[name] for name in ("bucket", "since", "until") if name in query}
    for name, text in texts.items():
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            meaning = "the start of a minute" if name == "bucket" else "a time"
            raise BadRequest(f"{name} is {meaning} in seconds since the epoch")
    if "bucket" in texts:
        if len(texts) > 1:
            raise BadRequest("bucket is one minute and cannot be combined with since or until")
        return int(texts["bucket"])
    return minutes(int(texts.get("since", 0)), int(texts.get("until", LAST))) if texts else None


def whole_number(query: Mapping[str, str], name: str, default: int, largest: int = 10**MAX_DIGITS) -> int:
    """Return a whole number of a query. Raises BadRequest."""
    text = query.get(name, str(default))
    # Limit: the length first, because converting a long text takes quadratic time.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and int(text) <= largest):
        raise BadRequest(f"{name} is a whole number from 0 to {largest}")
    return int(text)


def add_up(statistics: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of several listeners' statistics, arrays element by element."""
    total: dict[str, Any] = {}
    for statistics_of_listener in statistics:
        for key, value in statistics_of_listener.items():
            if key not in NOT_SUMMED:
                total[key] = _add(total.get(key), value)
    return total


def _add(total: Any, added: Any) -> Any:
    if total is None:
        return added
    if isinstance(added, dict):
        return {key: _add(total.get(key), added.get(key, 0)) for key in {**total, **added}}
    if isinstance(added, list):
        return [_add(a, b) for a, b in zip(total, added, strict=True)]
    return total + added
