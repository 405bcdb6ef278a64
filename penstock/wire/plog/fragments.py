"""Reassembly of a round's fragments: complete groups as columns, all other fragments through the reassembly table.

Invariant: a fragment is entered in both books exactly once, on one of the three paths in
``Defragmenter.add_fragments``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import from_numpy, values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Piece
from penstock.wire.plog import grouping
from penstock.wire.plog.grouping import Groups
from penstock.wire.plog.header import Fragments, Mask, is_consistent
from penstock.wire.plog.holes import HoleDetector, HolesAndJumps, HoleSettings
from penstock.wire.plog.reassembly import Assembled, Fate, Header, MessageIdentity, Reassembly
from penstock.wire.plog.statistics import Statistics


class _Fragment(NamedTuple):
    """A fragment for the table. ``number``: its index; ``fits``: its message is within ``max_size``."""

    row: int
    key: MessageIdentity
    header: Header
    number: int
    part: bytes
    tags: bytes
    fits: bool
    has_right_length: bool


class _Columns(NamedTuple):
    """Columns of fragments for the table, as lists with one entry per fragment."""

    rows: list[int]
    keys: list[MessageIdentity]
    headers: list[Header]
    numbers: list[int]
    parts: list[bytes]
    tags: list[bytes | None]
    fits: list[bool]
    has_right_length: list[bool]

    def fragment(self, index: int) -> _Fragment:
        return _Fragment(
            self.rows[index],
            self.keys[index],
            self.headers[index],
            self.numbers[index],
            self.parts[index],
            self.tags[index] or b"",
            self.fits[index],
            self.has_right_length[index],
        )


class Defragmenter:
    """Reassembles messages, and looks for holes in their ids. Used by one thread, its decoder's."""

    def __init__(self, max_size: int, expire_time: float, holes: HoleSettings, statistics: Statistics) -> None:
        self._max_size = max_size
        self._statistics = statistics
        self.table = Reassembly(max_size, expire_time, statistics)
        self._holes = HoleDetector(holes) if holes.enabled else None

    def add_fragments(self, datagrams: Datagrams, fragments: Fragments, now: float, counts: Counts) -> list[Piece]:
        """Return the messages that ``fragments`` (valid headers, in order of arrival) complete."""
        self._statistics.add_fragments(fragments.index)
        is_single = fragments.count == 1
        pieces, first_fragments = [], [np.flatnonzero(is_single)]
        if is_single.any():
            pieces.append(self._take_single(datagrams, fragments.where(is_single), counts))
        if not is_single.all():
            parts = fragments.where(~is_single)
            fits = parts.total <= self._max_size
            is_valid = fits & is_consistent(parts)
            # Fast path: messages complete within the round never enter the table, so they cost no Python statement
            # each.
            groups, remaining = grouping.split(parts, is_valid, self.table.find_tracked)
            pieces.append(self._take_complete_groups(datagrams, groups, now, counts))
            first_fragments.append(np.searchsorted(fragments.rows, groups.first_rows()))
            if len(remaining):
                piece, first_rows = self._take_by_table(datagrams, remaining, now, counts)
                pieces.append(piece)
                first_fragments.append(np.searchsorted(fragments.rows, first_rows))
        self._observe(fragments, np.sort(np.concatenate(first_fragments)), now, counts)
        return pieces

    def expire(self, now: float, counts: Counts) -> None:
        """Give up messages, and forget senders, that have been silent for too long."""
        self.table.expire(now, counts)
        if self._holes is not None:
            self._count_holes(self._holes.expire(now), counts)

    def _observe(self, fragments: Fragments, first_fragments: Ints, now: float, counts: Counts) -> None:
        """Look for holes in the ids of ``first_fragments``, one fragment per message."""
        if self._holes is not None and len(first_fragments):
            holes = self._holes.observe(
                fragments.addresses[first_fragments],
                fragments.ports[first_fragments],
                fragments.id[first_fragments],
                now,
            )
            self._count_holes(holes, counts)

    def _count_holes(self, holes: HolesAndJumps, counts: Counts) -> None:
        counts[Name.HOLE] += holes.hole
        counts[Name.JUMP] += holes.jump
        for address, hole in holes.by_address.items():
            self._statistics.losses.add(Name.HOLE, address, hole)
        self._statistics.holes_from_dead_port += holes.dead
        self._statistics.holes_from_new_message += holes.hole - holes.dead

    def _take_single(self, datagrams: Datagrams, singles: Fragments, counts: Counts) -> Piece:
        """Return messages of a single fragment; they skip the table, and their size and total are ignored, as in
        plog.
        """
        payloads = datagrams.payloads(singles.rows, singles.starts)
        is_valid = grouping.hashes(payloads) == singles.hash
        self._statistics.losses.add_all(Name.BAD_CHECKSUM, singles.addresses[~is_valid])
        self._count_complete(singles.count, is_valid, counts)
        tags = _tags_of_each(datagrams, singles)
        return _verified_piece(singles.rows, payloads, tags, is_valid)

    def _take_complete_groups(self, datagrams: Datagrams, groups: Groups, now: float, counts: Counts) -> Piece:
        messages = grouping.assemble(datagrams, groups)
        is_valid = messages.is_valid
        self._statistics.losses.add_all(Name.BAD_CHECKSUM, datagrams.addresses[messages.rows[~is_valid]])
        self._count_complete(groups.counts, is_valid, counts)
        self._statistics.misses += len(groups)
        self._statistics.hits += int(groups.counts.sum()) - len(groups)
        fates = [Fate.GOOD if valid else Fate.BAD for valid in is_valid.tolist()]
        # Late copies of these fragments must count as duplicates, not as new messages.
        self.table.memory.remember_all(groups.keys(), groups.headers(), fates, now)
        tags = _last_tags(datagrams, groups)
        return _verified_piece(messages.rows, messages.payloads, tags, is_valid)

    def _count_complete(self, fragment_counts: Ints, is_valid: Mask, counts: Counts) -> None:
        """Count complete messages in both books, by their number of fragments."""
        accepted, bad_counts = int(is_valid.sum()), fragment_counts[~is_valid]
        counts[Name.SEEN] += len(is_valid)
        counts[Name.ACCEPTED] += accepted
        self._statistics.v0_multipart_messages += accepted
        counts[Name.BAD_CHECKSUM] += len(is_valid) - accepted
        counts[Name.FRAGMENT_USED] += int(fragment_counts[is_valid].sum())
        counts[Name.FRAGMENT_DISCARDED] += int(bad_counts.sum())
        self._statistics.add_bad_checksums(bad_counts)

    def _take_by_table(
        self, datagrams: Datagrams, remaining: Fragments, now: float, counts: Counts
    ) -> tuple[Piece, Ints]:
        """Return messages completed by the table, and the rows of fragments that were the first of their message."""
        first_rows: list[int] = []
        completed: list[tuple[int, bytes, bytes | None]] = []
        columns = self._as_columns(datagrams, remaining)
        for begin, end in self._runs(remaining):
            for row, last_row, is_new, message in self._take_run(columns, begin, end, now, counts):
                if is_new:
                    first_rows.append(row)
                if message is not None:
                    completed.append((last_row, message.payload, message.tags or None))
        rows, payloads, tags = zip(*completed, strict=True) if completed else ((), (), ())
        joined = pa.array(tags, pa.binary()) if any(tags) else None
        return Piece(np.array(rows, np.int64), pa.array(payloads, pa.binary()), joined), np.array(first_rows, np.int64)

    def _as_columns(self, datagrams: Datagrams, remaining: Fragments) -> _Columns:
        keys = zip(remaining.addresses.tolist(), remaining.ports.tolist(), remaining.id.tolist(), strict=True)
        tags = _tags_of_each(datagrams, remaining)
        return _Columns(
            remaining.rows.tolist(),
            list(keys),
            grouping.headers_of(remaining),
            remaining.index.tolist(),
            values_of(datagrams.payloads(remaining.rows, remaining.starts)),
            [None] * len(remaining) if tags is None else tags.to_pylist(),
            (remaining.total <= self._max_size).tolist(),
            is_consistent(remaining).tolist(),
        )

    def _runs(self, remaining: Fragments) -> Iterator[tuple[int, int]]:
        """Yield [begin, end) of valid fragments without tags of one message in sequence; others are runs of one."""
        plain = (remaining.total <= self._max_size) & is_consistent(remaining) & (remaining.tag_length == 0)
        follows = plain[1:] & plain[:-1]
        for column in (
            remaining.addresses,
            remaining.ports,
            remaining.id,
            remaining.count,
            remaining.size,
            remaining.total,
            remaining.hash,
        ):
            follows &= column[1:] == column[:-1]
        begins = np.flatnonzero(np.concatenate([[True], ~follows])).tolist()
        return zip(begins, [*begins[1:], len(remaining)], strict=True)

    def _take_run(
        self, columns: _Columns, begin: int, end: int, now: float, counts: Counts
    ) -> Iterator[tuple[int, int, bool, Assembled | None]]:
        """Yield first and last row, whether the fragments began a message, and the message they completed."""
        # Fast path: fragments of one message usually arrive in sequence; one table access takes the whole run.
        if end - begin > 1:
            numbers, parts = columns.numbers[begin:end], columns.parts[begin:end]
            outcome = self.table.add_run(columns.keys[begin], columns.headers[begin], numbers, parts, now, counts)
            if outcome is not None:
                yield columns.rows[begin], columns.rows[end - 1], *outcome
                return
        for index in range(begin, end):
            fragment = columns.fragment(index)
            yield fragment.row, fragment.row, *self._take_fragment(fragment, now, counts)

    def _take_fragment(self, fragment: _Fragment, now: float, counts: Counts) -> tuple[bool, Assembled | None]:
        """Return whether the fragment is the first of its message, and the message if it completes a valid one."""
        key, header = fragment.key, fragment.header
        if not fragment.fits and not self.table.mismatches(key, header):
            return self.table.refuse(key, header, now, counts), None
        if not fragment.fits or not fragment.has_right_length:
            self.table.reject(key, header, fragment.number, counts)
            return False, None
        return self.table.add(key, header, fragment.number, fragment.part, fragment.tags, now, counts)


