"""Settings that change while the daemon runs: taken from the supervisor, applied, confirmed."""

from __future__ import annotations

import logging
import threading
from typing import TypedDict

from penstock.config import Settings
from penstock.handover.drain import RECEIPTS
from penstock.handover.listener_drains import Drains
from penstock.ledger.ledger import Ledger
from penstock.log import Limits, Log, LogError, TopicSettings
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.supervise.daemon_channel import DaemonEnd, NewEvents

_LOGGER = logging.getLogger(__name__)


class LogSettings(TypedDict):
    """What a Log is made with, and reconfigured to."""

    defaults: TopicSettings
    overrides: dict[str, TopicSettings]
    max_topics: int
    max_bytes: int
    transactions: Limits


def log_settings(settings: Settings) -> LogSettings:
    """The part of the settings that is the log's. Counts without messages are kept as topics are by default."""
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


class Reconfigurer(threading.Thread):
    """Applies what the supervisor says, as long as it lives."""

    def __init__(
        self,
        end: DaemonEnd,
        log: Log,
        ledger: Ledger,
        reports: MonitoringApi,
        guard: TokenAuthenticator,
        drains: Drains,
    ) -> None:
        super().__init__(name="reconfigurer", daemon=True)
        self._end, self._drains = end, drains
        self._log, self._ledger, self._reports, self._guard = log, ledger, reports, guard

    def run(self) -> None:
        """Until nobody is at the other end."""
        while True:
            try:
                if (told := self._end.receive()) is None:
                    return
                if isinstance(told, NewEvents):
                    self._enter(told)
                    continue
                settings = Settings.model_validate(told.settings)
                self.apply(settings)
                self._drains.start(told.wakes)
                self._drains.retain([listener.name for listener in settings.listener])
                self._end.answer(told)
            except Exception as error:  # noqa: BLE001 - the next settings may do
                _LOGGER.error("new settings are not in force as a whole: %s", error)

    def _enter(self, told: NewEvents) -> None:
        """Write events down; those that cannot be just now (a full disk) are sent again, as they are not answered."""
        try:
            for event in told.events:
                self._ledger.post(event)
        except LogError as error:
            _LOGGER.debug("events are not written down yet: %s", error)
        else:
            self._end.answer(told)

    def apply(self, settings: Settings) -> None:
        """Go on with ``settings``; those that are read at the start alone are the same as before."""
        self._log.reconfigure(**log_settings(settings))
        self._guard.replace(settings.security.tokens)
        self._ledger.listeners = [listener.name for listener in settings.listener]
        self._reports.settings = settings
