"""The interface of all targets of an export: the position in the target, and the step that moves it.

Invariant: the target's own transaction has the rows of a step and the position behind them, so a process that is
killed anywhere, or an answer that is lost, leaves either both or none. Each step begins at the position that the
target has, never at one that this side remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from penstock.config.keys.export import ExportConfig
from penstock.errors import PenstockError
from penstock.landing.md5_columns import text_hashes
from penstock.landing.offset_runs import Runs, as_runs
from penstock.landing.rows.engine import compute, pc, sql_literal
from penstock.qualified_names import partition_name
from penstock.upkeep.changes import Changes, Position

POSITIONS = "penstock_exports"
"""Table in the target with the position of each export."""
KEY = ("topic", "partition", "offset")
FORGOTTEN = -1
"""Number of the batch in the position of an export that may replace rows of others, and brings all of its own."""
PIECE_BYTES = 8 << 20
"""Limit: bytes of rows that are converted at once; their texts take several times as much."""


class TargetAway(PenstockError, RuntimeError):
    """The target cannot be used now; the text says why, without the password."""


class TargetMoved(PenstockError, RuntimeError):
    """Another process exports to the same table."""


class TargetInUse(PenstockError, RuntimeError):
    """The table has rows that this export did not bring, before its first step."""

    def __init__(self, name: str, table: str, to: str) -> None:
        super().__init__(
            f"{table} at {to} has rows that export {name} did not bring: give it another table, or replace them with "
            f"`penstock export rebuild {name} --yes`"
        )


class TargetOwned(TargetInUse):
    """The table, or the name of the export in the target, belongs to another export or to another Penstock."""

    def __init__(self, config: ExportConfig, writer: str) -> None:
        PenstockError.__init__(
            self,
            f"{writer} writes to {config.to}: give export {config.name} a name and a table of its own, or replace all "
            f"rows with `penstock export rebuild {config.name} --yes`",
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """The line of an export in the bookkeeping of a target.

    ``owner``: the identity of the table ``landed`` of its Penstock. In lines of earlier versions, ``owner`` and
    ``table`` are "".
    """

    name: str
    source: str
    batch: int
    deletion: int
    start: int
    landed_at: int
    table: str = ""
    owner: str = ""

    def position(self, source: str) -> Position | None:
        """Return the position in a source; None if all rows have to be copied."""
        if self.batch == FORGOTTEN or self.source != source:
            return None
        return Position(self.batch, self.deletion, self.start, self.landed_at)


def select_entry(entries: Iterable[Entry], config: ExportConfig, owner: str) -> Entry | None:
    """Return the line of an export; ``entries`` have its name or its table. Raises TargetOwned."""
    line = None
    for entry in entries:
        if entry.owner not in ("", owner) or entry.name != config.name:
            whose = (
                "of this Penstock" if entry.owner == owner else f"of another Penstock, whose table is {entry.owner},"
            )
            raise TargetOwned(config, f"export {entry.name} {whose}")
        if entry.table in ("", config.target_table):
            line = entry
    return line


@dataclass(frozen=True, slots=True)
class Sums:
    """Number of rows, sum of their offsets, and sum of the hashes of their uuids (docs/proof-sql.md)."""

    rows: int = 0
    offsets: int = 0
    uuid_hashes: int = 0

    def plus(self, rows: pa.RecordBatch) -> Sums:
        """Return the sums with further rows."""
        hashes = text_hashes(rows["uuid"]) if "uuid" in rows.schema.names else np.empty(0, np.uint64)
        offsets = rows["offset"].to_numpy().astype(np.uint64)
        return Sums(self.rows + rows.num_rows, self.offsets + _sum(offsets), self.uuid_hashes + _sum(hashes))


class Target(Protocol):
    """The table of an export in its target. Used by one thread; opened for each step."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def position(self) -> Position | None:
        """Return how far the target is; None before the first step. Raises TargetOwned."""

    def has_other_rows(self) -> bool:
        """Report whether the table has rows, and this export never had a position in it, also not a forgotten one."""

    def apply(self, changes: Changes, deleted: pa.Table, before: Position | None) -> int:
        """Delete and add rows, and move the position from ``before``, at once; return the number of added rows.

        ``deleted``: runs of offsets, as in ``Changes``. Raises TargetMoved.
        """

    def pin(self) -> Position | None:
        """Fix the version of the table that ``read`` yields, and return its position. Raises TargetOwned."""

    def has_newer_step(self) -> bool:
        """Report whether a step may have changed the rows of the version that is pinned."""

    def match_columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        """Return the columns of the source that can be compared, and the columns that the target's owner added.

        A column can be compared if the target lacks it, or has it with the type that an export gives it.
        """

    def read(self, schema: pa.Schema, runs: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in these comparable columns; ``runs``: only these offsets, as in ``Changes``."""

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as ``read`` yields them once they are in the target; nested values may be JSON texts."""

    def forget(self) -> None:
        """Forget the position, so that the next step replaces all rows, also rows of other programs and exports.

        The table then belongs to this export.
        """


def _sum(column: np.ndarray[Any, np.dtype[np.uint64]]) -> int:
    # Sums of halves cannot overflow: a batch of rows has less than 2^32.
    low, high = column & np.uint64(0xFFFFFFFF), column >> np.uint64(32)
    return (int(high.sum()) << 32) + int(low.sum())


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in pieces of at most about PIECE_BYTES."""
    count = max(1, -(-rows.nbytes // PIECE_BYTES))
    size = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def in_run(runs: pa.Table, literal: Callable[[str], str] = sql_literal) -> str:
    """Return an SQL condition for a few runs of offsets."""
    # The words of PostgreSQL's index, so that it is used.
    return " OR ".join(
        f"(topic = {literal(run['topic'])} AND coalesce(partition, -1) = {_number_or(run['partition'], -1)} "
        f'AND "offset" >= {run["begin"]} AND "offset" < {run["end"]})'
        for run in runs.to_pylist()
    )


def _number_or(number: int | None, default: int) -> int:
    return default if number is None else number


def runs_by_topic(runs: pa.Table) -> dict[str, Runs]:
    """Return runs of offsets by topic (``events/0`` for a partition of Kafka)."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for run in runs.select(["topic", "partition", "begin", "end"]).to_pylist():
        pairs.setdefault(partition_name(run["topic"], run["partition"]), []).append((run["begin"], run["end"]))
    return {topic: as_runs(of_topic) for topic, of_topic in pairs.items()}


def is_nested(kind: pa.DataType) -> bool:
    """Report whether a type has other types in it."""
    return bool(pa.types.is_nested(kind))


def as_json(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return nested values as JSON texts."""
    return compute({"text": "CASE WHEN nested IS NOT NULL THEN to_json(nested)::VARCHAR END"}, nested=column)["text"]


def without_nul(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return texts with U+FFFD for each NUL character."""
    replaced: pa.Array[Any] = pc.replace_substring(column, pattern="\0", replacement="\ufffd")
    return replaced


def quoted(name: str) -> str:
    """Quote a name for SQL; a dot separates schema and table."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def text_of_error(error: BaseException, password: str = "") -> str:
    """Return the first line of an error, without the password."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text.replace(password, "***") if password else text
