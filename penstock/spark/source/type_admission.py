"""Which event types are let in, decided while reading: every type becomes a folder of the table.

Without a limit one sender could make a million folders in one micro-batch, and a limit that holds inside a
batch needs a decision that all tasks share. A Python function in the query would cost more than all the
parsing, so the reader decides: it has the rows as Arrow arrays anyway, and finds the types by RE2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.landing.admitted_types import TypeRegistry
from penstock.landing.backfill.requests import Request, inside, requests, without
from penstock.landing.event_rules import is_safe_type
from penstock.landing.journal import REFILL_MARK
from penstock.landing.topics.topic_store import Range
from penstock.spark.source.data_source import PenstockSource, StreamReader, _ordered
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.slices import Slice, plan

_STRING = r'"(?:[^"\\]|\\.)*"'
_TYPE = r'"type"\s*:\s*"(?P<type>[^"\\]*)"'
FIRST = r"^\{\s*" + _TYPE
"""The type as the first field, as nearly everybody writes it: 0.3 us a row."""
AFTER_SCALARS = r"^\{\s*(?:" + _STRING + r"\s*:\s*(?:" + _STRING + r'|[^\s"{}\[\],]+)\s*,\s*)*?' + _TYPE
"""The type after other fields that are no objects and no lists: 4 us a row. What is left goes to the JSON parser."""

CLOCK_TOLERANCE = 5.0
"""Seconds the clock may go back. The shortest duplicate window has to be longer."""


class AdmittingSource(PenstockSource):
    """The source of the landing: all columns and ``admitted``, the event's type where it is let in, else null.

    Options besides the usual ones: ``typesFolder`` and ``maxTypes``, those of the TypeRegistry;
    ``landedBefore``: the latest time of landing so far, in milliseconds; ``holdFile``: nothing new is taken
    while there is a file of that name; ``refillsFolder``: requests to land offsets out of turn (the column ``refill``
    has the number of the request for what was committed before); ``onlyRefills``: nothing but these.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._folder = Path(given.pop("typesfolder"))
        self._limit = int(given.pop("maxtypes"))
        self._landed_before = int(given.pop("landedbefore", "0"))
        self._hold = Path(given.pop("holdfile"))
        self._refills = Path(given.pop("refillsfolder")), given.pop("onlyrefills", "false") == "true"
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "penstock_landing"

    def schema(self) -> str:
        return f"{super().schema()}, refill bigint, admitted string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        registry = (self._folder, self._limit)
        return AdmittingReader(self._options, schema, registry, self._landed_before / 1000, self._hold, self._refills)


def register_landing(spark: SparkSession) -> None:
    """Make ``format("penstock_landing")`` known to a session."""
    spark.dataSource.register(AdmittingSource)


class AdmittingReader(StreamReader):
    """A StreamReader that adds ``admitted``, and that waits while it is held or the clock has gone back.

    Rows that land long before rows that landed already are late to Spark, which drops them.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        registry: tuple[Path, int],
        landed_before: float,
        hold: Path,
        refills: tuple[Path, bool],
    ) -> None:
        super().__init__(options, StructType(schema.fields[:-2]))
        self._registry = registry
        self._latest = landed_before
        self._hold = hold
        self._refills, self._only_refills = refills

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """As the stream's; requests first, so that a topic passes over nothing that has not landed."""
        now = time.time()
        if now < self._latest - CLOCK_TOLERANCE or self._hold.exists():
            return start
        self._latest = max(self._latest, now)
        found = super().latestOffset(start, limit)
        asked = {name: end for name, end in found.items() if REFILL_MARK in name}
        if any(end > start.get(name, 0) for name, end in asked.items()):
            return self._note(_ordered({**start, **asked}))
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        """A topic's own turn leaves out what requests have taken that this micro-batch, as it was planned, knows of."""
        known = requests(self._refills)
        ranges = []
        for name, last in end.items():
            first = start.get(name, 0)
            if name in known:
                runs = known[name].part(first, last)
            else:
                mine = (known[other].runs for other in end if other in known and known[other].topic == name)
                runs = without(first, last, chain.from_iterable(mine))
            ranges += [Range(name.partition(REFILL_MARK)[0], *run) for run in runs]
        return plan(ranges, self._options.partitions)

    def _ends(self) -> dict[str, int]:
        asked = {name: request.rows for name, request in requests(self._refills).items()}
        return asked if self._only_refills else {**super()._ends(), **asked}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        registry = TypeRegistry(*self._registry)
        again = [request for request in requests(self._refills).values() if request.again]
        for batch in super().read(partition):
            batch = batch.append_column("refill", refills(batch, again))
            is_syslog = batch.num_rows > 0 and batch.column("codec")[0].as_py() == "syslog"
            types: pa.Array[Any] = pa.nulls(batch.num_rows, pa.string())
            if not is_syslog:
                types = admitted(batch.column("payload"), registry)
            yield batch.append_column("admitted", types)


def refills(batch: pa.RecordBatch, again: Sequence[Request]) -> pa.Array[Any]:
    """For each row the number of the last request that has it land again; else null."""
    numbers = np.zeros(batch.num_rows, np.int64)
    if batch.num_rows and again:
        topics, offsets = batch.column("topic"), batch.column("offset").to_numpy()
        for request in again:
            mine = pc.equal(topics, pa.scalar(request.topic)).to_numpy(zero_copy_only=False)
            numbers[mine & inside(offsets, request.runs)] = request.number
    return pa.array(numbers, mask=numbers == 0)


def admitted(payloads: pa.Array[Any], registry: TypeRegistry) -> pa.Array[Any]:
    """For each payload its event type, where it has one that is let in; else null."""
    encoded = top_types(payloads).dictionary_encode()
    names = [_decoded(name) for name in encoded.dictionary.to_pylist()]  # type: ignore[arg-type]  # has no nulls
    allowed = registry.admit(name for name in names if name is not None)
    kept = pa.array([name if name in allowed else None for name in names], pa.string())
    return kept.take(encoded.indices)


def _decoded(name: bytes) -> str | None:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    return text if is_safe_type(text) else None


def top_types(payloads: pa.Array[Any]) -> pa.Array[Any]:
    """The ``type`` of each payload that is a JSON object (binary), else null.

    Exact for JSON without duplicate keys; where the payload is no JSON the answer means nothing.
    """
    types: pa.Array[Any] = pc.struct_field(pc.extract_regex(payloads, FIRST), "type")
    types = pc.if_else(pc.is_valid(types), types, None)
    for find in (_after_scalars, _parsed):
        opened = pc.starts_with(payloads, "{").fill_null(False)
        left = pc.and_(opened, pc.is_null(types))  # type: ignore[arg-type]  # booleans, by another name
        if not pc.any(left).as_py():
            break
        types = pc.replace_with_mask(types, left, find(payloads.filter(left)))
    return types


def _after_scalars(payloads: pa.Array[Any]) -> pa.Array[Any]:
    types: pa.Array[Any] = pc.struct_field(pc.extract_regex(payloads, AFTER_SCALARS), "type")
    return types


def _parsed(payloads: pa.Array[Any]) -> pa.Array[Any]:
    found = [_type_of(payload) for payload in payloads.to_pylist()]  # type: ignore[arg-type]  # the nulls are filtered out
    return pa.array(found, pa.binary())


def _type_of(payload: bytes) -> bytes | None:
    try:
        found = json.loads(payload.decode()).get("type")
        return found.encode() if isinstance(found, str) else None
    except (ValueError, RecursionError):
        return None