def _tags_of_each(datagrams: Datagrams, fragments: Fragments) -> pa.Array[Any] | None:
    """Return the tags of each fragment, null for a fragment without tags; None if no fragment has tags."""
    tagged = np.flatnonzero(fragments.tag_length)
    if not len(tagged):
        return None
    tags = _read_tags(datagrams, fragments, tagged)
    return tags if len(tagged) == len(fragments) else _spread(tags, tagged, len(fragments))


def _last_tags(datagrams: Datagrams, groups: Groups) -> pa.Array[Any] | None:
    """Return per group the tags that arrived last, as plog keeps them; otherwise like ``_tags_of_each``."""
    tagged = np.flatnonzero(groups.fragments.tag_length)
    if not len(tagged):
        return None
    group = np.searchsorted(groups.begins, tagged, side="right") - 1
    order = np.lexsort((groups.fragments.rows[tagged], group))
    last = order[np.flatnonzero(np.diff(group[order], append=-1))]
    tags = _read_tags(datagrams, groups.fragments, tagged[last])
    return _spread(tags, group[last], len(groups))


def _read_tags(datagrams: Datagrams, fragments: Fragments, tagged: Ints) -> pa.Array[Any]:
    starts = (fragments.starts - fragments.tag_length)[tagged]
    return datagrams.payloads(fragments.rows[tagged], starts, fragments.starts[tagged])


def _spread(values: pa.Array[Any], positions: Ints, length: int) -> pa.Array[Any]:
    """Return an array of ``length`` with ``values`` at ``positions``, null elsewhere."""
    indices = np.full(length, -1, np.int64)
    indices[positions] = np.arange(len(positions))
    return values.take(from_numpy(indices, indices < 0))


def _verified_piece(rows: Ints, payloads: pa.Array[Any], tags: pa.Array[Any] | None, is_valid: Mask) -> Piece:
    if not is_valid.all():
        mask = pa.array(is_valid)
        rows, payloads, tags = rows[is_valid], payloads.filter(mask), tags if tags is None else tags.filter(mask)
    return Piece(rows, payloads, tags)
