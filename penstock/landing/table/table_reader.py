"""Reads a Delta table: its files, the batches that brought them, and the commits of other programs.

Invariant: the list of files and their deletion vectors are of one snapshot; a list without its vectors would bring
deleted rows back. ``delta_table`` adds commits of our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from penstock.files.errors import DamagedFile
from penstock.files.json_values import parse_object
from penstock.landing.storage.object_path import ObjectPath, TablePath, delta_rs_options, translate_errors_at
from penstock.landing.table.deletion_vectors import read_mask
from penstock.landing.table.file_entries import parse_actions, read_entries
from penstock.landing.table.table_file import Mask, TableFile, count_rows
from penstock.landing.table_schema import LANDED

DELTA_LOG = "_delta_log"
MAX_COMMITS_AT_URL = 10_000
"""Limit: each commit is a request, so that a first look at a table in a store takes minutes, not hours."""
APPLICATION = "penstock"
DELETIONS_APPLICATION = "penstock.deletions"
DESCRIPTION_KEY = "penstock"
"""Key of our own entry in a commit's metadata: what the commit says about its batch, as JSON."""
RESTORES = ("RESTORE", "CLONE")
"""Operations that bring a table back to an earlier version."""
_TIME_COLUMN, _HOUR_MICROS = "timestamp", 3_600_000_000
_DELETION_VECTORS = "deletionVectors"
_UPDATED_ROWS = ("numUpdatedRows", "numTargetRowsUpdated", "num_updated_rows", "num_target_rows_updated")
"""Names that engines use for the number of rows that a commit changed."""


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of another program; ``updated``: number of changed rows, None if the commit does not say it.

    ``names`` are the files whose rows it says it changed; an OPTIMIZE has only ``added`` and ``removed``. ``at`` is
    the time of the commit in milliseconds since the epoch, 0 if it has none.
    """

    version: int
    engine: str
    operation: str
    names: frozenset[str]
    updated: int | None
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    at: int = 0


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The files that a batch brought, in which version, and what the commit says about it ({}: nothing)."""

    batch: int
    version: int
    files: list[str]
    description: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogSince:
    """The log since a batch.

    ``batches`` after it, ascending; ``names`` of all files that were added since, also by merges and deletions;
    ``previous``: the newest batch before them, None if there is none. ``is_complete``: the log reaches back so far.
    """

    batches: list[BatchFiles]
    names: frozenset[str]
    previous: BatchFiles | None
    is_complete: bool


