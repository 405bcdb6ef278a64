"""Whether a topic's files are in order, at a glance: no batch is read, and nothing is changed.

In order is a topic in which recovery has nothing to cut but a writer's room, to show, to enter or to remove: its last
segment is as long as what is synced of it and as its index tells, those before it follow each other but for gaps, all
indices are sound, and nothing half done lies about. Damage within a batch is not seen: it is found by its checksum when
the topic is opened or the batch is read, and becomes a gap whose source the index knows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.files.file_system import OS
from penstock.log.store import gaps, index, segment
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.gaps import Gap, uncovered
from penstock.log.store.segment import Files


@dataclass(frozen=True, slots=True)
class Orderly:
    """What a topic in order has: offsets up to ``end``, and ``gaps``, sorted.

    ``last`` is the time of the row before ``end`` in microseconds; 0 where there is none.
    """

    end: int
    last: int
    gaps: Sequence[Gap]


def glance(directory: Path) -> Orderly | None:
    """What there is of a topic; None where it is not in order, or cannot be told. Raises UnknownFormat."""
    try:
        names = os.listdir(directory)
        firsts = segment.first_offsets(names)
        if not firsts or any(_is_left(name, firsts) for name in names):
            return None
        known = _gaps(directory, names)
        return None if known is None else _of_segments(directory, firsts, known)
    except OSError:
        return None


def _is_left(name: str, firsts: Collection[int]) -> bool:
    """Whether a file is what somebody began and did not end."""
    return name.endswith(".tmp") or (segment.is_part(name) and int(name.partition(".")[0]) not in firsts)


def _gaps(directory: Path, names: Collection[str]) -> list[Gap] | None:
    """The gaps; None where the two files of them differ."""
    if gaps.FILE_NAME not in names and gaps.COPY_NAME not in names:
        return []
    path = directory / gaps.FILE_NAME
    same = path.read_bytes() == (directory / gaps.COPY_NAME).read_bytes()
    return gaps.load(path) if same else None


def _of_segments(directory: Path, firsts: Sequence[int], known: Sequence[Gap]) -> Orderly | None:
    end = length = time = 0
    for first in firsts:
        told = _told(Files(directory, first), first == firsts[-1])
        if told is None or end > first or any(uncovered(known, end, first)):
            return None
        end, length, time = told[0], told[1], told[2] or time
    synced = segment.read_synced(OS, Files(directory, firsts[-1]))
    if synced != (length, end) or (known and known[-1].end > end):
        return None
    return Orderly(end, time if end and any(uncovered(known, end - 1, end)) else 0, known)


def _told(files: Files, last: bool) -> tuple[int, int, int] | None:
    """End, length and last time as the index of a segment tells; None where it is no use, or the data differ."""
    data = files.index.read_bytes()
    records = index.read(data, files.mark)
    begin = int(records["position"][0]) if len(records) else PREAMBLE.size
    whole = index.form(data, files.mark) is not None and len(data) == index.HEADER_SIZE + records.nbytes
    if not whole or not index.dense(records, files.first, begin):
        return None
    end, length = index.end_of(records, files.first, begin)
    time = int(records["last"][-1]) if len(records) else 0
    return (end, length, time) if _ends_at(files.data, length, segment.ROOM if last else 0) else None


def _ends_at(path: Path, length: int, room: int) -> bool:
    """Whether a file has so many bytes, and then at most so many zeros."""
    more = os.stat(path).st_size - length
    if not 0 < more <= room:
        return more == 0
    with open(path, "rb") as file:
        file.seek(length)
        return not any(file.read())
