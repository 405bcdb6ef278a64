"""Fragments of a round to messages: whole groups as columns, the rest through the reassembly table."""

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
    """A fragment for the table: ``number`` is its index; it ``fits`` the bounds, has the ``right`` length."""

    row: int
    key: MessageIdentity
    header: Header
    number: int
    part: bytes
    tags: bytes
    fits: bool
    right: bool


class _Columns(NamedTuple):
    """Fragments for the table as lists, one entry each."""

    rows: list[int]
    keys: list[MessageIdentity]
    headers: list[Header]
    numbers: list[int]
    parts: list[bytes]
    tags: list[bytes | None]
    fits: list[bool]
    right: list[bool]

    def fragment(self, at: int) -> _Fragment:
        """One of them."""
        return _Fragment(
            self.rows[at],
            self.keys[at],
            self.headers[at],
            self.numbers[at],
            self.parts[at],
            self.tags[at] or b"",
            self.fits[at],
            self.right[at],
        )


class Defragmenter:
    """Reassembles messages and looks for holes in their ids."""

    def __init__(self, max_size: int, expire_time: float, holes: HoleSettings, statistics: Statistics) -> None:
        self._max_size = max_size
        self._statistics = statistics
        self.table = Reassembly(max_size, expire_time, statistics)
        self._holes = HoleDetector(holes) if holes.enabled else None

    def take(self, datagrams: Datagrams, fragments: Fragments, now: float, counts: Counts) -> list[Piece]:
        """The messages that ``fragments`` (valid headers, order of arrival) complete."""
        self._statistics.add_fragments(fragments.index)
        alone = fragments.count == 1
        pieces, begun = [], [np.flatnonzero(alone)]
        if alone.any():
            pieces.append(self._take_single(datagrams, fragments.where(alone), counts))
        if not alone.all():
            parts = fragments.where(~alone)
            fits = parts.total <= self._max_size
            fine = fits & is_consistent(parts)
            groups, rest = grouping.split(parts, fine, self.table.known)
            pieces.append(self._take_whole(datagrams, groups, now, counts))
            begun.append(np.searchsorted(fragments.rows, groups.first_rows()))
            if len(rest):
                piece, first_rows = self._take_rest(datagrams, rest, now, counts)
                pieces.append(piece)
                begun.append(np.searchsorted(fragments.rows, first_rows))
        self._observe(fragments, np.sort(np.concatenate(begun)), now, counts)
        return pieces

    def expire(self, now: float, counts: Counts) -> None:
        """Give up messages, and forget senders, that have been silent for too long."""
        self.table.expire(now, counts)
        if self._holes is not None:
            self._enter(self._holes.expire(now), counts)

    def _observe(self, fragments: Fragments, at: Ints, now: float, counts: Counts) -> None:
        """Look for holes: ``at`` are the fragments that were the first of their message."""
        if self._holes is not None and len(at):
            found = self._holes.observe(fragments.addresses[at], fragments.ports[at], fragments.id[at], now)
            self._enter(found, counts)

    def _enter(self, found: HolesAndJumps, counts: Counts) -> None:
        counts[Name.HOLE] += found.hole
        counts[Name.JUMP] += found.jump
        self._statistics.holes_from_dead_port += found.dead
        self._statistics.holes_from_new_message += found.hole - found.dead

    def _take_single(self, datagrams: Datagrams, alone: Fragments, counts: Counts) -> Piece:
        """Messages of a single fragment: as in plog they skip the table, and their size and total are not looked at."""
        payloads = datagrams.payloads(alone.rows, alone.starts)
        good = grouping.hashes(payloads) == alone.hash
        self._enter_messages(alone.count, good, counts)
        tags = _tags(datagrams, alone)
        return _good_piece(alone.rows, payloads, tags, good)

    def _take_whole(self, datagrams: Datagrams, groups: Groups, now: float, counts: Counts) -> Piece:
        messages = grouping.assemble(datagrams, groups)
        good = messages.good
        self._enter_messages(groups.counts, good, counts)
        self._statistics.misses += len(groups)
        self._statistics.hits += int(groups.counts.sum()) - len(groups)
        fates = [Fate.GOOD if each else Fate.BAD for each in good.tolist()]
        self.table.memory.remember_all(groups.keys(), groups.headers(), fates, now)
        tags = _last_tags(datagrams, groups)
        return _good_piece(messages.rows, messages.payloads, tags, good)

    def _enter_messages(self, fragment_counts: Ints, good: Mask, counts: Counts) -> None:
        """Enter messages that are complete, each with its number of fragments, in both books."""
        accepted, bad = int(good.sum()), fragment_counts[~good]
        counts[Name.SEEN] += len(good)
        counts[Name.ACCEPTED] += accepted
        self._statistics.v0_multipart_messages += accepted
        counts[Name.BAD_CHECKSUM] += len(good) - accepted
        counts[Name.FRAGMENT_USED] += int(fragment_counts[good].sum())
        counts[Name.FRAGMENT_DISCARDED] += int(bad.sum())
        self._statistics.add_bad_checksums(bad)

    def _take_rest(self, datagrams: Datagrams, rest: Fragments, now: float, counts: Counts) -> tuple[Piece, Ints]:
        """What the table completes, and the rows of fragments that were the first of their message."""
        begun: list[int] = []
        done: list[tuple[int, bytes, bytes | None]] = []
        columns = self._listed(datagrams, rest)
        for begin, end in self._runs(rest):
            for row, last_row, is_new, message in self._take_run(columns, begin, end, now, counts):
                if is_new:
                    begun.append(row)
                if message is not None:
                    done.append((last_row, message.payload, message.tags or None))
        rows, payloads, tags = zip(*done, strict=True) if done else ((), (), ())
        joined = pa.array(tags, pa.binary()) if any(tags) else None
        return Piece(np.array(rows, np.int64), pa.array(payloads, pa.binary()), joined), np.array(begun, np.int64)

    def _listed(self, datagrams: Datagrams, rest: Fragments) -> _Columns:
        keys = zip(rest.addresses.tolist(), rest.ports.tolist(), rest.id.tolist(), strict=True)
        tags = _tags(datagrams, rest)
        return _Columns(
            rest.rows.tolist(),
            list(keys),
            grouping.headers_of(rest),
            rest.index.tolist(),
            values_of(datagrams.payloads(rest.rows, rest.starts)),
            [None] * len(rest) if tags is None else tags.to_pylist(),
            (rest.total <= self._max_size).tolist(),
            is_consistent(rest).tolist(),
        )

    def _runs(self, rest: Fragments) -> Iterator[tuple[int, int]]:
        """Where fragments of one message, fine and without tags, follow one another; others are by themselves."""
        plain = (rest.total <= self._max_size) & is_consistent(rest) & (rest.tag_length == 0)
        follows = plain[1:] & plain[:-1]
        for column in (rest.addresses, rest.ports, rest.id, rest.count, rest.size, rest.total, rest.hash):
            follows &= column[1:] == column[:-1]
        begins = np.flatnonzero(np.concatenate([[True], ~follows])).tolist()
        return zip(begins, [*begins[1:], len(rest)], strict=True)

    def _take_run(
        self, columns: _Columns, begin: int, end: int, now: float, counts: Counts
    ) -> Iterator[tuple[int, int, bool, Assembled | None]]:
        """The first and last row of what was taken at once, whether it began a message, and what it completed."""
        if end - begin > 1:
            numbers, parts = columns.numbers[begin:end], columns.parts[begin:end]
            taken = self.table.add_run(columns.keys[begin], columns.headers[begin], numbers, parts, now, counts)
            if taken is not None:
                yield columns.rows[begin], columns.rows[end - 1], *taken
                return
        for at in range(begin, end):
            fragment = columns.fragment(at)
            yield fragment.row, fragment.row, *self._take_one(fragment, now, counts)

    def _take_one(self, fragment: _Fragment, now: float, counts: Counts) -> tuple[bool, Assembled | None]:
        """Whether it is the first of its message, and the message where it completes a good one."""
        key, header = fragment.key, fragment.header
        if not fragment.fits and not self.table.mismatches(key, header):
            return self.table.refuse(key, header, now, counts), None
        if not fragment.fits or not fragment.right:
            self.table.reject(key, header, fragment.number, counts)
            return False, None
        return self.table.add(key, header, fragment.number, fragment.part, fragment.tags, now, counts)


