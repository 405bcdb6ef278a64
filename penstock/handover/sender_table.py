"""The senders of one listener: counts, first and last arrival and usual pause of each, in a mapped file.

Invariant: the counts of a round are valid exactly if the frame of the round is in the log buffer, so a kill at any
moment neither loses nor doubles them. Each row has two halves, and the position at which the round's frame begins at
the earliest: the newer half counts once a frame at that position or later exists.

The receiver writes (``SenderTable``), the ledger reads (``read_senders``). Pauses are measured in *listening time*: it
does not advance while no receiver runs, so an outage of the receiver makes no sender silent.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.counts import Name
from penstock.files import memory_order

Ints = npt.NDArray[np.int64]
Identities = npt.NDArray[np.unsignedinteger[Any]]

MAX_SENDERS = 10_000
"""Limit: senders with a row of their own; the smallest beyond it are summed as ``others``."""
SPARE_ROWS = 2_048
"""Rows for new senders until the smallest are summed, once for about a thousand of them."""
ROWS = 1 + MAX_SENDERS + SPARE_ROWS
"""The first row has the others."""
LOSS_NAMES = ("hole", "incomplete", "bad_checksum", "refused", "invalid", "overlong")
"""Losses that are attributed to a sender: the first parts of the counts' names."""
COUNT_NAMES = (str(Name.ACCEPTED), *LOSS_NAMES)
FIRST, LAST, BEGAN, HEARD, PAUSE, COUNTS = range(6)
"""Columns: first and last arrival (microseconds since the epoch), the same in listening time, usual pause, counts."""
COLUMNS = COUNTS + len(COUNT_NAMES)
ACCEPTED, HOLE, INCOMPLETE, BAD_CHECKSUM, REFUSED, INVALID, OVERLONG = range(len(COUNT_NAMES))
"""Columns of ``Arrivals.counts``."""
FEW_SENDERS = 200
"""Number of senders up to which adding all columns takes less time than looking whether one is enough."""
_ROW = np.dtype(f"V{8 * COLUMNS}")
NAME_BYTES = 64
RAW_IPV4, RAW_IPV6, TEXT = 4, 6, 1
OTHERS = "others"
HOST_OTHERS = "host others"
"""Shown name of a sender that calls itself like the sum of the others."""

MAGIC = 0x32444E53_4B545350  # "PSTKSND2"
_UNPUBLISHED = np.iinfo(np.int64).max
_LAST_IDENTITY = np.iinfo(np.uint64).max
_REPLACED_IDENTITIES = ((0, 0x9E3779B97F4A7C15), (_LAST_IDENTITY, 0xC2B2AE3D27D4EB4F))
"""Identities that mark free rows and the end of the index, and what such senders (0.0.0.0) have instead."""
_HEADER = np.dtype(
    [("magic", "<u8"), ("file_id", "<u8"), ("published", "<i8"), ("listened", "<i8"), ("hash_key", "<u8")]
)
_PAGE = 4096
_SECTIONS = (("ids", 8), ("kinds", 1), ("names", NAME_BYTES), ("marks", 8), ("halves", 2 * COLUMNS * 8))
SECOND_US = 1_000_000
MIN_PAUSE_US = SECOND_US
"""Shorter pauses are parts of a burst and say nothing about a sender's rhythm."""
PAUSE_DECAY_US = 6 * 3600 * SECOND_US
"""Listening time in which a pause that does not come again is forgotten to 1/e."""
SILENT_PAUSES, MIN_SILENCE_S = 10, 60.0
"""A sender is silent after this many of its usual pauses, and not before this time."""


class Arrivals(NamedTuple):
    """Counts of one frame by sender. ``identities`` are distinct; ``counts`` has a row for each (COUNT_NAMES).

    The first ``heard_count`` senders sent something in this round; of the others earlier messages are lost.
    ``describe`` returns the kinds and names of some of the senders that were heard; it is asked for new ones only.
    """

    identities: npt.NDArray[np.uint64]
    counts: Ints
    heard_count: int
    describe: Callable[[npt.NDArray[np.uint64]], tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]

    def __bool__(self) -> bool:
        return len(self.identities) > 0


