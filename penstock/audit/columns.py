"""Columns of a table with the Kafka offset, partition and topic of a row: by option, or by names of connectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError

OFFSET_NAMES = (
    "kafka_offset",
    "_offset",
    "__offset",
    "__kafka_offset",
    "_kafka_offset",
    "__source_offset",
    "__kafka_metadata.offset",
    "_kafka_metadata.offset",
    "kafka_metadata.offset",
    "record_metadata.offset",
    "RECORD_METADATA.offset",
    "_kafka_metadata_offset",
    "__kafka_metadata_offset",
    "__kafka_metadata.__kafka_offset",
    "__connect_offset",
    "_hoodie_kafka_source_offset",
    "redpanda.offset",
    "_metadata_offset",
    "offset",
    "file name.offset",
)
"""Columns of offsets, the most specific first: Kafka Connect's InsertField and sinks, Iceberg's and Snowflake's sinks,
JDBC sinks with the position as key, Hudi's streamer, Redpanda's Iceberg topics, Spark's Kafka source, Penstock's own
``offset``, and names of files.
"""


class NoOffsets(PenstockError, ValueError):
    """The table has no column of offsets, or nothing says which partition a row belongs to."""


@dataclass(frozen=True, slots=True)
class OffsetColumns:
    """Names of the columns, dotted for nested fields; ``partition`` and ``topic`` are empty if there is none."""

    offset: str
    partition: str = ""
    topic: str = ""

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.offset, self.partition, self.topic) if name]

    @property
    def dictionaries(self) -> list[str]:
        """The columns with few distinct strings, which Parquet need not decode row by row."""
        return [self.topic] if self.topic else []


FILE_NAME = OffsetColumns("file name.offset", "file name.partition", "file name.topic")
"""Stands for offsets in the names of files."""


def find_columns(available: Sequence[str], offset: str = "", partition: str = "", topic: str = "") -> OffsetColumns:
    """Return the columns among ``available`` (dotted names); explicit names win. Raises NoOffsets."""
    for name in (offset, partition, topic):
        if name and name not in available:
            raise NoOffsets(f"the table has no column {name!r}; its columns are {_listed(available)}")
    offset = offset or next((name for name in OFFSET_NAMES if name in available), "")
    if not offset:
        raise NoOffsets(
            f"no column of Kafka offsets is recognised among {_listed(available)}; name it by --offset COLUMN"
        )
    return OffsetColumns(
        offset,
        partition or _sibling(available, offset, ("partition", "kafka_partition")),
        topic or _sibling(available, offset, ("topic", "kafka_topic")),
    )


def _sibling(available: Sequence[str], offset: str, words: Iterable[str]) -> str:
    """Return the column named like ``offset`` with another word: ``__kafka_metadata.partition``, ``_partition``."""
    head, dot, leaf = offset.rpartition(".")
    candidates = [f"{head}{dot}{leaf.replace('offset', word) if 'offset' in leaf else word}" for word in words]
    return next((name for name in candidates if name in available), "")


def _listed(available: Sequence[str], limit: int = 30) -> str:
    return ", ".join(available[:limit]) + (", ..." if len(available) > limit else "")
