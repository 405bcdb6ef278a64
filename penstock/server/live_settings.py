"""Settings that change while the daemon runs: received from the supervisor, applied, confirmed."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TypedDict

from penstock.config import Settings
from penstock.config.keys.alarms import AlarmsConfig
from penstock.handover.drain.drain import RECEIPTS
from penstock.handover.drain.listener_drains import Drains
from penstock.ledger.ledger import Ledger
from penstock.log import Limits, Log, LogError, TopicSettings
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.server.alarms.register import AlarmRegister
from penstock.server.alarms.watch import AlarmWatch
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.supervise.daemon_channel import DaemonEnd, NewEvents

_LOGGER = logging.getLogger(__name__)


class LogSettings(TypedDict):
    """Settings that a Log is created with and reconfigured to."""

    defaults: TopicSettings
    overrides: dict[str, TopicSettings]
    max_topics: int
    max_bytes: int
    transactions: Limits


def log_settings(settings: Settings) -> LogSettings:
    """Return the log's part of the settings. Counts without messages have the retention of ordinary topics."""
    limits = settings.transactions
    defaults = TopicSettings.from_config(settings.log.topic_defaults)
    overrides = {name: TopicSettings.from_config(config) for name, config in settings.topic.items()}
    return LogSettings(
        defaults=defaults,
        overrides={RECEIPTS: defaults, **overrides},
        max_topics=settings.log.max_topics,
        max_bytes=settings.log.max_bytes,
        transactions=Limits(
            limits.timeout, limits.max_size, limits.max_open, limits.max_open_per_token, limits.producer_memory
        ),
    )


@dataclass(frozen=True, slots=True)
class Alarms:
    """The alarms of a daemon. One thread at a time applies settings."""

    delivery: AlarmDelivery
    register: AlarmRegister
    watch: AlarmWatch

    def apply(self, config: AlarmsConfig) -> None:
        """Change to ``config``; the delivery is started once alarms have a destination."""
        is_changed = config != self.delivery.config
        self.delivery.replace(config)
        if config.has_destination and not self.delivery.is_alive():
            self.delivery.start()
        self.register.deliver_by(self.delivery.enqueue if config.has_destination else None, is_changed=is_changed)
        self.watch.set_interval(config.every)


class Reconfigurer(threading.Thread):
    """Thread that applies the supervisor's messages."""

    def __init__(
        self,
        end: DaemonEnd,
        log: Log,
        ledger: Ledger,
        reports: MonitoringApi,
        guard: TokenAuthenticator,
        drains: Drains,
        alarms: Alarms,
    ) -> None:
        super().__init__(name="reconfigurer", daemon=True)
        self._end, self._drains, self._alarms = end, drains, alarms
        self._log, self._ledger, self._reports, self._guard = log, ledger, reports, guard

    def run(self) -> None:
        """Apply messages until the supervisor closes the channel."""
        while True:
            try:
                if (message := self._end.receive()) is None:
                    return
                if isinstance(message, NewEvents):
                    self._enter(message)
                    continue
                settings = Settings.model_validate(message.settings)
                self.apply(settings)
                self._drains.start(message.wakes)
                # Order: drains of removed listeners end once those of new ones run, and the confirmation is last.
                self._drains.retain([listener.name for listener in settings.listener])
                self._end.answer(message)
            except Exception as error:  # noqa: BLE001 - the next settings may be applicable
                _LOGGER.error("reload: new settings are applied only in part: %s", error)

    def _enter(self, message: NewEvents) -> None:
        """Post events to the ledger; without an answer (on a full disk) the supervisor sends them again."""
        try:
            for event in message.events:
                self._ledger.post(event)
        except LogError as error:
            for event in message.events:
                self._ledger.hold_event(event)
            _LOGGER.debug("ledger: events are not stored yet: %s", error)
        else:
            self._end.answer(message)

    def apply(self, settings: Settings) -> None:
        """Apply ``settings``; the supervisor sends none that differ in keys read only at the start."""
        self._log.reconfigure(**log_settings(settings))
        self._guard.replace(settings.security.tokens)
        self._ledger.listeners = [listener.name for listener in settings.listener]
        self._reports.settings = settings
        self._alarms.apply(settings.alarms)
