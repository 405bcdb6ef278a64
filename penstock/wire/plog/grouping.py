"""Messages whose fragments all stand in one batch, found and assembled as columns.

Fragments are sorted by message and index; a group is *whole* when its indices are 0, 1, ... count - 1 and
all its headers agree. The payloads of the whole groups, taken in that order, already are the messages'
bytes one after the other: only the offsets between them are new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa

from penstock.records import binary_array, bounds
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.plog.header import Fragments, Mask
from penstock.wire.plog.reassembly import Header, MessageIdentity


@dataclass(frozen=True, slots=True)
class Messages:
    """Assembled messages, one entry each: ``rows`` of the datagram that completed it."""

    rows: Ints
    payloads: pa.Array[Any]
    good: Mask

    @classmethod
    def none(cls) -> Messages:
        """No messages."""
        return cls(np.zeros(0, np.int64), pa.array([], pa.binary()), np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Groups:
    """The whole groups among sorted ``fragments``; group i is [begins[i], begins[i] + count)."""

    fragments: Fragments
    begins: Ints

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def counts(self) -> Ints:
        """Fragments of each."""
        return self.fragments.count[self.begins]

    def keys(self) -> list[MessageIdentity]:
        """Identities."""
        heads = self.fragments.where(self.begins)
        return list(zip(heads.addresses.tolist(), heads.ports.tolist(), heads.id.tolist(), strict=True))

    def headers(self) -> list[Header]:
        """What the fragments of each agree on."""
        heads = self.fragments.where(self.begins)
        return headers_of(heads)

    def first_rows(self) -> Ints:
        """The datagram of each that came first."""
        return np.minimum.reduceat(self.fragments.rows, self.begins) if len(self) else self.begins

    def last_rows(self) -> Ints:
        """The datagram of each that came last, and completed it."""
        return np.maximum.reduceat(self.fragments.rows, self.begins) if len(self) else self.begins


def headers_of(fragments: Fragments) -> list[Header]:
    """The header of each fragment, without its index."""
    columns = (fragments.count, fragments.size, fragments.total, fragments.hash)
    return [Header(*fields) for fields in zip(*(column.tolist() for column in columns), strict=True)]


def split(
    fragments: Fragments, fine: Mask, known_among: Callable[[Sequence[MessageIdentity]], set[MessageIdentity]]
) -> tuple[Groups, Fragments]:
    """The whole groups, and the other fragments in order of arrival.

    Groups with fragments that are not ``fine`` (within bounds, of the right length), and messages of
    which something is known already, are left to the others.
    """
    order, ordered = np.arange(len(fragments)), fragments
    if not _is_ordered(fragments):
        order = np.lexsort((fragments.index, fragments.id, fragments.ports, fragments.addresses))
        ordered = fragments.where(order)
    begins, sizes = _boundaries(ordered)
    group = np.repeat(np.arange(len(begins)), sizes)
    whole = (sizes == ordered.count[begins]) & _agreeing(ordered, fine[order], begins, group)
    groups = Groups(ordered, begins[whole])
    keys = groups.keys()
    if known := known_among(keys):
        whole[whole] = [key not in known for key in keys]
    taken = whole[group]
    rest = np.sort(order[~taken])
    kept = ordered if taken.all() else ordered.where(taken)
    return Groups(kept, _starts(sizes[whole])), fragments.where(rest)


def assemble(datagrams: Datagrams, groups: Groups) -> Messages:
    """The messages of whole groups, each with whether its hash is right."""
    if not len(groups):
        return Messages.none()
    fragments = groups.fragments
    parts = datagrams.payloads(fragments.rows, fragments.starts)
    offsets = bounds(parts)[np.r_[groups.begins, len(parts)]]
    payloads = binary_array(np.ascontiguousarray(offsets), parts.buffers()[2] or b"")
    return Messages(groups.last_rows(), payloads, hashes(payloads) == fragments.hash[groups.begins])


def hashes(payloads: pa.Array[Any]) -> Ints:
    """MurmurHash3 (x86, 32 bits, seed 0, unsigned) of each payload."""
    if not len(payloads):
        return np.zeros(0, np.int64)
    data, digest = memoryview(payloads.buffers()[2] or b""), mmh3.mmh3_32_uintdigest
    return np.array([digest(data[begin:end], 0) for begin, end in pairwise(bounds(payloads).tolist())], np.int64)


def _is_ordered(fragments: Fragments) -> bool:
    """Whether they stand by address, port, id and index already, as what one sender sends does."""
    above = np.zeros(max(len(fragments) - 1, 0), np.bool_)
    equal = ~above
    for column in (fragments.addresses, fragments.ports, fragments.id, fragments.index):
        above |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool((above | equal).all())


def _boundaries(ordered: Fragments) -> tuple[Ints, Ints]:
    """Where each message begins among fragments sorted by message, and how many it has."""
    change = np.ones(len(ordered), np.bool_)
    change[1:] = (
        (ordered.id[1:] != ordered.id[:-1])
        | (ordered.ports[1:] != ordered.ports[:-1])
        | (ordered.addresses[1:] != ordered.addresses[:-1])
    )
    begins = np.flatnonzero(change)
    return begins, np.diff(begins, append=len(ordered))


def _agreeing(ordered: Fragments, fine: Mask, begins: Ints, group: Ints) -> Mask:
    """Which groups have the indices 0, 1, ... and one header."""
    same = fine & (ordered.index == np.arange(len(ordered)) - begins[group])
    for column in (ordered.count, ordered.size, ordered.total, ordered.hash):
        same &= column == column[begins][group]
    return np.logical_and.reduceat(same, begins) if len(begins) else same


def _starts(sizes: Ints) -> Ints:
    return np.cumsum(sizes) - sizes
