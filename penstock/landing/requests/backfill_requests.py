"""Requests to land offsets out of turn: behind the pipeline's position in a topic, or ahead of it.

A request is an immutable file. The landing's source offers its offsets under a name of its own (``events@3``: request
3) next to the topics, so that Spark's checkpoint records its progress. Invariant: once a request is planned, the
topic's own turn skips its offsets, so each offset lands once, after any crash and any number of repeats.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.journal import BACKFILL_MARK
from penstock.landing.offset_runs import OffsetRange, Runs, as_runs, difference
from penstock.landing.table_paths import Layout


@dataclass(frozen=True, slots=True)
class Request:
    """Ascending runs of a topic's offsets.

    ``lost``: the offsets were committed before, and their rows are missing from the table. ``owed`` are the offsets
    among them without a counting proof.
    """

    number: int
    topic: str
    runs: tuple[OffsetRange, ...]
    lost: bool = False
    owed: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the request in the source."""
        return f"{self.topic}{BACKFILL_MARK}{self.number}"

    @property
    def rows(self) -> int:
        """Return the number of offsets."""
        return sum(end - begin for begin, end in self.runs)

    def part(self, first: int, last: int) -> list[OffsetRange]:
        """Return the ``first``-th to before the ``last``-th offset, as runs."""
        runs, skipped = [], 0
        for begin, end in self.runs:
            low, high = max(begin, begin + first - skipped), min(end, begin + last - skipped)
            runs += [(low, high)] if low < high else []
            skipped += end - begin
        return runs


def load_requests(folder: Path) -> dict[str, Request]:
    """Load all requests of a folder by name, in order. Raises DamagedFile."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return {}
    loaded = [_read(folder / name) for name in names if name.endswith(".json")]
    # No damaged file is skipped: Spark's checkpoint counts offsets by position in these files.
    return {request.name: request for request in loaded}


def _read(path: Path) -> Request:
    document = read_document(path)
    try:
        runs = tuple((int(begin), int(end)) for begin, end in document["runs"])
        return Request(
            int(path.stem), str(document["topic"]), runs, bool(document["again"]), tuple(map(int, document["owed"]))
        )
    except (KeyError, TypeError, ValueError):
        raise DamagedFile(f"{path} is damaged: topic or offsets are missing") from None


def write_request(
    folder: Path, topic: str, runs: Sequence[OffsetRange] | Runs, *, lost: bool = False, owed: Iterable[int] = ()
) -> Request:
    """Write a new request and return it. Synced. One process at a time: the next number is free only then."""
    folder.mkdir(parents=True, exist_ok=True)
    # Limit: one process at a time. Two at once would take the same number, and the second would overwrite the first.
    number = 1 + max((request.number for request in load_requests(folder).values()), default=0)
    document = {"topic": topic, "runs": as_runs(runs).tolist(), "again": lost, "owed": list(owed)}
    path = folder / f"{number:06d}.json"
    write_document(path, document)
    return _read(path)


def requests_for_topic(layout: Layout, topic: str, *, lost: bool | None = None) -> list[Request]:
    """Return the requests of a topic, in order, optionally with this value of ``lost`` only."""
    loaded = load_requests(layout.backfills).values()
    return [request for request in loaded if request.topic == topic and lost in (None, request.lost)]


def subtract_runs(begin: int, end: int, excluded: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return [begin, end) without the runs ``excluded`` (in any order)."""
    return [(low, high) for low, high in difference(as_runs([(begin, end)]), excluded).tolist()]


def offsets_in_turn(
    topic: str, first: int, last: int, planned: Iterable[str], requests_by_name: Mapping[str, Request]
) -> list[OffsetRange]:
    """Return the offsets of [first, last) that the topic's own turn lands: without the ``planned`` requests."""
    excluded = [
        requests_by_name[name].runs
        for name in planned
        if name in requests_by_name and requests_by_name[name].topic == topic
    ]
    return subtract_runs(first, last, chain.from_iterable(excluded))


def passed_offsets(end: Mapping[str, int], request: Request) -> int:
    """Return how many offsets of a request a position of the stream has passed."""
    return end.get(request.name, 0)
