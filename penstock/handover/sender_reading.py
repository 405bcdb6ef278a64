"""Reading of a table of senders: counts and rhythm of each sender, who is silent, and who is new.

Invariant: a row is from one moment. It is copied again if the writer has changed it during the copy.
"""

from __future__ import annotations

import mmap
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.files import memory_order
from penstock.handover.sender_table import (
    BEGAN,
    COLUMNS,
    COUNTS,
    FILE_BYTES,
    FIRST,
    HEARD,
    HOST_OTHERS,
    LAST,
    MAGIC,
    MIN_SILENCE_S,
    NAME_BYTES,
    OTHERS,
    PAUSE,
    RAW_IPV4,
    RAW_IPV6,
    SECOND_US,
    SILENT_PAUSES,
    TEXT,
    Ints,
    Sections,
)
from penstock.process.kernel import plain_address

_MAX_READS = 100
"""Limit: reads of rows that the writer changes at the same time."""
STEADY_PAUSES, MIN_STEADY_S = 10, 300.0
"""A sender is steady once it has sent for this many of its usual pauses, and for this time."""
NEW_FOR_S, LEARNING_S = 3600.0, 3600.0
"""A sender is new for this time, if it first came when the listener had been heard for the second one."""


def are_silent(
    silence: npt.NDArray[np.float64],
    pause: npt.NDArray[np.float64],
    steady: npt.NDArray[np.float64],
    expect_s: float,
) -> npt.NDArray[np.bool_]:
    """Return which senders are silent: for longer than ``expect_s`` if it is not 0, else than their rhythm explains."""
    if expect_s:
        return silence > expect_s
    is_steady = steady >= np.maximum(STEADY_PAUSES * pause, MIN_STEADY_S)
    return (pause > 0) & is_steady & (silence > np.maximum(SILENT_PAUSES * pause, MIN_SILENCE_S))


@dataclass(frozen=True, slots=True)
class Senders:
    """The senders of one listener as of one moment, the others first; one entry per sender in each array.

    ``first`` and ``last`` are microseconds since the epoch, 0 for others that do not exist. ``silence``, ``age`` and
    ``pause`` are seconds of listening time: since the last arrival, since the first, and usually between two.
    ``listened`` is the listening time in which the table has existed.
    """

    file_id: str
    listened: float
    kinds: npt.NDArray[np.uint8]
    raw_names: npt.NDArray[np.uint8]
    first: Ints
    last: Ints
    silence: npt.NDArray[np.float64]
    age: npt.NDArray[np.float64]
    pause: npt.NDArray[np.float64]
    counts: Ints

    def name(self, index: int) -> str:
        """Return the name or address of a sender."""
        raw = self.raw_names[index].tobytes()
        match int(self.kinds[index]):
            case kind if kind == RAW_IPV4:
                return socket.inet_ntoa(raw[:4])
            case kind if kind == RAW_IPV6:
                return plain_address(socket.inet_ntop(socket.AF_INET6, raw[:16]))
            case kind if kind == TEXT:
                text = str(raw.rstrip(b"\0"), "utf-8", "replace")
                return text if text != OTHERS else HOST_OTHERS
        return OTHERS

    @property
    def steady(self) -> npt.NDArray[np.float64]:
        """Seconds of listening time between the first and the last arrival."""
        return self.age - self.silence

    def is_silent(self, expect_s: float = 0.0) -> npt.NDArray[np.bool_]:
        """Return which senders are silent: for longer than ``expect_s``, or than their rhythm explains."""
        return self._is_sender() & are_silent(self.silence, self.pause, self.steady, expect_s)

    def is_new(self) -> npt.NDArray[np.bool_]:
        """Return which senders first came within the last hour, after the listener had been heard for an hour."""
        return self._is_sender() & (self.age < NEW_FOR_S) & (self.listened - self.age > LEARNING_S)

    def _is_sender(self) -> npt.NDArray[np.bool_]:
        return np.arange(len(self.kinds)) > 0


def _copy_rows(
    sections: Sections, rows: Ints
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return kinds, names and valid values of rows. Rows that the writer changes during the copy are copied again."""
    kinds, names = np.zeros(len(rows), np.uint8), np.zeros((len(rows), NAME_BYTES), np.uint8)
    values = np.zeros((len(rows), COLUMNS), np.int64)
    pending = np.arange(len(rows))
    for _ in range(_MAX_READS):
        copied = rows[pending]
        ids, marks, published = sections.ids[copied], sections.marks[copied], int(sections.header["published"][0])
        is_newer = marks <= published
        # Order: marks before the halves, and the marks again after them.
        memory_order.barrier()
        kinds[pending], names[pending] = sections.kinds[copied], sections.names[copied]
        values[pending] = np.where(is_newer[:, None], sections.halves[1, copied], sections.halves[0, copied])
        # A row whose sender was summed is free, and the writer may be filling it for another one.
        values[pending[(ids == 0) & (copied > 0)]] = 0
        memory_order.barrier()
        # Invariant: a newer half changes after its mark, and a stable half after the publication of the newer one.
        is_whole = (sections.marks[copied] == marks) & (sections.ids[copied] == ids)
        is_whole &= is_newer | (int(sections.header["published"][0]) == published)
        pending = pending[~is_whole]
        if not len(pending):
            break
    return kinds, names, values


def read_senders(path: Path) -> Senders | None:
    """Return the senders in a listener's table; None if there is no table."""
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), FILE_BYTES, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # another size: being created, or of another version
        return None
    sections = Sections(memory)
    if sections.header["magic"][0] != MAGIC:
        return None
    # Order: the magic before all else.
    memory_order.barrier()
    header = sections.header.copy()[0]
    rows = np.concatenate([[0], np.flatnonzero(sections.ids[1:]) + 1])
    kinds, names, values = _copy_rows(sections, rows)
    is_used = (values[:, FIRST] > 0) | (rows == 0)
    kinds, names, values = kinds[is_used], names[is_used], values[is_used]
    listened = int(header["listened"])
    return Senders(
        f"{int(header['file_id']):x}",
        listened / SECOND_US,
        kinds,
        names,
        values[:, FIRST],
        values[:, LAST],
        np.maximum(listened - values[:, HEARD], 0) / SECOND_US,
        np.maximum(listened - values[:, BEGAN], 0) / SECOND_US,
        values[:, PAUSE] / SECOND_US,
        values[:, COUNTS:],
    )
