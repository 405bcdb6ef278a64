"""The kind of source at an address: a topic of Kafka or Penstock, another table, or a file of ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.audit.columns import find_columns
from penstock.audit.outcome import Request
from penstock.audit.source import AuditSource, SourceUnavailable
from penstock.audit.sources.kafka_source import KafkaSource
from penstock.audit.sources.log_source import LogSource, is_topic_folder
from penstock.audit.sources.table_source import ID_FILES, IdSource, TableSource
from penstock.audit.tables.address import without_credentials
from penstock.audit.tables.table import open_table
from penstock.landing.daemon_connection import DaemonConnection

TOPICS = ("kafka", "grpc", "grpc+tls")
"""Schemes of addresses that name a topic."""


def topic_name(address: str) -> str:
    """Return the topic of the source at ``address`` for metrics: its name, or the address of another source."""
    parts = urlsplit(address)
    if parts.scheme in TOPICS:
        return unquote(parts.path.strip("/"))
    return Path(unquote(parts.path)).name if is_topic_folder(_path(address)) else without_credentials(address)


def _path(address: str) -> Path:
    return Path(unquote(address.removeprefix("file://")))


def open_source(address: str, properties: Mapping[str, str], store: Mapping[str, str], request: Request) -> AuditSource:
    """Return the source at ``address``; close it.

    ``properties``: of the client of Kafka, or of the connection to a daemon (``token``, ``tlsCa``, ...). ``store``: of
    the object store or catalog of a table. Raises SourceUnavailable, TableUnreadable.
    """
    parts = urlsplit(address)
    name = unquote(parts.path.strip("/"))
    if parts.scheme in TOPICS:
        if not parts.netloc or not name:
            raise SourceUnavailable(
                f"{without_credentials(address)}: write a topic as {parts.scheme}://HOST:PORT/TOPIC"
            )
        if parts.scheme == "kafka":
            return KafkaSource(name, {"bootstrap.servers": parts.netloc, **properties})
        options = {key.lower(): text for key, text in properties.items()}
        uri = {"uri": f"{parts.scheme}://{parts.netloc}"}
        return LogSource.from_daemon(name, DaemonConnection.from_options({**options, **uri}))
    if not parts.scheme or parts.scheme == "file":
        path = _path(address)
        if is_topic_folder(path):
            return LogSource.from_folder(path)
        if path.suffix in ID_FILES:
            if request.ids is None:
                raise SourceUnavailable(f"{path} has ids: name the table's column with --id COLUMN=key")
            return IdSource.from_file(path)
    address_for_report = without_credentials(address)
    table = open_table(address, store)
    if request.ids is not None:
        column = request.ids.column if request.ids.field == "key" else request.ids.field.removeprefix("$.")
        return IdSource.from_table(table, address_for_report, column)
    columns = find_columns(table.column_names(), request.offset, request.partition, request.topic_column)
    return TableSource(table, address_for_report, columns)
