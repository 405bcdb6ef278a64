"""The queryable tables of a configuration: the tables, and the topics that its pipeline reads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable

from penstock.config import Settings
from penstock.errors import PenstockError
from penstock.landing.daemon_connection import DaemonConnection, configured_connection
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.rows.type_schemas import Schema, SchemasUnknown, load_schemas
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import TopicStore
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import TypedTable, configured_tables, strict_tables
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient
from penstock.sql.tables import Tables

FOLLOW_INTERVAL_S = 5.0
"""Time until a server notices that a reload has changed the typed tables; a running pipeline follows it, too."""


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
            return self._settings
        with self._lock:
            pipeline = self._settings.pipeline
            self._follows = self._has_asked or typed == pipeline.typed
            self._has_asked = True
            if self._follows and typed != pipeline.typed:
                update = {"pipeline": pipeline.model_copy(update={"typed": typed})}
                self._settings = self._settings.model_copy(update=update)
            return self._settings


def tables_of(settings: Settings, landed_only: bool = False, readable: Iterable[str] | None = None) -> Tables:
    """Return the tables for a user who may read the topics ``readable``; None for all.

    Raises SchemasUnknown, BadTransform, OSError, ConfigError.
    """
    layout, pipeline = Layout.for_tables(settings.tables), settings.pipeline
    window = round(pipeline.duplicate_window * 1_000_000)
    names = None if readable is None else frozenset(readable)
    typed = configured_tables(pipeline)
    # Kafka's unlanded records are with the broker, so only the table is read.
    if landed_only or pipeline.source == "kafka":
        return Tables(layout, None, window=window, readable=names, typed=typed)
    rules = rules_of(settings, typed)
    transform = TransformRules.from_config(pipeline)
    # The tail of the log is transformed as the pipeline does it; a function that cannot be loaded ends the query
    # early.
    transform.check()
    connection = configured_connection(settings)
    store: TopicStore = FolderStore(settings.topics) if connection is None else _by_flight(connection)
    return Tables(layout, store, pipeline.topics, rules, transform, window, names, typed)


def rules_of(settings: Settings, typed: Iterable[TypedTable]) -> Rules:
    """Return the rules by which the pipeline judges messages. Raises SchemasUnknown, OSError."""
    pipeline = settings.pipeline
    schemas = load_schemas(Layout.for_tables(settings.tables).type_schemas, pipeline.schemas)
    return Rules(EventRules(pipeline.event_types, (*schemas, *strict_tables(typed))), pipeline.keep_payload)


def schemas_of(settings: Settings) -> tuple[Schema, ...]:
    """Return the schemas of event types and strict typed tables; without the former if they are not known yet."""
    strict = strict_tables(configured_tables(settings.pipeline))
    try:
        return rules_of(settings, strict).events.schemas
    except SchemasUnknown:
        return strict


def _by_flight(connection: DaemonConnection) -> TopicStore:
    from penstock.landing.topics.from_flight import FlightStore  # imports gRPC

    return FlightStore(connection)
