"""Messages whose fragments all arrive in one round, selected and assembled as columns.

Fragments are sorted by message and index; a group is *complete* if its indices are 0, 1, ... count - 1 and all its
headers agree. The payloads of complete groups, taken in that order, are already the bytes of the messages one after
the other: only the offsets between them are new.
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
    """Assembled messages, one entry each; ``rows``: the datagram that completed the message."""

    rows: Ints
    payloads: pa.Array[Any]
    is_valid: Mask

    @classmethod
    def empty(cls) -> Messages:
        return cls(np.zeros(0, np.int64), pa.array([], pa.binary()), np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Groups:
    """Complete groups among sorted ``fragments``; group i is [begins[i], begins[i] + count)."""

    fragments: Fragments
    begins: Ints

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def counts(self) -> Ints:
        """Number of fragments of each group."""
        return self.fragments.count[self.begins]

    def keys(self) -> list[MessageIdentity]:
        """Return the identity of each group's message."""
        heads = self.fragments.where(self.begins)
        return list(zip(heads.addresses.tolist(), heads.ports.tolist(), heads.id.tolist(), strict=True))

    def headers(self) -> list[Header]:
        """Return the common header of each group."""
        heads = self.fragments.where(self.begins)
        return headers_of(heads)

    def first_rows(self) -> Ints:
        """Return the datagram of each group that arrived first."""
        return np.minimum.reduceat(self.fragments.rows, self.begins) if len(self) else self.begins

    def last_rows(self) -> Ints:
        """Return the datagram of each group that arrived last, the completing one."""
        return np.maximum.reduceat(self.fragments.rows, self.begins) if len(self) else self.begins


def headers_of(fragments: Fragments) -> list[Header]:
    """Return the header of each fragment, without its index."""
    columns = (fragments.count, fragments.size, fragments.total, fragments.hash)
    return [Header(*fields) for fields in zip(*(column.tolist() for column in columns), strict=True)]


def split(
    fragments: Fragments, is_valid: Mask, find_tracked: Callable[[Sequence[MessageIdentity]], set[MessageIdentity]]
) -> tuple[Groups, Fragments]:
    """Return the complete groups, and the remaining fragments in order of arrival.

    A group remains if one of its fragments is not ``is_valid`` (within bounds, of the right length), or if
    ``find_tracked`` says that the table or its memory tracks the message already.
    """
    order, ordered = np.arange(len(fragments)), fragments
    # One sender's fragments usually arrive in order; the test is cheaper than a sort.
    if not _is_ordered(fragments):
        order = np.lexsort((fragments.index, fragments.id, fragments.ports, fragments.addresses))
        ordered = fragments.where(order)
    begins, sizes = _boundaries(ordered)
    group = np.repeat(np.arange(len(begins)), sizes)
    is_complete = (sizes == ordered.count[begins]) & _agreeing_groups(ordered, is_valid[order], begins, group)
    groups = Groups(ordered, begins[is_complete])
    keys = groups.keys()
    # Invariant: a message that the table tracks is completed there; otherwise a late copy would become a second
    # message.
    if tracked := find_tracked(keys):
        is_complete[is_complete] = [key not in tracked for key in keys]
    in_complete = is_complete[group]
    remaining = np.sort(order[~in_complete])
    complete = ordered if in_complete.all() else ordered.where(in_complete)
    return Groups(complete, _starts(sizes[is_complete])), fragments.where(remaining)


def assemble(datagrams: Datagrams, groups: Groups) -> Messages:
    """Return the messages of complete groups, and whether the hash of each is right."""
    if not len(groups):
        return Messages.empty()
    fragments = groups.fragments
    parts = datagrams.payloads(fragments.rows, fragments.starts)
    offsets = bounds(parts)[np.r_[groups.begins, len(parts)]]
    payloads = binary_array(np.ascontiguousarray(offsets), parts.buffers()[2] or b"")
    return Messages(groups.last_rows(), payloads, hashes(payloads) == fragments.hash[groups.begins])


def hashes(payloads: pa.Array[Any]) -> Ints:
    """Return MurmurHash3 (x86, 32 bits, seed 0, unsigned) of each payload."""
    if not len(payloads):
        return np.zeros(0, np.int64)
    content, digest = memoryview(payloads.buffers()[2] or b""), mmh3.mmh3_32_uintdigest
    return np.array([digest(content[begin:end], 0) for begin, end in pairwise(bounds(payloads).tolist())], np.int64)


def _is_ordered(fragments: Fragments) -> bool:
    """Report whether fragments are sorted by address, port, id and index."""
    above = np.zeros(max(len(fragments) - 1, 0), np.bool_)
    equal = ~above
    for column in (fragments.addresses, fragments.ports, fragments.id, fragments.index):
        above |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool((above | equal).all())


def _boundaries(ordered: Fragments) -> tuple[Ints, Ints]:
    """Return the first fragment of each message, and the number of its fragments."""
    change = np.ones(len(ordered), np.bool_)
    change[1:] = (
        (ordered.id[1:] != ordered.id[:-1])
        | (ordered.ports[1:] != ordered.ports[:-1])
        | (ordered.addresses[1:] != ordered.addresses[:-1])
    )
    begins = np.flatnonzero(change)
    return begins, np.diff(begins, append=len(ordered))


def _agreeing_groups(ordered: Fragments, is_valid: Mask, begins: Ints, group: Ints) -> Mask:
    """Return a mask of the groups with indices 0, 1, ... and one header."""
    agrees = is_valid & (ordered.index == np.arange(len(ordered)) - begins[group])
    for column in (ordered.count, ordered.size, ordered.total, ordered.hash):
        agrees &= column == column[begins][group]
    return np.logical_and.reduceat(agrees, begins) if len(begins) else agrees


def _starts(sizes: Ints) -> Ints:
    return np.cumsum(sizes) - sizes
