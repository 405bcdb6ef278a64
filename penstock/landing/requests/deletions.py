"""Requests to delete rows of the table, and the records of deletions. Each deletion has a number and is done once.

``000001.json`` is the request, ``000001.done.json`` the number of deleted rows by topic, ``000001.offsets`` their
offsets, and ``000001.keys`` the keys of recent events among them, so that these do not land again.
Order: these three are written and synced before the table's log names the deletion; only then do they count.
Crash: before that, the deletion is repeated and overwrites them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, SourceBucket
from penstock.files.checked_document import encode, read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import create_once, remove_dead_drafts, sync_written
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import BadRun, HashRun
from penstock.landing.offset_runs import Runs, count_offsets, joined
from penstock.landing.requests.conditions import Condition
from penstock.landing.row_sums import RowSums
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout

if TYPE_CHECKING:
    from penstock.landing.table.table_reader import ForeignCommit

REQUESTED, RETENTION, FOREIGN = "asked", "retention", "foreign"
_LOGGER = logging.getLogger(__name__)
_OFFSETS = pa.schema({"topic": pa.dictionary(pa.int32(), pa.string()), "begin": pa.int64(), "end": pa.int64()})


@dataclass(frozen=True, slots=True)
class Deletion:
    """A request to delete the rows for which all ``conditions`` hold.

    ``why`` is REQUESTED, RETENTION or FOREIGN. FOREIGN rows were deleted by another program in ``version`` of the
    table, with the ``engine`` and ``operation`` of its commit; they are gone already and are only accounted for.
    """

    number: int
    why: str
    conditions: tuple[Condition, ...]
    version: int | None = None
    engine: str = ""
    operation: str = ""

    def document(self) -> dict[str, Any]:
        """Return the request as a JSON document."""
        conditions = [[condition.column, condition.sign, list(condition.values)] for condition in self.conditions]
        foreign = {"version": self.version, "engine": self.engine, "operation": self.operation}
        return {"why": self.why, "conditions": conditions, **(foreign if self.version is not None else {})}


@dataclass(frozen=True, slots=True)
class TopicDeletions:
    """The deleted rows of one topic: their former fates by source and bucket, and the sums of their uuids."""

    number: int
    why: str
    topic: str
    fates: Mapping[SourceBucket, Counts]
    uuids: Mapping[SourceBucket, Counts]

    @property
    def fate(self) -> str:
        """Return the name of the count under which the rows are accounted for now."""
        return Name.DELETED + self.why

    def counts(self) -> dict[SourceBucket, Counts]:
        """Return the number of rows by source and bucket, under ``fate``."""
        return {origin: Counts({self.fate: fates.total()}) for origin, fates in self.fates.items()}

    def uuids_by_fate(self) -> dict[SourceBucket, Counts]:
        """Return the sums of uuids, under ``fate``."""
        return {
            origin: Counts({f"{name.partition('.')[0]}.{self.fate}": n for name, n in sums.items()})
            for origin, sums in self.uuids.items()
        }

    def document(self, batch: int) -> dict[str, Any]:
        """Return the post for the ledger; ``batch`` is the newest batch of the table at the deletion."""
        counts, uuids = self.counts(), self.uuids_by_fate()
        entries: list[dict[str, Any]] = [
            {"source": origin[0], "bucket": origin[1], "counts": counts[origin], "taken": self.fates[origin]}
            | ({"uuids": uuids[origin], "taken_uuids": self.uuids[origin]} if origin in uuids else {})
            for origin in sorted(counts)
        ]
        header = {"tier": "landed", "topic": self.topic, "version": max(batch, 0), "through": 0}
        return {**header, "deletion": self.number, "counts": entries}


def request_deletion(
    layout: Layout, why: str, conditions: Sequence[Condition], foreign: ForeignCommit | None = None
) -> Deletion:
    """Write a new request and return it. Synced. Several processes may call it at once."""
    layout.deletions.mkdir(parents=True, exist_ok=True)
    remove_dead_drafts(layout.deletions)
    while True:
        number = 1 + max((existing.number for existing in load_deletions(layout)), default=0)
        deletion = Deletion(number, why, tuple(conditions))
        if foreign is not None:
            deletion = replace(deletion, version=foreign.version, engine=foreign.engine, operation=foreign.operation)
        path = layout.deletions / f"{number:06d}.json"
        content = encode(deletion.document())
        # Lock: none. The file is created exclusively; a process that finds another's content takes the next number.
        create_once(path, content)
        if path.read_bytes() == content:
            return deletion


def load_deletions(layout: Layout) -> list[Deletion]:
    """Load all requests, in order. Raises DamagedFile."""
    return [_read(layout.deletions / name) for name in sorted(_request_files(layout))]


def _request_files(layout: Layout) -> list[str]:
    try:
        return [name for name in os.listdir(layout.deletions) if name.endswith(".json") and name.count(".") == 1]
    except FileNotFoundError:
        return []


def _read(path: Path) -> Deletion:
    document = read_document(path)
    try:
        conditions = tuple(Condition(column, sign, tuple(values)) for column, sign, values in document["conditions"])
        version = None if document.get("version") is None else int(document["version"])
        foreign = str(document.get("engine", "")), str(document.get("operation", ""))
        return Deletion(int(path.stem), str(document["why"]), conditions, version, *foreign)
    except (KeyError, TypeError, ValueError):
        raise DamagedFile(f"{path} is damaged: reason or conditions are missing") from None


def pending_deletions(layout: Layout) -> list[Deletion]:
    """Return the deletions that are not done, in order."""
    deletions = load_deletions(layout)
    last_done = table_of(layout).last_deletion() if deletions else 0
    return [deletion for deletion in deletions if deletion.number > last_done]


def write_record(
    layout: Layout,
    deletion: Deletion,
    batch: int,
    deleted_rows: Sequence[TopicDeletions],
    runs: Mapping[str, Runs],
    keys: EventsSeen,
    sums: RowSums,
    evidence: Mapping[str, Any],
) -> None:
    """Write the record of the rows that a deletion is about to delete; ``batch`` is the table's newest batch.

    ``evidence``: rows of the table (with rows that an earlier deletion counted), rows by typed table, replaced files
    and the time, for the certificate.
    """
    stem = layout.deletions / f"{deletion.number:06d}"
    parts = [_OFFSETS.empty_table(), *(_runs_table(topic, topic_runs) for topic, topic_runs in sorted(runs.items()))]
    # Limit: one row per run of offsets, not per offset: a deletion of whole days has few runs.
    rows = pa.concat_tables(parts).unify_dictionaries()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(f"{stem}.offsets", "wb") as sink, pa.ipc.new_file(sink, _OFFSETS, options=options) as writer:
        writer.write_table(rows)
    checksum = HashRun.from_events(keys).write(Path(f"{stem}.keys"))
    sync_written([Path(f"{stem}.offsets"), Path(f"{stem}.keys")])
    entries: list[dict[str, Any]] = [
        {
            "topic": topic_rows.topic,
            "source": source,
            "bucket": bucket,
            "taken": counts,
            "uuids": topic_rows.uuids.get((source, bucket), {}),
        }
        for topic_rows in deleted_rows
        for (source, bucket), counts in sorted(topic_rows.fates.items())
    ]
    document = {"batch": batch, "keys": checksum}
    # Order: last, because it carries the checksum of the keys; the commit that makes it count follows.
    write_document(Path(f"{stem}.done.json"), {**document, **evidence, "entries": entries, "sums": sums.document()})


class DeletionRecord:
    """The record of the deletions that are done when it is created. Raises DamagedFile."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.deletions
        deletions = load_deletions(layout)
        last_done = table_of(layout).last_deletion() if deletions else 0
        self.deletions = [deletion for deletion in deletions if deletion.number <= last_done]

    def deleted(self, after: int = 0) -> Iterator[tuple[int, TopicDeletions]]:
        """Yield the deleted rows by deletion and topic, with the table's newest batch at the deletion."""
        for deletion in self.deletions:
            if deletion.number > after:
                document = self._read_done(deletion)
                # Order: topics as the record lists them, so that posts come in the same order after a crash.
                topics = dict.fromkeys(str(entry["topic"]) for entry in document["entries"])
                yield from (
                    (int(document["batch"]), _deleted_of_topic(deletion, topic, document["entries"]))
                    for topic in topics
                )

    def _read_done(self, deletion: Deletion) -> dict[str, Any]:
        return read_document(self._folder / f"{deletion.number:06d}.done.json")

    def runs_since(self, after: int) -> Iterator[tuple[Deletion, int, dict[str, Runs]]]:
        """Yield each deletion after this number, the table's newest batch at it, and the deleted offsets by topic."""
        for deletion in self.deletions:
            if deletion.number > after:
                yield deletion, int(self._read_done(deletion)["batch"]), self._runs_of(deletion)

    def sums(self, after: int = 0) -> Iterator[tuple[Deletion, RowSums]]:
        """Yield the sums of the rows that each deletion deleted."""
        for deletion in self.deletions:
            if deletion.number > after:
                yield deletion, RowSums.from_document(self._read_done(deletion).get("sums", ()))

    def certificate(self, number: int) -> dict[str, Any]:
        """Return the certificate of a deletion as a JSON document. Raises StopIteration if it is not done."""
        deletion = next(deletion for deletion in self.deletions if deletion.number == number)
        done = self._read_done(deletion)
        runs = self._runs_of(deletion)
        return {
            "deletion": number,
            **deletion.document(),
            "done_at": done.get("at"),
            "tables": {"landed": int(done["rows"]), **done.get("typed", {})},
            "topics": {topic: count_offsets(topic_runs) for topic, topic_runs in runs.items()},
            "offsets": {topic: topic_runs.tolist() for topic, topic_runs in runs.items()},
            "replaced_files": done.get("replaced"),
            "typed_replaced_files": done.get("typed_replaced"),
            "sums": done.get("sums", []),
        }

    def read_time(self, number: int) -> float:
        """Return when a deletion was done, in seconds since the epoch."""
        return (self._folder / f"{number:06d}.done.json").stat().st_mtime

    def rows(self, number: int) -> int:
        """Return the number of rows that a deletion deleted."""
        return sum(int(self._read_done(deletion)["rows"]) for deletion in self.deletions if deletion.number == number)

    def runs(self) -> dict[str, Runs]:
        """Return the deleted offsets, by topic (or partition of Kafka)."""
        return joined(map(self._runs_of, self.deletions))

    def readable_runs(self, *, by_penstock: bool = False) -> dict[str, Runs]:
        """Return the same, without deletions whose offsets cannot be read, which are logged.

        ``by_penstock``: only of deletions on request and by retention.
        """
        return joined(runs for _, runs in self.readable_deletions(by_penstock=by_penstock))

    def readable_deletions(self, *, by_penstock: bool = False) -> Iterator[tuple[Deletion, dict[str, Runs]]]:
        """Yield each deletion with its offsets, by topic, as ``readable_runs`` joins them."""
        for deletion in self.deletions:
            if by_penstock and deletion.why == FOREIGN:
                continue
            try:
                yield deletion, self._runs_of(deletion)
            except DamagedFile as error:
                _LOGGER.error(
                    "rows of deletion %d that are back in the table may count twice: %s", deletion.number, error
                )

    def _runs_of(self, deletion: Deletion) -> dict[str, Runs]:
        """Return the offsets of one deletion, by topic. Raises DamagedFile."""
        path = self._folder / f"{deletion.number:06d}.offsets"
        try:
            with pa.memory_map(str(path)) as source:
                rows = pa.ipc.open_file(source).read_all()
        except (pa.ArrowInvalid, FileNotFoundError) as error:
            raise DamagedFile(f"{path}: {error}") from None
        runs: dict[str, Runs] = {}
        for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
            topic_rows = rows.filter(pc.equal(rows["topic"].cast(pa.string()), pa.scalar(topic)))
            runs[topic] = np.stack([topic_rows["begin"].to_numpy(), topic_rows["end"].to_numpy()], axis=1)
        return runs

    def keys(self) -> Iterator[EventsSeen]:
        """Yield the keys of deleted recent events."""
        return (run.seen() for run in self.key_runs())

    def key_runs(self) -> Iterator[HashRun]:
        """Yield the keys of deleted recent events, mapped. Raises DamagedFile."""
        for deletion in self.deletions:
            try:
                yield HashRun.open(self._folder / f"{deletion.number:06d}.keys", int(self._read_done(deletion)["keys"]))
            except (BadRun, FileNotFoundError) as error:
                raise DamagedFile(str(error)) from None


def _runs_table(topic: str, runs: Runs) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(np.zeros(len(runs), np.int32), pa.array([topic]))
    return pa.table([names, pa.array(runs[:, 0]), pa.array(runs[:, 1])], schema=_OFFSETS)


def newest_request(layout: Layout) -> int:
    """Return the number of the last request; 0 without any."""
    # Fast path: the maintenance polls this. One directory listing, no file is opened.
    return max((int(name[:6]) for name in _request_files(layout) if name[:6].isdecimal()), default=0)


def _deleted_of_topic(deletion: Deletion, topic: str, entries: Iterable[Mapping[str, Any]]) -> TopicDeletions:
    topic_entries = [entry for entry in entries if entry["topic"] == topic]
    fates, uuids = (
        {(str(entry["source"]), int(entry["bucket"])): Counts(entry[name]) for entry in topic_entries if entry[name]}
        for name in ("taken", "uuids")
    )
    return TopicDeletions(deletion.number, deletion.why, topic, fates, uuids)
