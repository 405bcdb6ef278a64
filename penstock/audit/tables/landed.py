"""The table ``landed`` of Penstock. Some records have no row of their own there, and are still accounted for.

Such a record is an event whose uuid landed at another offset (a duplicate), a chunk of a large message, or a row that
Penstock itself deleted, by retention or on request. Each is shown from the table and Kafka alone, without the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.audit.columns import OffsetColumns
from penstock.audit.source import AuditSource
from penstock.audit.tables.delta import DeltaTable, ListedFile
from penstock.audit.tables.history import VersionedFile
from penstock.audit.tables.table import Missing, OffsetRows, Reasons, remove_offsets, translate_errors
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, count_offsets, offsets_of, runs_of
from penstock.landing.table.table_file import TableFile, open_rows

COLUMNS = frozenset({"topic", "partition", "offset", "kind", "uuid", "payload"})
"""Columns that distinguish ``landed`` from tables of one type."""
MAX_REREAD = 1_000_000
"""Limit: records of a partition that are read again; further ones stay missing."""


class LandedTable(DeltaTable):
    """A version of the table."""

    kind = "Delta, landed by Penstock"

    def rows_of(self, file: VersionedFile, columns: OffsetColumns, topic: str) -> Iterator[OffsetRows]:
        """Yield the offsets of a file's rows; topics of Penstock's own log have one partition, which is null."""
        for rows in super().rows_of(file, columns, topic):
            partition = None if rows.partition is None else np.maximum(rows.partition, 0)
            yield rows._replace(partition=partition)

    def explain(self, source: AuditSource, columns: OffsetColumns, missing: Missing) -> Reasons:
        """Return the missing offsets that are deleted rows, duplicates or chunks of large messages."""
        reasons: defaultdict[int, dict[str, Runs]] = defaultdict(dict)
        landed_files = [listed.file for listed in self._files]
        for version, lost in self.lost_rows(columns, source.topic, missing):
            if self._reader.foreign_commit(version.number) is not None:
                continue
            # A duplicate of a deleted row is still a duplicate.
            landed_files += [cast("ListedFile", file).file for file in version.before]
            for partition, runs in lost.items():
                earlier = reasons[partition].get("deleted", runs)
                reasons[partition]["deleted"] = as_runs(np.concatenate([earlier, runs]))
        remaining = remove_offsets(missing, {number: named["deleted"] for number, named in reasons.items()})
        uuids: dict[int, dict[int, str]] = {}
        for partition, runs in remaining.items():
            uuids[partition], chunks = _read_again(source, partition, runs)
            if len(chunks):
                reasons[partition]["chunk"] = chunks
        landed = self._landed_uuids(landed_files, {uuid for named in uuids.values() for uuid in named.values()})
        for partition, named in uuids.items():
            duplicates = sorted(offset for offset, uuid in named.items() if uuid in landed)
            if duplicates:
                reasons[partition]["duplicate"] = runs_of(np.array(duplicates, np.int64))
        return reasons

    def _landed_uuids(self, files: list[TableFile], wanted: set[str]) -> set[str]:
        """Return the uuids among ``wanted`` that a row of the files has."""
        landed: set[str] = set()
        candidates = pa.array(sorted(wanted), pa.string())
        for file in {file.identity: file for file in files}.values() if wanted else ():
            with translate_errors(file), open_rows(self._folder, file) as reader:
                if "uuid" in reader.columns:
                    uuids: Any = reader.read(["uuid"])["uuid"]
                    landed.update(uuids.filter(pc.is_in(uuids, candidates)).to_pylist())
        return landed


def _read_again(source: AuditSource, partition: int, runs: Runs) -> tuple[dict[int, str], Runs]:
    """Return the uuids of events at the offsets, and the offsets of chunks of large messages."""
    if count_offsets(runs) > MAX_REREAD:
        runs = runs_of(offsets_of(runs)[:MAX_REREAD])
    records = source.reread()
    if records is None:
        return {}, NO_RUNS
    reread = records.read_again(source.partition_name(partition), runs)
    uuids = {suspect.offset: suspect.event.uuid for suspect in reread.suspects if suspect.event is not None}
    return uuids, runs_of(np.array(sorted(reread.segments), np.int64))