class TableReader:
    """A Delta table in a folder or an object store, for reading. Not thread-safe: the opened table is updated."""

    def __init__(self, folder: TablePath, schema: pa.Schema = LANDED) -> None:
        self.folder = folder
        self.schema = schema
        self._log = folder / DELTA_LOG
        self._opened: deltalake.DeltaTable | None = None

    @property
    def _table(self) -> deltalake.DeltaTable:
        """The newest version of the table. Raises DamagedFile."""
        try:
            with translate_errors_at(self.folder):
                if self._opened is None:
                    self._opened = deltalake.DeltaTable(str(self.folder), **delta_rs_options(self.folder))
                else:
                    # Only commits since the last call are read; opening a table reads its checkpoint again.
                    self._opened.update_incremental()
        except DeltaError as error:
            raise DamagedFile(f"{self._log} cannot be read: {str(error).partition(chr(10))[0]}") from None
        return self._opened

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        if isinstance(self._log, Path):
            return self._log.is_dir()
        with translate_errors_at(self.folder):
            return self._opened is not None or deltalake.DeltaTable.is_deltatable(
                str(self.folder), **delta_rs_options(self.folder)
            )

    @property
    def identity(self) -> str:
        """The id that Delta gave the table when it was created, a uuid; "" without a table."""
        return str(self._table.metadata().id) if self.exists else ""

    @property
    def schema_now(self) -> pa.Schema:
        """The columns of the newest version, with columns that other programs added."""
        schema: Any = self._table.schema().to_arrow()
        return pa.schema(schema)

    def newest(self) -> int:
        """Return the newest committed batch; -1 for none."""
        return newest_batch(self._table) if self.exists else -1

    def last_deletion(self) -> int:
        """Return the number of the last deletion that is done; 0 for none."""
        return int(self._table.transaction_version(DELETIONS_APPLICATION) or 0) if self.exists else 0

    def deletion_evidence(self, number: int) -> Mapping[str, Any]:
        """Return the newest commit's metadata of a deletion; {} if it is of another deletion, or has none."""
        version = self.version() if self.last_deletion() == number else -1
        while (actions := self._actions(version)) is not None:
            if any(action.get("txn", {}).get("appId") == DELETIONS_APPLICATION for action in actions):
                return _description(actions)
            version -= 1
        return {}

    def active(self) -> list[TableFile]:
        """Return the files of the newest version, sorted by name."""
        return self._list_files(self._table) if self.exists else []

    def active_within(self, bounds: Mapping[str, tuple[Any, Any]], version: int | None = None) -> list[TableFile]:
        """Return the files that may have a row within the bounds (inclusive) of every column; None: of today.

        The statistics in the table's log exclude files; files without statistics may have such a row. Raises
        DamagedFile if the log of an earlier version is removed.
        """
        table = self._table if version is None else self._open_at(version)
        with translate_errors_at(self.folder):
            adds = pa.table(table.get_add_actions(flatten=True))
        is_outside: Any = pa.repeat(False, adds.num_rows)
        for column, (low, high) in bounds.items():
            if {f"min.{column}", f"max.{column}"} <= {*adds.schema.names}:
                smallest, largest = adds[f"min.{column}"], adds[f"max.{column}"]
                is_beside: Any = pc.or_kleene(pc.greater(smallest, pa.scalar(high)), pc.less(largest, pa.scalar(low)))
                is_outside = pc.or_(is_outside, is_beside.fill_null(False))
        outside = {unquote(str(path)) for path in adds["path"].filter(is_outside).to_pylist()}
        # Order: after the statistics. A file that a batch adds in between stays in.
        files = self.active() if version is None else self._list_files(table)
        return [file for file in files if file not in outside]

    def active_at(self, version: int) -> list[TableFile]:
        """Return the files of an earlier version. Raises DamagedFile if its log is removed."""
        return self._list_files(self._open_at(version))

    def _open_at(self, version: int) -> deltalake.DeltaTable:
        try:
            with translate_errors_at(self.folder):
                return deltalake.DeltaTable(str(self.folder), version=version, **delta_rs_options(self.folder))
        except DeltaError as error:
            raise DamagedFile(f"{self._log}: version {version}: {str(error).partition(chr(10))[0]}") from None

    def version(self) -> int:
        """Return the newest version; -1 if there is no table."""
        return self._table.version() if self.exists else -1

    def first_version(self) -> int:
        """Return the oldest version whose commit is still in the log; the newest if it has none.

        Of a table at a URL, one of the newest ``MAX_COMMITS_AT_URL``.
        """
        log, newest = self._log, self.version()
        names = log.names() if isinstance(log, ObjectPath) else [path.name for path in list_commits(log)]
        numbers = filter(str.isdecimal, (name.removesuffix(".json") for name in names))
        oldest = min(map(int, numbers), default=newest)
        return max(oldest, newest - MAX_COMMITS_AT_URL) if isinstance(log, ObjectPath) else oldest

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield each batch with its files, ascending, as far back as ``batches``."""
        yield from ((batch.batch, batch.files) for batch in self.batches(from_batch))

    def batches(self, from_batch: int = 0) -> list[BatchFiles]:
        """Return the committed batches, ascending.

        Limit: batches whose commits Delta has cleaned up are missing; the journal has them.
        """
        by_number: dict[int, BatchFiles] = {}
        for batch in self._batches():
            if batch.batch < from_batch:
                break
            # A typed table may have a batch twice: the newer commit, which is read first, replaced the older one.
            by_number.setdefault(batch.batch, batch)
        return [by_number[number] for number in sorted(by_number)]

    def log_since(self, batch: int) -> LogSince:
        """Return the commits of the table's log since a batch, or as far back as it reaches."""
        by_number: dict[int, BatchFiles] = {}
        names = set[str]()
        version = self.version()
        while (actions := self._actions(version)) is not None:
            committed = _batch_files(version, actions)
            if committed is not None and committed.batch <= batch:
                return LogSince([by_number[n] for n in sorted(by_number)], frozenset(names), committed, True)
            names.update(_added_names(actions))
            if committed is not None:
                by_number.setdefault(committed.batch, committed)
            version -= 1
        return LogSince([by_number[n] for n in sorted(by_number)], frozenset(names), None, version < 0)

    def names_since(self, since_ms: float) -> set[str] | None:
        """Return the files that commits since a time added or removed; None if some of the commits are gone."""
        names = set[str]()
        for version in range(self.version(), -1, -1):
            if (actions := self._actions(version)) is None:
                return None
            names.update(unquote(str(change["path"])) for action in actions for change in _changes(action))
            commit = self.commit_path(version)
            if isinstance(commit, Path) and commit.stat().st_mtime * 1000 < since_ms:
                break
        return names

    def _batches(self) -> Iterator[BatchFiles]:
        """Yield batches from the log, the newest first."""
        version = self.version()
        while (actions := self._actions(version)) is not None:
            if (committed := _batch_files(version, actions)) is not None:
                yield committed
            version -= 1

    def foreign_commit(self, version: int) -> ForeignCommit | None:
        """Return another program's commit of files; None for our own, and if the log no longer has it."""
        actions = self._actions(version) or []
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        applications = {str(action["txn"]["appId"]) for action in actions if "txn" in action}
        if DESCRIPTION_KEY in info or any(name.startswith(APPLICATION) for name in applications):
            return None
        changes = [change for action in actions for change in _changes(action)]
        names = frozenset(unquote(str(change["path"])) for change in changes if change.get("dataChange"))
        added = frozenset(_added_names(actions))
        removed = frozenset(unquote(str(action["remove"]["path"])) for action in actions if "remove" in action)
        if not added | removed:
            return None
        # Trino names itself only here, as in trino-476-NODE.
        engine = str(info.get("engineInfo") or info.get("clusterId") or "unknown")
        operation = str(info.get("operation", "unknown"))
        metrics: dict[str, Any] = info.get("operationMetrics") or {}
        updated = next((int(metrics[key]) for key in _UPDATED_ROWS if key in metrics), None)
        return ForeignCommit(version, engine, operation, names, updated, added, removed, _millis(info))

    def statistics(self, name: str) -> dict[str, tuple[Any, Any, int | None]]:
        """Return smallest and largest value and number of nulls by column, as the table's log has them for a file."""
        with translate_errors_at(self.folder):
            adds = pa.table(self._table.get_add_actions(flatten=True))
        # Limit: only the file's own row becomes Python objects; with 100,000 files all rows take 150 MB.
        paths = (str(path) for chunk in adds["path"].chunks for path in chunk)
        index = next((index for index, path in enumerate(paths) if unquote(path) == name), adds.num_rows)
        (row,) = adds.slice(index, 1).to_pylist() or [{}]
        columns = [key.removeprefix("min.") for key in row if key.startswith("min.")]
        return {key: (row[f"min.{key}"], row.get(f"max.{key}"), row.get(f"null_count.{key}")) for key in columns}

    def _list_files(self, table: deltalake.DeltaTable) -> list[TableFile]:
        # Invariant: a file that a faulty commit lists with and without its vector is read once, and with the vector.
        files: dict[str, TableFile] = {}
        for entry in self._list_entries(table):
            file = files.setdefault(entry, entry)
            if file is not entry:
                file.copies += 1
                if file.live is not None and entry.live is not None:
                    file.live = _both(file.live, entry.live)
        return list(files.values())

    def _list_entries(self, table: deltalake.DeltaTable) -> list[TableFile]:
        """Return a file for each entry of the log, sorted by name; of one name, entries with a vector come first."""
        with translate_errors_at(self.folder):
            # Invariant: one snapshot. A list and vectors of different versions would bring deleted rows back.
            adds, vectors = pa.table(table.get_add_actions()), self._deletion_vectors(table)
        columns = [*(adds[name].to_pylist() for name in ("path", "size_bytes", "num_records")), _first_hours(adds)]
        rows: list[Any] = [(unquote(path), *rest) for path, *rest in zip(*columns, strict=True)]
        # Fast path: no file is listed twice.
        if len({name for name, *_ in rows}) < len(rows):
            repeated = [name for name, count in Counter(name for name, *_ in rows).items() if count > 1]
            vectors |= self._masks_of_entries(repeated, table.version())
        files = []
        for name, size, count, hour in sorted(rows, key=itemgetter(0)):
            masks = vectors.get(name)
            files.append(TableFile.listed(name, size, masks.pop(0) if masks else None, count or 0, hour))
        return files

    def _deletion_vectors(self, table: deltalake.DeltaTable) -> dict[str, list[Mask]]:
        """Return the rows that are not deleted, for each file with a deletion vector and each of its entries."""
        if _DELETION_VECTORS not in (table.protocol().reader_features or ()):
            return {}
        root = unquote(table.table_uri).rstrip("/").removeprefix("file://") + "/"
        vectors: dict[str, list[Mask]] = {}
        for batch in table.deletion_vectors():
            rows = pa.record_batch(batch)
            for path, live in zip(rows["filepath"].to_pylist(), rows["selection_vector"], strict=True):
                name = unquote(str(path)).removeprefix("file://").removeprefix(root)
                vectors.setdefault(name, []).append(live.values.to_numpy(zero_copy_only=False))
        return vectors

    def _masks_of_entries(self, names: Sequence[str], version: int) -> dict[str, list[Mask]]:
        """Return the live rows by each vector of the files that a version lists with several."""
        # Workaround: of two vectors of one path, delta-rs returns any one.
        masks: dict[str, list[Mask]] = {}
        for name, entries in read_entries(self._log, version, names).items():
            descriptors = [entry["deletionVector"] for entry in entries if entry.get("deletionVector")]
            if len(descriptors) > 1:
                rows = count_rows(self.folder, TableFile(name))
                masks[name] = [read_mask(self.folder, descriptor, rows) for descriptor in descriptors]
        return masks

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a commit; None if the log no longer has it."""
        try:
            return parse_actions(self.commit_path(version).read_text())
        except FileNotFoundError:
            return None

    def commit_path(self, version: int) -> TablePath:
        return self._log / f"{version:020}.json"


def list_commits(log: Path) -> list[Path]:
    """Return the commits of a log in a folder, oldest first, without the compacted ones that other programs write."""
    return sorted(path for path in log.glob("*.json") if path.stem.isdecimal())


def _both(first: Mask, second: Mask) -> Mask:
    """Return the rows that neither of two deletion vectors of a file deletes: a short mask ends before live rows."""
    joined: Mask = np.ones(max(len(first), len(second)), bool)
    joined[: len(first)] &= first
    joined[: len(second)] &= second
    return joined


def _first_hours(adds: pa.Table) -> list[int | None]:
    """Return the hour since the epoch of the earliest message of each file; None where statistics lack it."""
    smallest = adds.schema.field("min").type if "min" in adds.schema.names else pa.struct([])
    if smallest.get_field_index(_TIME_COLUMN) < 0:
        return [None] * adds.num_rows
    micros: Any = pc.struct_field(adds["min"], _TIME_COLUMN).cast(pa.int64())
    hours: list[int | None] = pc.divide(micros, pa.scalar(_HOUR_MICROS)).to_pylist()
    return hours


def _batch_files(version: int, actions: Sequence[Mapping[str, Any]]) -> BatchFiles | None:
    """Return the batch of a commit; None for other commits, such as merges."""
    batch = next((a["txn"]["version"] for a in actions if a.get("txn", {}).get("appId") == APPLICATION), None)
    return None if batch is None else BatchFiles(int(batch), version, _added_names(actions), _description(actions))


def _added_names(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [unquote(str(action["add"]["path"])) for action in actions if "add" in action]


def _changes(action: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of the file that an action adds or removes; empty for other actions."""
    return [action[kind] for kind in ("add", "remove") if kind in action]


def _description(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    try:
        return parse_object(str(info[DESCRIPTION_KEY]))
    except (KeyError, ValueError):
        return {}


def _millis(info: Mapping[str, Any]) -> int:
    at = info.get("timestamp")
    return at if isinstance(at, int) else 0


def newest_batch(table: deltalake.DeltaTable) -> int:
    """Return the newest batch of an opened table; -1 for none."""
    batch = table.transaction_version(APPLICATION)
    return -1 if batch is None else int(batch)
