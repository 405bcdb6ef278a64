"""A topic of Penstock as the source of an audit: from its folder, or from the daemon over Arrow Flight.

A topic of Penstock has no partitions: the audit sees one, with number 0.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.audit.source import (
    CLOCK_SKEW_S,
    RECORDS,
    AuditSource,
    Expected,
    Period,
    SourceUnavailable,
    times_in_the_future,
)
from penstock.client import ClientError
from penstock.errors import PenstockError
from penstock.kafka.absent_offsets import Absence, ClassifiedRange
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, difference, intersection, is_inside, runs_of
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import Range, TopicStore, TopicView
from penstock.log.store.gaps import CORRUPT, Gap
from penstock.log.store.segment_files import SUFFIX
from penstock.proof.reread.flight import FlightRecords
from penstock.proof.reread.messages import LogRecords, RereadSource
from penstock.records import SCHEMA

_COLUMNS = pa.schema([SCHEMA.field(name) for name in ("offset", "timestamp", "key", "payload", "annotations")])


def is_topic_folder(path: Path) -> bool:
    """Report whether a folder holds the segments of a topic."""
    return path.is_dir() and any(path.glob(f"*{SUFFIX}"))


class LogSource(AuditSource):
    """A topic in a store of topics; ``rows`` reads its messages and gaps again."""

    def __init__(self, topic: str, address: str, store: TopicStore, rows: RereadSource) -> None:
        self.topic, self.address = topic, address
        self._store, self._rows = store, rows
        self._view()  # raises if the topic does not exist

    @classmethod
    def from_folder(cls, folder: Path) -> LogSource:
        """Return the topic of a folder. Raises SourceUnavailable."""
        return cls(folder.name, str(folder), FolderStore(folder.parent), LogRecords(folder.parent))

    @classmethod
    def from_daemon(cls, topic: str, connection: DaemonConnection) -> LogSource:
        """Return a topic of a daemon. Raises SourceUnavailable."""
        scheme = "grpc+tls" if connection.tls else "grpc"
        address = f"{scheme}://{connection.address}/{topic}"
        return cls(topic, address, FlightStore(connection), FlightRecords(connection))

    def _view(self) -> TopicView:
        with self._translate_errors():
            view = self._store.views([self.topic]).get(self.topic)
        if view is None:
            raise SourceUnavailable(f"{self.address}: there is no such topic")
        return view

    def _gaps(self) -> list[Gap]:
        with self._translate_errors():
            return self._rows.gaps(self.topic)

    def partitions(self) -> list[int]:
        """Return the only partition."""
        return [0]

    def expected(self, partition: int, period: Period) -> Expected:
        """Return the topic's offsets."""
        if period.group:
            raise SourceUnavailable(f"{self.address}: only Kafka has consumer groups; leave out --group")
        view = self._view()
        start, end = view.start, view.end
        # Without a grace period no clock matters.
        due = self._due(view, time.time() - period.grace_s) if period.grace_s else end
        if period.until_s is not None:
            due = min(due, self._due(view, period.until_s))
        begin = start if period.since_s is None else max(start, self._at_time(view, period.since_s))
        return Expected(start, end, begin, max(begin, due))

    def _due(self, view: TopicView, moment_s: float) -> int:
        """Return the first offset whose message is not older than ``moment_s``; the end if there is none."""
        due, newest_s = min(self._at_time(view, moment_s), view.end), time.time() + CLOCK_SKEW_S
        if moment_s <= newest_s and due < view.end:
            # Behind messages of a clock that was ahead, others of the right time may follow, which are due.
            batches = self.read(0, as_runs([(due, view.end)]))
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is not None and first["timestamp"][0].value > newest_s * 1e6:
                raise times_in_the_future(self.topic, due)
        return due

    def _at_time(self, view: TopicView, moment_s: float) -> int:
        with self._translate_errors():
            return view.at_timestamp(max(0, int(moment_s * 1_000_000)))

    def end(self, partition: int) -> int:
        """Return the end of the synced offsets now."""
        return self._view().end

    def offsets_at(self, partition: int, moments_s: Sequence[float], end: int) -> list[int]:
        """Return for each time the first offset whose message is not older; ``end`` if there is none."""
        view = self._view()
        return [min(end, self._at_time(view, moment_s)) for moment_s in moments_s]

    def classify(self, partition: int, absent: Runs) -> Sequence[ClassifiedRange]:
        """Return which of these offsets have expired, and which have a message that can be read."""
        classified = []
        expired = [(0, self._view().start)]
        expired += [(gap.begin, gap.end) for gap in self._gaps() if gap.reason != CORRUPT]
        stored = difference(absent, expired)
        # Invariant: an offset counts as present only if its message was read; a damaged batch is UNKNOWN.
        offsets = [batch.column("offset").to_numpy() for batch in self.read(partition, stored)]
        present = runs_of(np.concatenate(offsets)) if offsets else NO_RUNS
        for ranges, absence in (
            (intersection(absent, as_runs(expired)), Absence.EXPIRED),
            (present, Absence.PRESENT),
            (difference(stored, present), Absence.UNKNOWN),
        ):
            classified += [ClassifiedRange(begin, end, absence) for begin, end in ranges.tolist()]
        return classified

    def read(self, partition: int, ranges: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the messages in ``ranges``; annotations are headers."""
        if not len(ranges):
            return
        with self._translate_errors():
            for batch in self._store.read(Range(self.topic, int(ranges[0, 0]), int(ranges[-1, 1])), _COLUMNS):
                is_wanted = is_inside(batch.column("offset").to_numpy(), ranges)
                rows = batch if is_wanted.all() else batch.filter(pa.array(is_wanted))
                columns = [column.cast(field.type) for column, field in zip(rows.columns, RECORDS, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=RECORDS)

    def reread(self) -> RereadSource:
        """Return the reader that reads messages again."""
        return self._rows

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, PenstockError, OSError) as error:
            if isinstance(error, SourceUnavailable):
                raise
            raise SourceUnavailable(f"{self.address}: {error}") from None