def _tags(datagrams: Datagrams, fragments: Fragments) -> pa.Array[Any] | None:
    """The tags of each fragment, null where it has none; None where none has any."""
    tagged = np.flatnonzero(fragments.tag_length)
    if not len(tagged):
        return None
    found = _tags_at(datagrams, fragments, tagged)
    return found if len(tagged) == len(fragments) else _spread(found, tagged, len(fragments))


def _last_tags(datagrams: Datagrams, groups: Groups) -> pa.Array[Any] | None:
    """For each group the tags of the fragment with tags that came last, as in plog; as ``_tags`` gives them."""
    tagged = np.flatnonzero(groups.fragments.tag_length)
    if not len(tagged):
        return None
    group = np.searchsorted(groups.begins, tagged, side="right") - 1
    order = np.lexsort((groups.fragments.rows[tagged], group))
    last = order[np.flatnonzero(np.diff(group[order], append=-1))]
    found = _tags_at(datagrams, groups.fragments, tagged[last])
    return _spread(found, group[last], len(groups))


def _tags_at(datagrams: Datagrams, fragments: Fragments, tagged: Ints) -> pa.Array[Any]:
    """The tags of those fragments, all of which have some."""
    starts = (fragments.starts - fragments.tag_length)[tagged]
    return datagrams.payloads(fragments.rows[tagged], starts, fragments.starts[tagged])


def _spread(values: pa.Array[Any], at: Ints, length: int) -> pa.Array[Any]:
    """``values`` at the places ``at`` of an array of ``length``, null elsewhere."""
    where = np.full(length, -1, np.int64)
    where[at] = np.arange(len(at))
    return values.take(from_numpy(where, where < 0))


def _good_piece(rows: Ints, payloads: pa.Array[Any], tags: pa.Array[Any] | None, good: Mask) -> Piece:
    if not good.all():
        mask = pa.array(good)
        rows, payloads, tags = rows[good], payloads.filter(mask), tags if tags is None else tags.filter(mask)
    return Piece(rows, payloads, tags)