def sender_counts(number: int) -> Ints:
    """Return zeros for ``number`` senders. Each column is contiguous, because most rounds write one of them only."""
    return np.zeros((len(COUNT_NAMES), number), np.int64).T


def distinct_senders(identities: Identities) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return the distinct identities in ascending order, and how often each occurs.

    Fast path of ``np.unique``, which takes three times as long for a round of datagrams.
    """
    ordered = identities.copy()
    ordered.sort()
    if not len(ordered) or ordered[0] == ordered[-1]:
        return ordered[:1].astype(np.uint64), np.array([len(ordered)][: len(ordered)], np.int64)
    ends = np.empty(len(ordered), np.bool_)
    ends[-1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=ends[:-1])
    (last,) = ends.nonzero()
    amounts = last.copy()
    amounts[0] += 1
    amounts[1:] -= last[:-1]
    return ordered[last].astype(np.uint64), amounts


def random_key() -> int:
    """Return a key of identities, which a sender must not know: it could choose names and addresses of one identity."""
    return int.from_bytes(os.urandom(8), "little")


def _stored_name(text: str) -> bytes:
    """Return a name as the table has it: cut to NAME_BYTES at a character, and without the padding's bytes."""
    cut = text.encode()[:NAME_BYTES].decode(errors="ignore")
    return cut.rstrip("\0").encode()


