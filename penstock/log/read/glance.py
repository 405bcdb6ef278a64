"""A quick check of whether a topic's files are intact. It reads no batch and changes nothing.

A topic is intact if recovery would change nothing but preallocated space: the last segment is as long as its synced
length and its index say, the segments before it are contiguous but for gaps, all indices are sound, and no temporary
file is left. Damage within a batch is not detected here: its checksum detects it when the topic is opened or the batch
is read, and it becomes a gap whose source the index knows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.files.file_system import OS
from penstock.log.store import gaps, index, segment, segment_files
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.gaps import Gap, uncovered
from penstock.log.store.segment_files import SegmentFiles


@dataclass(frozen=True, slots=True)
class IntactTopic:
    """The content of an intact topic: offsets up to ``end``, and its sorted ``gaps``.

    ``last`` is the time of the row before ``end`` in microseconds; 0 if there is none.
    """

    end: int
    last: int
    gaps: Sequence[Gap]


def glance(directory: Path) -> IntactTopic | None:
    """Return the content of a topic; None if it is not intact or cannot be read. Raises UnknownFormat."""
    try:
        names = os.listdir(directory)
        firsts = segment_files.first_offsets(names)
        if not firsts or any(_is_leftover(name, firsts) for name in names):
            return None
        gaps_of_topic = _load_gaps(directory, names)
        return None if gaps_of_topic is None else _check_segments(directory, firsts, gaps_of_topic)
    except OSError:
        return None


def _is_leftover(name: str, firsts: Collection[int]) -> bool:
    """Report whether a file belongs to an operation that did not complete."""
    return name.endswith(".tmp") or (
        segment_files.is_companion_file(name) and int(name.partition(".")[0]) not in firsts
    )


def _load_gaps(directory: Path, names: Collection[str]) -> list[Gap] | None:
    """Load the gaps; None if the file and its copy differ."""
    if gaps.FILE_NAME not in names and gaps.COPY_NAME not in names:
        return []
    path = directory / gaps.FILE_NAME
    # The gaps are written to both files in turn: a difference is an update that a crash interrupted.
    same = path.read_bytes() == (directory / gaps.COPY_NAME).read_bytes()
    return gaps.load(path) if same else None


def _check_segments(directory: Path, firsts: Sequence[int], gaps_of_topic: Sequence[Gap]) -> IntactTopic | None:
    end = length = time = 0
    for first in firsts:
        summary = _summarize_index(SegmentFiles(directory, first), first == firsts[-1])
        if summary is None or end > first or any(uncovered(gaps_of_topic, end, first)):
            return None
        end, length, time = summary[0], summary[1], summary[2] or time
    # Invariant: data behind the synced length is not published, and the synced length never exceeds the data.
    synced = segment_files.read_synced(OS, SegmentFiles(directory, firsts[-1]))
    if synced != (length, end) or (gaps_of_topic and gaps_of_topic[-1].end > end):
        return None
    return IntactTopic(end, time if end and any(uncovered(gaps_of_topic, end - 1, end)) else 0, gaps_of_topic)


def _summarize_index(files: SegmentFiles, last: bool) -> tuple[int, int, int] | None:
    """Return end, length and last time from a segment's index; None if it is unusable or the data differ."""
    data = files.index.read_bytes()
    records = index.read(data, files.fingerprint)
    begin = int(records["position"][0]) if len(records) else PREAMBLE.size
    complete = index.form(data, files.fingerprint) is not None and len(data) == index.HEADER_SIZE + records.nbytes
    if not complete or not index.dense(records, files.first, begin):
        return None
    end, length = index.end_of(records, files.first, begin)
    time = int(records["last"][-1]) if len(records) else 0
    return (end, length, time) if _ends_at(files.data, length, segment.MAX_PREALLOCATED_BYTES if last else 0) else None


def _ends_at(path: Path, length: int, max_zeros: int) -> bool:
    """Report whether a file has ``length`` bytes, followed only by at most ``max_zeros`` zeros."""
    surplus = os.stat(path).st_size - length
    if not 0 < surplus <= max_zeros:
        return surplus == 0
    with open(path, "rb") as file:
        file.seek(length)
        return not any(file.read())
