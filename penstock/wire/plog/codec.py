"""Decoder of plog's UDP protocol: a round of datagrams in, messages and counts out (plog's README, "UDP protocol").

A first byte above 31 begins an unboxed message; version 0 carries commands and fragments; everything else is counted
as invalid. Invariant: both books, of datagrams and of messages, balance after every call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import values_of
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Decoded, Piece, join
from penstock.wire.plog import header
from penstock.wire.plog.commands import Command, parse_command
from penstock.wire.plog.fragments import Defragmenter
from penstock.wire.plog.holes import HoleSettings
from penstock.wire.plog.statistics import Statistics
from penstock.wire.raw import lines_as_messages

__all__ = ["PlogDecoder", "PlogSettings"]


@dataclass(frozen=True, slots=True)
class PlogSettings:
    """Limits of the decoder.

    ``max_size``: bytes of the largest fragmented message, and of all unfinished messages together; times in seconds.
    """

    max_size: int = 1 << 20
    expire_time: float = 10.0
    holes: HoleSettings = field(default_factory=HoleSettings)


class PlogDecoder:
    """Decoder of one listener's rounds; ``statistics`` has plog's keys. Used by one thread.

    Times are seconds of a monotonic clock.
    """

    def __init__(self, settings: PlogSettings | None = None) -> None:
        chosen = settings or PlogSettings()
        self.statistics = Statistics()
        self._defragmenter = Defragmenter(chosen.max_size, chosen.expire_time, chosen.holes, self.statistics)

    @property
    def open_messages(self) -> int:
        """Number of messages that wait for fragments."""
        return self._defragmenter.table.open_messages

    @property
    def open_fragments(self) -> int:
        """Number of fragments held for unfinished messages."""
        return self._defragmenter.table.open_fragments

    @property
    def held_bytes(self) -> int:
        """Bytes of the held fragments."""
        return self._defragmenter.table.held_bytes

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """Decode a round, or a part of one. No datagram raises."""
        counts = self.expire(now)
        counts[Name.TAKEN] += len(datagrams)
        unboxed = (datagrams.lengths > 0) & (datagrams.matrix[: len(datagrams), 0] > header.LAST_VERSION)
        rows = np.flatnonzero(unboxed)
        all_unboxed = len(rows) == len(datagrams)
        counts.absorb(dict.fromkeys((Name.UNBOXED, Name.SEEN, Name.ACCEPTED), len(rows)))
        self.statistics.udp_simple_messages += len(rows)
        pieces = [Piece(rows, datagrams.payloads(None if all_unboxed else rows))]
        # Fast path: a round of unboxed messages needs no sorting, no headers and no table.
        if all_unboxed:
            joined, rows = join(pieces)
            return Decoded(joined, counts, rows=rows)
        fragments, commands = self._classify(datagrams, np.flatnonzero(~unboxed), counts)
        if len(fragments):
            pieces += self._defragmenter.add_fragments(datagrams, fragments, now, counts)
        joined, rows = join(pieces)
        return Decoded(joined, counts, commands, rows)

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded:
        """Return the lines of TCP as messages, one per line."""
        return lines_as_messages(lines, self.statistics)

    def expire(self, now: float) -> Counts:
        """Give up messages whose fragments did not arrive in time."""
        counts = Counts()
        self._defragmenter.expire(now, counts)
        return counts

    def _classify(self, datagrams: Datagrams, rows: Ints, counts: Counts) -> tuple[header.Fragments, list[Command]]:
        """Return fragments and commands among the boxed datagrams ``rows``; count the invalid ones."""
        lengths, head = datagrams.lengths[rows], datagrams.matrix[rows, :2]
        empty = lengths == 0
        version = ~empty & (head[:, 0] != header.VERSION)
        single_byte = ~empty & ~version & (lengths == 1)
        typed = ~empty & ~version & ~single_byte
        is_command = typed & (head[:, 1] == header.COMMAND)
        is_fragment = typed & (head[:, 1] == header.FRAGMENT)
        fragments, short_headers = header.parse(datagrams, rows[is_fragment])
        unknown_type = int((typed & ~is_command & ~is_fragment).sum())
        self.statistics.udp_invalid_version += int(version.sum())
        self.statistics.v0_invalid_type += unknown_type
        self.statistics.v0_invalid_multipart_header += short_headers + int(single_byte.sum())
        counts[Name.EMPTY] += int(empty.sum())
        counts[f"{Name.INVALID}version"] += int(version.sum())
        counts[f"{Name.INVALID}type"] += unknown_type
        counts[f"{Name.INVALID}header"] += short_headers + int(single_byte.sum())
        is_invalid = version | single_byte | (typed & ~is_command & ~is_fragment)
        if short_headers or is_invalid.any():
            invalid_rows = [rows[is_invalid], np.setdiff1d(rows[is_fragment], fragments.rows)]
            self.statistics.losses.add_all(Name.INVALID, datagrams.addresses[np.concatenate(invalid_rows)])
        return fragments, self._parse_commands(datagrams, rows[is_command], counts)

    def _parse_commands(self, datagrams: Datagrams, rows: Ints, counts: Counts) -> list[Command]:
        if not len(rows):
            return []
        packets = zip(rows.tolist(), values_of(datagrams.payloads(rows)), strict=True)
        commands = [command for row, packet in packets if (command := parse_command(row, packet)) is not None]
        unknown_count = len(rows) - len(commands)
        counts[Name.COMMAND] += len(commands)
        counts[f"{Name.INVALID}unknown_command"] += unknown_count
        self.statistics.v0_commands += len(commands)
        self.statistics.unknown_command += unknown_count
        if unknown_count:
            unknown_rows = np.setdiff1d(rows, [command.index for command in commands])
            self.statistics.losses.add_all(Name.INVALID, datagrams.addresses[unknown_rows])
        return commands
