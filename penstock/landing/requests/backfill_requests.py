"""Requests to land offsets out of turn: behind the pipeline's place in a topic, or ahead of it.

A request is a file that never changes. The landing's source gives its offsets under a name of its own
(``events@3``: request 3) beside the topics, so that Spark's checkpoint knows how far it is; once it is there, the
topic's own turn passes over its offsets. So each is landed once, whatever is killed and however often it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.landing.journal import REFILL_MARK
from penstock.landing.offset_runs import OffsetRange, Runs, as_runs, difference
from penstock.landing.table_paths import Layout


@dataclass(frozen=True, slots=True)
class Request:
    """Offsets of a topic, as runs in ascending order.

    ``again``: they were committed before, and are not in the table. ``owed``: those of them that no proof counted.
    """

    number: int
    topic: str
    runs: tuple[OffsetRange, ...]
    again: bool = False
    owed: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What the source calls it."""
        return f"{self.topic}{REFILL_MARK}{self.number}"

    @property
    def rows(self) -> int:
        """How many offsets it has."""
        return sum(end - begin for begin, end in self.runs)

    def part(self, first: int, last: int) -> list[OffsetRange]:
        """Its offsets from the ``first``-th to before the ``last``-th one, as runs."""
        found, passed = [], 0
        for begin, end in self.runs:
            low, high = max(begin, begin + first - passed), min(end, begin + last - passed)
            found += [(low, high)] if low < high else []
            passed += end - begin
        return found


def requests(folder: Path) -> dict[str, Request]:
    """All requests of a folder by name, in order. Raises DamagedFile: Spark's checkpoint counts by them."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return {}
    found = [_read(folder / name) for name in names if name.endswith(".json")]
    return {request.name: request for request in found}


def _read(path: Path) -> Request:
    told = read_document(path)
    try:
        runs = tuple((int(begin), int(end)) for begin, end in told["runs"])
        return Request(int(path.stem), str(told["topic"]), runs, bool(told["again"]), tuple(map(int, told["owed"])))
    except (KeyError, TypeError, ValueError):
        raise DamagedFile(f"{path} is damaged: it says no topic and offsets") from None


def write(
    folder: Path, topic: str, runs: Sequence[OffsetRange] | Runs, *, again: bool = False, owed: Iterable[int] = ()
) -> Request:
    """Keep a new request; it is on the disk when this returns. One process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((request.number for request in requests(folder).values()), default=0)
    told = {"topic": topic, "runs": as_runs(runs).tolist(), "again": again, "owed": list(owed)}
    path = folder / f"{number:06d}.json"
    write_document(path, told)
    return _read(path)


def of_topic(layout: Layout, topic: str, *, again: bool | None = None) -> list[Request]:
    """The requests for a topic, in order; only those ``again`` or not where given."""
    found = requests(layout.refills).values()
    return [one for one in found if one.topic == topic and again in (None, one.again)]


def without(begin: int, end: int, taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """[begin, end) without the runs ``taken`` (any order)."""
    return [(low, high) for low, high in difference(as_runs([(begin, end)]), taken).tolist()]


def own_turn(
    topic: str, first: int, last: int, planned: Iterable[str], known: Mapping[str, Request]
) -> list[OffsetRange]:
    """What of the offsets [first, last) is left for a topic's own turn: without those of the requests that are
    ``planned``, by their names.
    """
    taken = [known[name].runs for name in planned if name in known and known[name].topic == topic]
    return without(first, last, chain.from_iterable(taken))


def progress(end: Mapping[str, int], request: Request) -> int:
    """How many offsets of a request a position of the stream has passed."""
    return end.get(request.name, 0)
