"""Limits and tables that connections share, and the rights of clients: a password is a token of ``[security.tokens]``.

The log daemon says what a token may read.

Invariant: a token that was revoked or restricted reads nothing more once ``MAX_AGE_S`` has passed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

import httpx

from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.config.keys.sql import SqlConfig
from penstock.errors import PenstockError
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient
from penstock.sql.configured import tables_of
from penstock.sql.tables import Tables

REQUEST_TIMEOUT_S = 5.0
MAX_AGE_S = 1.0
"""Time for which an answer of the daemon is used: a dashboard sends several queries at once."""
MAX_TOKEN_CHARS = 1_000
FOLLOW_INTERVAL_S = 5.0
"""Time until a server notices that a reload has changed the typed tables; a running pipeline follows it, too."""
AWAY_INTERVAL_S = 20.0
"""Time until a daemon that did not answer is asked again: a query waits for a silent one once in that time."""


class WrongPassword(PenstockError):
    """The password is not a token."""


class RightsUnknown(PenstockError):
    """The log daemon did not say what a token may read; the text says why."""


class Rights:
    """Asks the log daemon for the readable topics of tokens. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        access = Access(settings)
        self.need_token = bool(settings.security.tokens)
        # trust_env is off: a proxy of the environment must not see tokens.
        self._http = httpx.Client(
            base_url=access.http_url, verify=access.verify, timeout=REQUEST_TIMEOUT_S, trust_env=False
        )

    def close(self) -> None:
        """Close the connections to the daemon."""
        self._http.close()

    def readable(self, token: str) -> frozenset[str] | None:
        """Return the topics that a token may read; None (all) if there are no tokens.

        Raises WrongPassword, RightsUnknown.
        """
        if not self.need_token:
            return None
        if not (0 < len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable()):
            raise WrongPassword("the password is not a token")
        try:
            response = self._http.get("/topics", headers={"authorization": f"Bearer {token}"})
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                raise WrongPassword("the password is not a token of [security.tokens]")
            response.raise_for_status()
            return frozenset(topic["name"] for topic in response.json().get("topic", ()))
        except httpx.HTTPError as error:
            raise RightsUnknown(f"the log daemon does not answer: {error or type(error).__name__}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RightsUnknown("the log daemon's answer is not a list of topics") from None


class Reader:
    """The rights of one client, asked again after ``MAX_AGE_S``. Used by one thread."""

    def __init__(self, rights: Rights, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._rights, self._token, self._clock = rights, token, clock
        self._topics: frozenset[str] | None = None
        self._until = 0.0

    def topics(self) -> frozenset[str] | None:
        """Return the topics that the client may read now; None for all. Raises WrongPassword, RightsUnknown."""
        if self._clock() >= self._until:
            self._topics = self._rights.readable(self._token)
            self._until = self._clock() + MAX_AGE_S
        return self._topics


class FollowedTables:
    """The tables of a configuration, with the typed tables that the log daemon has after reloads. Thread-safe.

    A server whose typed tables are not the daemon's at first has a configuration of its own, and keeps it. While the
    daemon does not answer, the last ones stay.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: LedgerClient | None = None
        self._lock, self._ask_at, self._has_asked = threading.Lock(), 0.0, False
        # Another user's process may not read the daemon's token: it keeps its own configuration.
        with contextlib.suppress(OSError, PenstockError):
            self._client = LedgerClient.from_settings(settings)
        self._follows = self._client is not None
        # A reload may come before the first query.
        self.current()

    def close(self) -> None:
        """Close the connections to the daemon."""
        if self._client is not None:
            self._client.close()

    def tables(self, readable: Iterable[str] | None) -> Tables:
        """Return the tables for a user, see ``tables_of``."""
        return tables_of(self.current(), readable=readable)

    def current(self) -> Settings:
        """Return the settings, with typed tables that are a few seconds old at most."""
        with self._lock:
            if self._client is None or not self._follows or time.monotonic() < self._ask_at:
                return self._settings
            # Order: before the request. Other clients go on with the last settings during it.
            self._ask_at = time.monotonic() + FOLLOW_INTERVAL_S
        try:
            typed = self._client.followed_settings().typed
        except LedgerAway:
            with self._lock:
                # Behind the request: one that waits for a silent daemon must not delay each query.
                self._ask_at = time.monotonic() + AWAY_INTERVAL_S
                return self._settings
        with self._lock:
            pipeline = self._settings.pipeline
            self._follows = self._has_asked or typed == pipeline.typed
            self._has_asked = True
            if self._follows and typed != pipeline.typed:
                update = {"pipeline": pipeline.model_copy(update={"typed": typed})}
                self._settings = self._settings.model_copy(update=update)
            return self._settings


@dataclass
class Engine:
    """The parts that all connections share. ``tables`` returns the tables of a client who may read some topics."""

    tables: Callable[[frozenset[str] | None], Tables]
    config: SqlConfig
    rights: Rights
    counts: Counter[str] = field(default_factory=Counter)
    """Connections and statements that were refused, by reason."""

    def __post_init__(self) -> None:
        self.running = threading.BoundedSemaphore(self.config.max_queries)
