"""Fragments of a round to messages: whole groups as columns, the rest through the reassembly table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.wire import groups as grouping
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Piece
from penstock.wire.groups import Groups
from penstock.wire.header import Fragments, Mask, is_consistent
from penstock.wire.holes import Found, HoleDetector, HoleSettings
from penstock.wire.reassembly import Assembled, Fate, Header, Key, Reassembly
from penstock.wire.statistics import Statistics


class _Fragment(NamedTuple):
    """A fragment for the table: ``number`` is its index; it ``fits`` the bounds, has the ``right`` length."""

    row: int
    key: Key
    header: Header
    number: int
    part: bytes
    tags: bytes
    fits: bool
    right: bool


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
            groups, rest = grouping.split(parts, fine, self.table.knows)
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

    def _enter(self, found: Found, counts: Counts) -> None:
        counts[Name.HOLE] += found.hole
        counts[Name.JUMP] += found.jump
        self._statistics.holes_from_dead_port += found.dead
        self._statistics.holes_from_new_message += found.hole - found.dead

    def _take_single(self, datagrams: Datagrams, alone: Fragments, counts: Counts) -> Piece:
        """Messages of a single fragment: as in plog they skip the table, and their size and total are not looked at."""
        payloads = datagrams.payloads(alone.rows, alone.starts)
        good = grouping.hashes(payloads) == alone.hash
        self._enter_messages(alone.count, good, counts)
        tags = _tags(datagrams, alone.where(good))
        return Piece(alone.rows[good], _filter(payloads, good), tags)

    def _take_whole(self, datagrams: Datagrams, groups: Groups, now: float, counts: Counts) -> Piece:
        messages = grouping.assemble(datagrams, groups)
        self._enter_messages(groups.counts, messages.good, counts)
        self._statistics.misses += len(groups)
        self._statistics.hits += int(groups.counts.sum()) - len(groups)
        for key, header, good in zip(groups.keys(), groups.headers(), messages.good.tolist(), strict=True):
            self.table.memory.remember(key, header, Fate.GOOD if good else Fate.BAD, now)
        good_rows = np.repeat(np.where(messages.good, messages.rows, -1), groups.counts)
        row_of = dict(zip(groups.fragments.rows.tolist(), good_rows.tolist(), strict=True))
        tags = {row_of[row]: tags for row, tags in _tags(datagrams, groups.fragments).items() if row_of[row] >= 0}
        return Piece(messages.rows[messages.good], _filter(messages.payloads, messages.good), tags)

    def _enter_messages(self, fragment_counts: Ints, good: Mask, counts: Counts) -> None:
        """Enter messages that are complete, each with its number of fragments, in both books."""
        accepted, bad = int(good.sum()), fragment_counts[~good]
        counts[Name.SEEN] += len(good)
        counts[Name.ACCEPTED] += accepted
        counts[Name.BAD_CHECKSUM] += len(good) - accepted
        counts[Name.FRAGMENT_USED] += int(fragment_counts[good].sum())
        counts[Name.FRAGMENT_DISCARDED] += int(bad.sum())
        self._statistics.add_bad_checksums(bad)

    def _take_rest(self, datagrams: Datagrams, rest: Fragments, now: float, counts: Counts) -> tuple[Piece, Ints]:
        """What the table completes, and the rows of fragments that were the first of their message."""
        rows, payloads, begun = [], [], []
        tags: dict[int, bytes] = {}
        for fragment in self._listed(datagrams, rest):
            is_new, message = self._take_one(fragment, now, counts)
            if is_new:
                begun.append(fragment.row)
            if message is not None:
                rows.append(fragment.row)
                payloads.append(message.payload)
                if message.tags:
                    tags[fragment.row] = message.tags
        return Piece(np.array(rows, np.int64), pa.array(payloads, pa.binary()), tags), np.array(begun, np.int64)

    def _listed(self, datagrams: Datagrams, rest: Fragments) -> Iterator[_Fragment]:
        columns = (rest.addresses, rest.ports, rest.id)
        keys = zip(*(column.tolist() for column in columns), strict=True)
        tags = _tags(datagrams, rest)
        parts = datagrams.payloads(rest.rows, rest.starts).to_pylist()
        fits, right = (rest.total <= self._max_size).tolist(), is_consistent(rest).tolist()
        rows, headers = rest.rows.tolist(), grouping.headers_of(rest)
        for row, key, header, index, part, fit, ok in zip(
            rows, keys, headers, rest.index.tolist(), parts, fits, right, strict=True
        ):
            yield _Fragment(row, key, header, index, part, tags.get(row, b""), fit, ok)

    def _take_one(self, fragment: _Fragment, now: float, counts: Counts) -> tuple[bool, Assembled | None]:
        """Whether it is the first of its message, and the message where it completes a good one."""
        key, header = fragment.key, fragment.header
        if not fragment.fits and not self.table.mismatches(key, header):
            return self.table.refuse(key, header, now, counts), None
        if not fragment.fits or not fragment.right:
            self.table.reject(key, header, fragment.number, counts)
            return False, None
        return self.table.add(key, header, fragment.number, fragment.part, fragment.tags, now, counts)


def _tags(datagrams: Datagrams, fragments: Fragments) -> dict[int, bytes]:
    """The tags of those fragments that have any, by row, in order of arrival."""
    tagged = fragments.where(fragments.tag_length > 0)
    if not len(tagged):
        return {}
    tagged = tagged.where(np.argsort(tagged.rows))
    starts = tagged.starts - tagged.tag_length
    return dict(
        zip(tagged.rows.tolist(), datagrams.payloads(tagged.rows, starts, tagged.starts).to_pylist(), strict=True)
    )


def _filter(payloads: pa.Array, good: Mask) -> pa.Array:
    return payloads if good.all() else payloads.filter(pa.array(good))
