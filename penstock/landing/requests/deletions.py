"""What is to be taken out of the table, and what was: each deletion has a number and is done once.

``000001.json`` says what is wanted, ``000001.done.json`` how many rows of which topic that was, ``000001.offsets``
which, and ``000001.keys`` the keys of the events of late among them, so that they do not land again. The last three
count when the table's log has the deletion's number: they are written before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, SourceBucket
from penstock.files.checked_document import encode, read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import create_once, sync_written
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.hash_run import BadRun, HashRun
from penstock.landing.offset_runs import Runs, as_runs
from penstock.landing.requests.conditions import Condition
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_reader import ForeignCommit
from penstock.landing.table_paths import Layout

ASKED, RETENTION, FOREIGN = "asked", "retention", "foreign"
_OFFSETS = pa.schema({"topic": pa.dictionary(pa.int32(), pa.string()), "begin": pa.int64(), "end": pa.int64()})


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows for which all ``conditions`` hold are to go; ``why``: ASKED or RETENTION.

    FOREIGN: rows that another program deleted, in ``version`` of the table, with ``engine`` and ``operation`` as its
    commit says; they are gone already, and are accounted for.
    """

    number: int
    why: str
    conditions: tuple[Condition, ...]
    version: int | None = None
    engine: str = ""
    operation: str = ""

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        conditions = [[one.column, one.sign, list(one.values)] for one in self.conditions]
        foreign = {"version": self.version, "engine": self.engine, "operation": self.operation}
        return {"why": self.why, "conditions": conditions, **(foreign if self.version is not None else {})}


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went of a topic: the fates that the rows had, by source and bucket, and the sums of their uuids."""

    number: int
    why: str
    topic: str
    taken: Mapping[SourceBucket, Counts]
    uuids: Mapping[SourceBucket, Counts]

    @property
    def fate(self) -> str:
        """The name of the count that they stand under now."""
        return Name.DELETED + self.why

    def counts(self) -> dict[SourceBucket, Counts]:
        """How many."""
        return {place: Counts({self.fate: taken.total()}) for place, taken in self.taken.items()}

    def uuids_now(self) -> dict[SourceBucket, Counts]:
        """The uuids, under that name."""
        return {
            place: Counts({f"{name.partition('.')[0]}.{self.fate}": n for name, n in told.items()})
            for place, told in self.uuids.items()
        }

    def document(self, batch: int) -> dict[str, Any]:
        """As a post for the ledger; ``batch``: the newest one that was in the table."""
        counts, uuids = self.counts(), self.uuids_now()
        entries: list[dict[str, Any]] = [
            {"source": place[0], "bucket": place[1], "counts": counts[place], "taken": self.taken[place]}
            | ({"uuids": uuids[place], "taken_uuids": self.uuids[place]} if place in uuids else {})
            for place in sorted(counts)
        ]
        told = {"tier": "landed", "topic": self.topic, "version": max(batch, 0), "through": 0}
        return {**told, "deletion": self.number, "counts": entries}


def ask(layout: Layout, why: str, conditions: Sequence[Condition], foreign: ForeignCommit | None = None) -> Deletion:
    """Keep a new deletion, durably; several processes may. ``foreign``: the commit that deleted the rows."""
    layout.deletions.mkdir(parents=True, exist_ok=True)
    while True:
        number = 1 + max((one.number for one in all_deletions(layout)), default=0)
        asked = Deletion(number, why, tuple(conditions))
        if foreign is not None:
            asked = replace(asked, version=foreign.version, engine=foreign.engine, operation=foreign.operation)
        path = layout.deletions / f"{number:06d}.json"
        data = encode(asked.document())
        create_once(path, data)
        if path.read_bytes() == data:
            return asked


def all_deletions(layout: Layout) -> list[Deletion]:
    """All that were asked for, in order. Raises DamagedFile."""
    return [_read(layout.deletions / name) for name in sorted(_asked(layout))]


def _asked(layout: Layout) -> list[str]:
    """The files of what was asked for: none that is still being written, nor what is known of those that are done."""
    try:
        return [name for name in os.listdir(layout.deletions) if name.endswith(".json") and name.count(".") == 1]
    except FileNotFoundError:
        return []


def _read(path: Path) -> Deletion:
    told = read_document(path)
    try:
        conditions = tuple(Condition(column, sign, tuple(values)) for column, sign, values in told["conditions"])
        version = None if told.get("version") is None else int(told["version"])
        foreign = str(told.get("engine", "")), str(told.get("operation", ""))
        return Deletion(int(path.stem), str(told["why"]), conditions, version, *foreign)
    except (KeyError, TypeError, ValueError):
        raise DamagedFile(f"{path} is damaged: it does not say what is to be deleted") from None


def pending(layout: Layout) -> list[Deletion]:
    """Those that are not done yet, in order."""
    found = all_deletions(layout)
    done = table_of(layout).last_deletion() if found else 0
    return [one for one in found if one.number > done]


def write_record(
    layout: Layout,
    one: Deletion,
    batch: int,
    told: Sequence[Deleted],
    runs: Mapping[str, Runs],
    keys: EventsSeen,
) -> None:
    """Keep what a deletion is about to take; ``batch``: the newest one that is in the table."""
    stem = layout.deletions / f"{one.number:06d}"
    parts = [_OFFSETS.empty_table(), *(_table_of(topic, of) for topic, of in sorted(runs.items()))]
    rows = pa.concat_tables(parts).unify_dictionaries()
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(f"{stem}.offsets", "wb") as sink, pa.ipc.new_file(sink, _OFFSETS, options=packed) as writer:
        writer.write_table(rows)
    checksum = HashRun.of(keys).write(Path(f"{stem}.keys"))
    sync_written([Path(f"{stem}.offsets"), Path(f"{stem}.keys")])
    entries: list[dict[str, Any]] = [
        {
            "topic": of.topic,
            "source": source,
            "bucket": bucket,
            "taken": counts,
            "uuids": of.uuids.get((source, bucket), {}),
        }
        for of in told
        for (source, bucket), counts in sorted(of.taken.items())
    ]
    rows_taken = sum(counts.total() for of in told for counts in of.taken.values())
    document = {"batch": batch, "rows": rows_taken, "keys": checksum}
    write_document(Path(f"{stem}.done.json"), {**document, "entries": entries})


class Record:
    """The deletions that are done."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.deletions
        found = all_deletions(layout)
        done = table_of(layout).last_deletion() if found else 0
        self.deletions = [one for one in found if one.number <= done]

    def deleted(self, after: int = 0) -> Iterator[tuple[int, Deleted]]:
        """By deletion and topic what went, with the newest batch that was in the table then."""
        for one in self.deletions:
            if one.number > after:
                told = self._told(one)
                topics = dict.fromkeys(str(entry["topic"]) for entry in told["entries"])
                yield from ((int(told["batch"]), _of_topic(one, topic, told["entries"])) for topic in topics)

    def _told(self, one: Deletion) -> dict[str, Any]:
        return read_document(self._folder / f"{one.number:06d}.done.json")

    def rows(self, number: int) -> int:
        """How many rows a deletion took."""
        return sum(int(self._told(one)["rows"]) for one in self.deletions if one.number == number)

    def runs(self) -> dict[str, Runs]:
        """The offsets that went, by topic (or partition of Kafka)."""
        found: dict[str, list[Runs]] = {}
        for one in self.deletions:
            with pa.memory_map(str(self._folder / f"{one.number:06d}.offsets")) as source:
                rows = pa.ipc.open_file(source).read_all()
            for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
                mine = rows.filter(pc.equal(rows["topic"].cast(pa.string()), pa.scalar(topic)))
                pairs = np.stack([mine["begin"].to_numpy(), mine["end"].to_numpy()], axis=1)
                found.setdefault(topic, []).append(pairs)
        return {topic: as_runs(np.concatenate(parts)) for topic, parts in found.items()}

    def keys(self) -> Iterator[EventsSeen]:
        """The keys of late that went."""
        for one in self.deletions:
            try:
                yield HashRun.open(self._folder / f"{one.number:06d}.keys", int(self._told(one)["keys"])).seen()
            except (BadRun, FileNotFoundError) as error:
                raise DamagedFile(str(error)) from None


def _table_of(topic: str, runs: Runs) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(np.zeros(len(runs), np.int32), pa.array([topic]))
    return pa.table([names, pa.array(runs[:, 0]), pa.array(runs[:, 1])], schema=_OFFSETS)


def newest(layout: Layout) -> int:
    """The number of the last deletion that was asked for; 0 for none."""
    return max((int(name[:6]) for name in _asked(layout) if name[:6].isdecimal()), default=0)


def _of_topic(one: Deletion, topic: str, entries: Iterable[Mapping[str, Any]]) -> Deleted:
    mine = [entry for entry in entries if entry["topic"] == topic]
    taken, uuids = (
        {(str(entry["source"]), int(entry["bucket"])): Counts(entry[name]) for entry in mine if entry[name]}
        for name in ("taken", "uuids")
    )
    return Deleted(one.number, one.why, topic, taken, uuids)
