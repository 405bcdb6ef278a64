"""Posts of this host's counts to the ledger of the other Penstock.

Start at ``Registration.post_if_due``. A post has absolute counts, so one that is lost costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock import __version__
from penstock.client.log.client import Log
from penstock.client.log.types import ClientError, Unavailable
from penstock.client.relay.clients import remote_client
from penstock.client.relay.kafka_counts import KafkaCounts
from penstock.client.relay.tally import name_within_limit, relayed_listener
from penstock.config import RelayConfig, Settings
from penstock.config.daemon_access import Access
from penstock.counts import Counts
from penstock.errors import PenstockError
from penstock.handover.disk_id import load_disk_id
from penstock.handover.paths import RELAYS_FOLDER
from penstock.ledger.hosts.host_posts import HostPost, ListenerReport, add_report
from penstock.ledger.receipt import losses_of

POST_INTERVAL_S = 5.0
"""Interval of posts: at most what was accepted since the last one is not known if the disk is lost."""
LOSSES_INTERVAL_S = 60.0
"""Interval at which the host's balance is read for its losses and what senders report."""
_LOGGER = logging.getLogger(__name__)


class CountedTopic(Protocol):
    """A relayed topic as the registration needs it."""

    @property
    def is_failing(self) -> bool:
        """Report whether the last attempt to relay failed."""

    def count(self) -> tuple[dict[str, ListenerReport], int]:
        """Return the counts by listener, and the time (us) of the oldest entry that is pending; 0 without one."""


class Registration:
    """Registers the host with the other Penstock, and posts its counts at an interval or when topics begin to fail."""

    def __init__(self, config: RelayConfig, settings: Settings) -> None:
        self._config, self._access = config, Access(settings)
        self._disk = load_disk_id(settings.data_dir / RELAYS_FOLDER)
        self._process, self._version = uuid.uuid4().hex, 0
        self._kafka = KafkaCounts(settings, config.host_name, self._disk) if config.kafka else None
        self._remote: Log | None = None
        self._client: Log | None = None
        """The client of the posts; None until the next post opens it."""
        self._due_at = self._losses_due_at = 0.0
        self._failing: list[bool] = []
        self._refusal = ""
        self.is_connected = False
        """Whether the other side answered the last post, also by a refusal."""
        self._losses: Sequence[tuple[str, int, int | None]] = ()
        """Listeners, what each lost before the log, and what its senders report."""
        self._named: dict[str, None] = {}
        """The names of all posts until now."""

    def connect(self, remote: Log) -> None:
        """Post by ``remote``, or by a client with a token of its own, from the next post on."""
        if self._client is not None and self._client is not self._remote:
            self._client.close()
        self._remote, self._client = remote, None

    def post_if_due(self, topics: Sequence[CountedTopic]) -> None:
        """Post the counts if the interval is over, or a topic has begun or ceased to fail."""
        now, failing = time.monotonic(), [topic.is_failing for topic in topics]
        if now < self._due_at and failing == self._failing:
            return
        self._due_at, self._failing = now + POST_INTERVAL_S, failing
        if now >= self._losses_due_at:
            self._losses_due_at = now + LOSSES_INTERVAL_S
            self._read_losses()
        posts: list[Callable[[], Mapping[str, Any]]] = []
        if topics or self._kafka is None:
            posts.append(lambda: self._next_post(topics).document())
        if (kafka := self._kafka) is not None:
            posts.append(lambda: kafka.next_post().document())
        # A refused post does not keep back the other one.
        errors = [error for post in posts if (error := self._try_post(post)) is not None]
        answers = [error for error in errors if isinstance(error, ClientError)]
        if answers or len(errors) < len(posts):
            self.is_connected = not any(isinstance(error, Unavailable) for error in answers)
        # Unavailable is named by the topics that are not relayed.
        refusals = "; ".join(dict.fromkeys(str(error) for error in errors if not isinstance(error, Unavailable)))
        if refusals and refusals != self._refusal:
            self._refusal = refusals
            _LOGGER.warning("the counts of this host are not posted: %s; entries are still relayed", refusals)
        if not errors:
            if self._refusal:
                _LOGGER.info("the counts of this host are posted again")
            self._refusal = ""

    def _try_post(self, next_post: Callable[[], Mapping[str, Any]]) -> Exception | None:
        try:
            self._post(next_post())
        except (OSError, PenstockError) as error:
            return error
        return None

    def _post(self, document: Mapping[str, Any]) -> None:
        if self._client is None:
            # A token that cannot be read stops the posts only: the next post reads it again, and entries are relayed.
            token_file = self._config.host_token_file
            self._client = remote_client(self._config, token_file) if token_file else self._remote
        if self._client is None:
            raise ClientError("there is no connection yet")
        self._client.post_ledger(json.dumps(document))

    def _next_post(self, topics: Sequence[CountedTopic]) -> HostPost:
        total: dict[str, ListenerReport] = {}
        oldest_us = 0
        for topic in topics:
            reports, time_us = topic.count()
            oldest_us = min(filter(None, (oldest_us, time_us)), default=0)
            for name, report in reports.items():
                add_report(total, self._post_name(name), report)
        for name, lost, sent in self._losses:
            name = self._post_name(name)
            report = total.get(name, ListenerReport())
            # Names that are cut to the same text, or are beyond the limit, are one listener of the other balance.
            all_sent = report.sent if sent is None else (report.sent or 0) + sent
            total[name] = replace(report, lost=report.lost + lost, sent=all_sent)
        self._version += 1
        time_ms = time.time_ns() // 1_000_000
        return HostPost(
            host=self._config.host_name,
            relay=self._config.name,
            disk=self._disk,
            process=self._process,
            version=self._version,
            time_ms=time_ms,
            lag_ms=max(time_ms - oldest_us // 1000, 0) if oldest_us else 0,
            software=__version__,
            listeners=total,
        )

    def _post_name(self, listener: str) -> str:
        # A listener keeps its name in later posts, because the counts of a name must not decrease.
        name = name_within_limit(listener, self._named)
        self._named.setdefault(name)
        return name

    def _read_losses(self) -> None:
        """Read from the host's balance what listeners lost before the log, and what their senders report."""
        # The counts of the last time stay if the daemon does not answer.
        with contextlib.suppress(OSError, PenstockError, ValueError, KeyError):
            status, body = self._access.request("/balance")
            if status == 200:
                balance = json.loads(body)
                losses, host = losses_of(balance), self._config.host_name
                self._losses = [
                    (
                        relayed_listener(host, listener["name"]),
                        losses.get(listener["name"], Counts()).total(),
                        _sent(listener["sent"]),
                    )
                    for listener in balance["listeners"]
                ]


def _sent(sent: Mapping[str, int] | None) -> int | None:
    """Return the messages that senders report; None if no sender reports."""
    return None if sent is None else sent.get("messages", sent.get("datagrams", sent.get("lines", 0)))