@lru_cache(maxsize=1 << 14)
def text_identity(text: str, key: int = 0) -> int:
    """Return the identity of a sender with a name: an address of a connection, a user, a host."""
    digest = hashlib.blake2b(_stored_name(text), digest_size=8, key=key.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def named_arrivals(counts_by_name: Mapping[str, Ints], key: int = 0) -> Arrivals:
    """Return the counts (one row of COUNT_NAMES each) of senders with names. ``key`` is the one of their table."""
    names: dict[int, str] = {}
    counts_of: dict[int, Ints] = {}
    for name, amounts in counts_by_name.items():
        identity = text_identity(name, key)
        names.setdefault(identity, name)
        # Long names may begin alike, and any two may have the same hash.
        counts_of[identity] = counts_of[identity] + amounts if identity in counts_of else amounts

    def describe(identities: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        return text_names([names[identity] for identity in identities.tolist()])

    counts = np.array(list(counts_of.values()), np.int64).reshape(len(names), len(COUNT_NAMES))
    return Arrivals(np.array(list(names), np.uint64), counts, len(names), describe)


def add_counts(counts: Ints, column: int, distinct: npt.NDArray[np.uint64], identities: Identities) -> None:
    """Add one for each of ``identities``, all of which are in ``distinct`` (ascending), to a column of ``counts``."""
    senders, amounts = distinct_senders(identities)
    counts[np.searchsorted(distinct, senders), column] += amounts


def with_losses(arrivals: Arrivals, losses: Mapping[tuple[str, int], int]) -> Arrivals:
    """Return ``arrivals``, whose senders are in ascending order, with losses by name and identity."""
    lost_of = np.array([identity for _, identity in losses], np.uint64)
    extra_identities = np.setdiff1d(lost_of, arrivals.identities)
    counts = np.concatenate([arrivals.counts, sender_counts(len(extra_identities))])
    identities = np.concatenate([arrivals.identities, extra_identities])
    order = np.argsort(identities)
    rows = order[np.searchsorted(identities, lost_of, sorter=order)]
    columns = [COUNT_NAMES.index(name) for name, _ in losses]
    np.add.at(counts, (rows, np.array(columns)), list(losses.values()))
    return Arrivals(identities, counts, arrivals.heard_count, arrivals.describe)


NO_ARRIVALS = named_arrivals({})


def text_names(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return kinds and names of senders with names, cut to NAME_BYTES."""
    names = np.array([_stored_name(text) for text in texts], f"S{NAME_BYTES}")
    return np.full(len(texts), TEXT, np.uint8), names.view(np.uint8).reshape(len(texts), NAME_BYTES)


def address_names(senders: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return kinds and names of senders from their addresses as the kernel writes them (``ingest.slots.SENDER``)."""
    names = np.zeros((len(senders), NAME_BYTES), np.uint8)
    is_ipv6 = senders["family"] == socket.AF_INET6
    # The field is big-endian, so its bytes are in the order of the address.
    names[:, :4] = np.ascontiguousarray(senders["ipv4"]).view(np.uint8).reshape(-1, 4)
    names[is_ipv6, :16] = senders["ipv6"][is_ipv6]
    return np.where(is_ipv6, RAW_IPV6, RAW_IPV4).astype(np.uint8), names


class Sections:
    """The arrays of a table over its memory."""

    def __init__(self, memory: Any) -> None:
        self.header = np.frombuffer(memory, _HEADER, 1)
        offset, arrays = _PAGE, {}
        for name, width in _SECTIONS:
            arrays[name] = np.frombuffer(memory, np.uint8, ROWS * width, offset)
            offset += -(-ROWS * width // _PAGE) * _PAGE
        self.ids = arrays["ids"].view(np.uint64)
        self.kinds = arrays["kinds"]
        self.names = arrays["names"].reshape(ROWS, NAME_BYTES)
        self.marks = arrays["marks"].view(np.int64)
        self.halves = arrays["halves"].view(np.int64).reshape(2, ROWS, COLUMNS)
        """Stable and newer values of each row."""
        self.stable, self.newer = self.halves.view(_ROW)[:, :, 0]
        """The same with one element per row, which are copied faster."""


FILE_BYTES = _PAGE + sum(-(-ROWS * width // _PAGE) * _PAGE for _, width in _SECTIONS)


class SenderTable:
    """The writing side of one listener's table. Owned by the receiver's thread.

    ``last_frame`` is the start of the newest frame in the log buffer, -1 without one.
    """

    def __init__(
        self,
        path: Path,
        last_frame: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._sections = sections = Sections(_map_file(path))
        header = sections.header
        if header["magic"][0] != MAGIC:
            # A new file, or one of another format: its counts are in the ledger up to the last post.
            header[:] = 0
            sections.ids[:] = 0
            sections.halves[:] = 0
            header["published"] = -1  # the first frame of a log buffer begins at 0
            header["file_id"] = int.from_bytes(os.urandom(7), "little")
            header["hash_key"] = random_key()
            # Order: the magic last; a header without it is not trusted.
            memory_order.barrier()
            header["magic"] = MAGIC
        # Crash: a predecessor may have been killed between the frame and its confirmation, or before the frame.
        _settle(sections, max(last_frame, int(header["published"][0])))
        self._listened_before, self._began = int(header["listened"][0]), monotonic()
        self._staged: Ints | None = None
        self._to_free: Ints = np.zeros(0, np.int64)
        self._index_rows()

    def _index_rows(self) -> None:
        ids = self._sections.ids
        # Crash: a row whose sender was summed, and whose identity was not removed yet.
        ids[self._sections.halves[1, :, FIRST] == 0] = 0
        rows = np.flatnonzero(ids[1:]) + 1
        order = np.argsort(ids[rows])
        # The last entry is behind all senders, so that every search ends at an entry.
        self._rows, self._known = np.append(rows[order], 0), np.append(ids[rows[order]], _LAST_IDENTITY)
        self._free = np.flatnonzero(ids[1:] == 0) + 1

    @property
    def hash_key(self) -> int:
        """The key of the identities in this table."""
        return int(self._sections.header["hash_key"][0])

    def listened(self) -> int:
        """Return the listening time in microseconds."""
        return self._listened_before + int((self._monotonic() - self._began) * SECOND_US)

    def tick(self) -> None:
        """Store the listening time, for the ledger and for a successor."""
        self._sections.header["listened"] = self.listened()

    def stage(self, arrivals: Arrivals, position: int, now_us: int) -> None:
        """Enter the counts of a frame that will begin at ``position`` or later; ``confirm`` follows, or ``discard``."""
        sections, listened = self._sections, self.listened()
        arrivals = _with_valid_identities(arrivals)
        rows, counts, heard_count = self._rows_of(arrivals, now_us, listened), arrivals.counts, arrivals.heard_count
        if rows is None:
            rows, counts, heard_count = self._join_others(arrivals, now_us, listened)
        before = sections.newer[rows]
        values = before.view(np.int64).reshape(len(rows), COLUMNS).copy()
        _advance_times(values[:heard_count], now_us, listened)
        # Fast path: most rounds have no losses. One column takes 3 us for a thousand senders, all take 8.
        if len(rows) > FEW_SENDERS and not counts[:, ACCEPTED + 1 :].any():
            values[:, COUNTS] += counts[:, ACCEPTED]
        else:
            values[:, COUNTS:] += counts
        if len(self._free) < SPARE_ROWS // 2:
            rows, values = self._sum_smallest(rows, values)
            before = sections.newer[rows]
        # Order: stable half, mark, newer half, mark. A kill between two of them leaves one valid half of each row. The
        # previous publication is visible before the stable half changes; the last mark may be visible at any time
        # before the next publication.
        memory_order.barrier()
        sections.stable[rows] = before
        memory_order.barrier()
        sections.marks[rows] = _UNPUBLISHED
        memory_order.barrier()
        sections.newer[rows] = values.view(_ROW)[:, 0]
        sections.marks[rows] = position
        self._staged = rows

    def confirm(self, position: int) -> None:
        """Make the staged counts valid: the newest frame begins at ``position``."""
        # Order: after the newer halves and their marks.
        memory_order.barrier()
        self._sections.header["published"] = position
        self._staged = None
        if len(self._to_free):
            self._to_free = np.zeros(0, np.int64)
            self._index_rows()

    def discard(self) -> None:
        """Forget staged counts: their frame was not written."""
        if self._staged is not None:
            self._sections.halves[1, self._staged] = self._sections.halves[0, self._staged]
            self._staged, self._to_free = None, np.zeros(0, np.int64)

    def _rows_of(self, arrivals: Arrivals, now_us: int, listened: int) -> Ints | None:
        """Return the rows of senders, after new ones got a row; None if some have none."""
        identities = arrivals.identities
        indices = self._known.searchsorted(identities)
        # Fast path: almost every round has only senders that have a row.
        if (self._known[indices] == identities).all():
            return self._rows[indices]
        new = np.flatnonzero((self._known[indices] != identities)[: arrivals.heard_count])[: len(self._free)]
        if len(new):
            self._add(identities[new], *arrivals.describe(identities[new]), now_us, listened)
            indices = self._known.searchsorted(identities)
        return self._rows[indices] if (self._known[indices] == identities).all() else None

    def _add(self, identities: npt.NDArray[np.uint64], kinds: Any, names: Any, now_us: int, listened: int) -> None:
        sections, rows = self._sections, self._free[: len(identities)].copy()
        self._free = self._free[len(identities) :]
        # Order: a row that was freed has lost its identity before it changes.
        memory_order.barrier()
        sections.kinds[rows], sections.names[rows] = kinds, names
        sections.halves[:, rows] = 0
        sections.halves[:, rows, FIRST] = sections.halves[:, rows, LAST] = now_us
        sections.halves[:, rows, BEGAN] = sections.halves[:, rows, HEARD] = listened
        sections.marks[rows] = 0
        # Order: the identity last; a row without one is free.
        memory_order.barrier()
        sections.ids[rows] = identities
        order = np.argsort(identities)
        indices = self._known.searchsorted(identities[order])
        self._known = np.insert(self._known, indices, identities[order])
        self._rows = np.insert(self._rows, indices, rows[order])

    def _join_others(self, arrivals: Arrivals, now_us: int, listened: int) -> tuple[Ints, Ints, int]:
        """Return rows, counts and the number of heard senders; those without a row are the others, in the first row."""
        indices = self._known.searchsorted(arrivals.identities)
        has_row = self._known[indices] == arrivals.identities
        summed = arrivals.counts[~has_row].sum(axis=0)
        self._begin_others(now_us, listened)
        rows = np.concatenate([[0], self._rows[indices[has_row]]])
        heard_count = 1 + int(has_row[: arrivals.heard_count].sum())
        return rows, np.concatenate([summed[None], arrivals.counts[has_row]]), heard_count

    def _begin_others(self, now_us: int, listened: int) -> None:
        halves = self._sections.halves
        if not halves[1, 0, FIRST]:
            halves[:, 0, FIRST], halves[:, 0, BEGAN], halves[:, 0, HEARD] = now_us, listened, listened

    def _sum_smallest(self, rows: Ints, values: Ints) -> tuple[Ints, Ints]:
        """Add the smallest senders beyond MAX_SENDERS to the others; their rows are free once the frame is written."""
        halves = self._sections.halves
        candidates = np.setdiff1d(self._rows[:-1], rows)
        excess = len(self._rows) - 1 - MAX_SENDERS
        if excess <= 0 or not len(candidates):
            return rows, values
        sizes = halves[1, candidates, COUNTS:].sum(axis=1)
        smallest = candidates[np.argsort(sizes, kind="stable")[:excess]]
        summed = halves[1, smallest]
        if not (rows == 0).any():
            self._begin_others(int(summed[:, FIRST].min()), int(summed[:, BEGAN].min()))
            rows, values = np.append(rows, 0), np.concatenate([values, halves[1, :1]])
        others_row = values[int(np.flatnonzero(rows == 0)[0])]
        others_row[LAST] = max(summed[:, LAST].max(), others_row[LAST])
        others_row[COUNTS:] += summed[:, COUNTS:].sum(axis=0)
        self._to_free = smallest
        return np.append(rows, smallest), np.concatenate([values, np.zeros_like(summed)])


def _with_valid_identities(arrivals: Arrivals) -> Arrivals:
    """Replace identities that no row may have."""
    identities = arrivals.identities
    # Fast path: plus one, the last identity is 0 and the first is 1.
    if len(identities) and (identities + np.uint64(1)).min() > 1:
        return arrivals
    replaced, describe = identities.copy(), arrivals.describe
    originals = {replacement: identity for identity, replacement in _REPLACED_IDENTITIES}
    for identity, replacement in _REPLACED_IDENTITIES:
        replaced[identities == identity] = replacement

    def describe_originals(some: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        return describe(np.array([originals.get(identity, identity) for identity in some.tolist()], np.uint64))

    return arrivals._replace(identities=replaced, describe=describe_originals)


def _advance_times(values: Ints, now_us: int, listened: int) -> None:
    """Enter an arrival of each sender now, and learn its usual pause: the longest one, slowly forgotten.

    ``values`` is changed in place.
    """
    values[:, LAST] = now_us
    # Fast path: a sender of many messages a second has a pause once a second.
    if not len(values) or values[:, HEARD].min() > listened - MIN_PAUSE_US:
        return
    pauses = listened - values[:, HEARD]
    is_pause = pauses >= MIN_PAUSE_US
    usual = values[:, PAUSE]
    # A silence is an exception and no rhythm: after one of an hour the next would be seen after ten hours only.
    is_silence = (usual > 0) & (pauses > np.maximum(SILENT_PAUSES * usual, MIN_SILENCE_S * SECOND_US))
    learned = np.where(is_silence, np.minimum(pauses, 2 * usual), pauses)
    faded = usual * np.exp(-pauses / PAUSE_DECAY_US)
    values[:, PAUSE] = np.where(is_pause, np.maximum(learned, faded), usual)
    values[is_pause, HEARD] = listened


def _settle(sections: Sections, published: int) -> None:
    """Make both halves of each row equal: the newer one if its frame is in the log buffer."""
    is_newer = sections.marks <= published
    # Order: readers use the newer halves of the published frame before its stable halves change, and the marks change
    # when both halves are equal.
    sections.header["published"] = published
    memory_order.barrier()
    sections.halves[0, is_newer] = sections.halves[1, is_newer]
    sections.halves[1, ~is_newer] = sections.halves[0, ~is_newer]
    memory_order.barrier()
    sections.marks[:] = 0


def _map_file(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size != FILE_BYTES:
            os.ftruncate(descriptor, 0)
        os.posix_fallocate(descriptor, 0, FILE_BYTES)  # a store to a hole on a full disk is a SIGBUS
        return mmap.mmap(descriptor, FILE_BYTES)
    finally:
        os.close(descriptor)
