"""Aeron's exclusive publication with all its offers, and the duties of its media driver."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Any, NoReturn, Self

import numpy as np

from penstock.logbuffer import descriptor
from penstock.logbuffer.aeron import blocks
from penstock.logbuffer.aeron.appender import AeronAppender
from penstock.logbuffer.aeron.claims import Claim
from penstock.logbuffer.errors import BackPressured, MessageTooLarge, NotConnected
from penstock.logbuffer.mapped import LogFile
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.recovery import Recovered


class Cleaning(Enum):
    """Distance at which the writer zeroes behind its readers, at most one term at a time."""

    CONSUMED = "consumed"
    """Up to the slowest reader whenever the limit rises, as Aeron's driver does for IPC."""
    LAGGING = "lagging"
    """Cleaning one term behind the slowest reader, as for UDP: the last frames read stay in the file."""


class ExclusivePublication(Publication):
    """A Publication that also fragments, claims, and appends padding, blocks and batches. Not thread-safe."""

    def __init__(self, log: LogFile, lock: IO[bytes], recovered: Recovered) -> None:
        super().__init__(log, lock, recovered)
        self.cleaning = Cleaning.LAGGING
        self.max_payload_length = log.parameters.mtu - descriptor.HEADER_LENGTH
        self.max_message_length = descriptor.max_message_length(log.term_length)
        self._tail: AeronAppender = AeronAppender(log, recovered.position, recovered.cleaned, recovered.last)
        self._consumed = recovered.position
        self._next_limit_step = 0

    @classmethod
    def create(
        cls,
        path: Path | str,
        parameters: descriptor.Parameters,
        *,
        position: int = 0,
        readers: Sequence[int] = (),
        cleaning: Cleaning = Cleaning.LAGGING,
        connected: bool = True,
    ) -> Self:
        publication = super().create(path, parameters, position=position, readers=readers)
        publication.cleaning, publication.connected = cleaning, connected
        return publication

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        readers: Sequence[int] = (),
        expected: descriptor.Parameters | None = None,
        cleaning: Cleaning = Cleaning.LAGGING,
    ) -> Self:
        publication = super().open(path, readers=readers, expected=expected)
        publication.cleaning = cleaning
        return publication

    @property
    def connected(self) -> bool:
        return self._log.load(descriptor.IS_CONNECTED) == 1

    @connected.setter
    def connected(self, value: bool) -> None:
        self._log.store(descriptor.IS_CONNECTED, int(value))

    def consumed(self, position: int) -> None:
        """Raise the limit for the slowest reader's ``position`` and clean behind it, see ``Cleaning``."""
        self._consumed = max(self._consumed, position)
        limit = position + min(self.window, self._log.term_length)
        if self.cleaning is Cleaning.LAGGING:
            super().consumed(position)
        # As in Aeron's driver, the limit rises in steps of an eighth of the window.
        elif limit >= self._next_limit_step:
            self._tail.clean_one_term(position)
            self.position_limit = limit
            self._next_limit_step = limit + self.window // 8

    def disconnect(self, furthest: int = 0) -> None:
        """Refuse offers as NotConnected until a reader is connected again.

        ``furthest``: the position of the most advanced former reader, at which the next reader begins.
        """
        self.connected = False
        self._consumed = max(self._consumed, furthest)
        if self.position_limit > self._consumed:
            self.position_limit = self._next_limit_step = self._consumed
            if self.cleaning is Cleaning.CONSUMED:
                self._tail.clean_one_term(self._consumed)

    def clean_to(self, position: int) -> None:
        """Zero all bytes before ``position``; no reader may still need them."""
        self._tail.clean_to(position)

    def offer_batch(self, data: Any, offsets: blocks.Integers, reserved_values: Any = 0) -> int:
        """Append messages ``data[offsets[i]:offsets[i + 1]]`` as one block of unfragmented frames; return the
        number taken.

        ``offsets`` is (n + 1,) int64 and increasing; ``reserved_values`` is one integer or (n,). Takes the first
        messages that fit the term and begin before the limit. Raises as ``offer`` if none does, and MessageTooLarge if
        one exceeds a frame.
        """
        lengths = np.diff(offsets)
        if not len(lengths):
            return 0
        self._check_payload(int(lengths.max()))
        self._make_room(int(lengths[0]), descriptor.align(int(lengths[0]) + descriptor.HEADER_LENGTH))
        begin, starts = self.position, blocks.frame_starts(lengths)
        room = self._log.term_end(begin) - begin
        count = blocks.count_fitting(starts, room, self.position_limit - begin)
        values = reserved_values if np.ndim(reserved_values) == 0 else reserved_values[:count]
        payload = np.frombuffer(memoryview(data).cast("B"), np.uint8)[int(offsets[0]) : int(offsets[count])]
        self._tail.append_batch(payload, lengths[:count], starts[: count + 1], values)
        return count

    def offer_block(self, block: Any) -> int:
        """Append a prepared block of whole frames in one copy and return the new position.

        Raises ValueError unless its first frame is a data frame of this stream for this position, and the block fits
        the term. The other frames are not checked. As in Aeron, a full term is left without an AdminAction.
        """
        view = memoryview(block).cast("B")
        if not self._log.closed:
            self._tail.leave_full_term()
        self._check_limit(len(view))
        self._tail.check_block(view)
        self._tail.append_block(view)
        return self.position

    def append_padding(self, length: int) -> int:
        """Append a padding frame with ``length`` bytes after its header; readers skip it."""
        longest = descriptor.fragmented_length(self.max_message_length, self._log.parameters.mtu)
        if length > longest:
            raise MessageTooLarge(f"padding exceeds maxFramedLength of {longest}, length={length}")
        required = descriptor.align(length + descriptor.HEADER_LENGTH)
        self._make_room(length, required)
        begin = self._tail.position
        self._tail.advance(required)
        self._log.pad(begin, length + descriptor.HEADER_LENGTH)
        return self._tail.position

    def try_claim(self, length: int) -> Claim:
        """Claim room for a message of ``length`` bytes, to write in place and then commit or abort.

        Readers stop at the claim until then, so the caller should offer nothing before.
        """
        self._check_payload(length)
        required = descriptor.align(length + descriptor.HEADER_LENGTH)
        self._make_room(length, required)
        begin = self._tail.position
        self._tail.advance(required)
        self._log.begin_frame(begin, length + descriptor.HEADER_LENGTH, descriptor.UNFRAGMENTED, descriptor.DATA, 0)
        self._tail.last = begin
        return Claim(self._log, begin, length + descriptor.HEADER_LENGTH)

    def end_of_stream(self) -> None:
        """Tell readers that nothing will follow; opening the file again revokes it."""
        self._log.store(descriptor.END_OF_STREAM_POSITION, self._tail.reserved)

    def _make_room(self, length: int, required: int) -> None:
        """Ensure that ``required`` bytes can be taken at the tail. Raises a Refused."""
        self._check_limit(length)
        self._tail.make_room(required)

    def _refuse(self, length: int) -> NoReturn:
        try:
            super()._refuse(length)
        except BackPressured:
            if self.connected:
                raise
            raise NotConnected("no reader is connected") from None

    def _check_payload(self, length: int) -> None:
        if length > self.max_payload_length:
            raise MessageTooLarge(f"claim exceeds maxPayloadLength of {self.max_payload_length}, length={length}")
