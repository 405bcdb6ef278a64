"""Finds the columns of a table that hold a row's Kafka offset, partition and topic, named by the user or as usual."""

from __future__ import annotations

import re
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


ARROW = "->"
"""Stands between a column of JSON text and the path of a field in it: ``meta->'$.source.offset'``."""
_JSON_COLUMN = re.compile(r"""(?P<column>(?:(?!->).)+?)->>?(?P<quote>'?)(?P<path>\$(?:\.[A-Za-z_][\w-]*)+)(?P=quote)""")


class NoOffsets(PenstockError, ValueError):
    """The table has no column of offsets, or nothing says which partition a row belongs to."""


@dataclass(frozen=True, slots=True)
class OffsetColumns:
    """Names of the columns, dotted for nested fields; ``partition`` and ``topic`` are empty without such a column."""

    offset: str
    partition: str = ""
    topic: str = ""

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.offset, self.partition, self.topic) if name]

    @property
    def dictionaries(self) -> list[str]:
        """The columns with few distinct strings, which a reader of Parquet need not decode row by row."""
        return [self.topic] if self.topic and not is_json_field(self.topic) else []


FILE_NAME = OffsetColumns("file name.offset", "file name.partition", "file name.topic")
"""Stands for offsets in the names of files."""


def find_columns(available: Sequence[str], offset: str = "", partition: str = "", topic: str = "") -> OffsetColumns:
    """Return the columns among ``available`` (dotted names); explicit names win. Raises NoOffsets."""
    offset, partition, topic = map(normalize_column, (offset, partition, topic))
    for name in (offset, partition, topic):
        if name and not _is_available(name, available):
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


def is_json_field(name: str) -> bool:
    """Report whether a name is of a field in a column of JSON text."""
    return bool(split_json_field(name)[1])


def normalize_column(name: str) -> str:
    """Return the name of a column, or ``COLUMN->'$.path'`` for the forms in which SQL writes a JSON field.

    Raises NoOffsets.
    """
    if ARROW not in name:
        return name
    match = _JSON_COLUMN.fullmatch(name)
    if match is None:
        raise NoOffsets(f"{name!r} is not a field of a JSON column: write it like meta->'$.source.offset'")
    return f"{match['column']}{ARROW}'{match['path']}'"


def split_json_field(name: str) -> tuple[str, str]:
    """Return the column of a name and the path in its JSON text; the path of another column is empty.

    Invariant: a path has names of letters, digits, _ and - only, so that it can be written into a query.
    """
    match = _JSON_COLUMN.fullmatch(name)
    return (match["column"], match["path"]) if match else (name, "")


def stored_columns(names: Iterable[str]) -> list[str]:
    """Return the columns to read for names, each once: for a JSON field the column that has the text."""
    return list(dict.fromkeys(split_json_field(name)[0] for name in names))


def _is_available(name: str, available: Sequence[str]) -> bool:
    column, _ = split_json_field(name)
    # Databases list a struct without its fields.
    head, dot, _ = column.partition(".")
    has_fields = any(listed.startswith(f"{head}.") for listed in available)
    return column in available or (bool(dot) and head in available and not has_fields)


def _sibling(available: Sequence[str], offset: str, words: Iterable[str]) -> str:
    """Return the column named like ``offset`` with another word: ``__kafka_metadata.partition``, ``_partition``."""
    if is_json_field(offset):
        # Whether the text has such a field is known for each row only.
        return ""
    head, dot, leaf = offset.rpartition(".")
    candidates = [f"{head}{dot}{leaf.replace('offset', word) if 'offset' in leaf else word}" for word in words]
    return next((name for name in candidates if name in available), "")


def _listed(available: Sequence[str], limit: int = 30) -> str:
    return ", ".join(available[:limit]) + (", ..." if len(available) > limit else "")
