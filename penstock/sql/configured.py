"""The queryable tables of a configuration: the tables, and the topics that its pipeline reads."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config import Settings
from penstock.landing.daemon_connection import DaemonConnection, configured_connection
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.rows.type_schemas import Schema, SchemasUnknown, load_schemas
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import TopicStore
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import TypedTable, configured_tables, strict_tables
from penstock.sql.tables import Tables


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
