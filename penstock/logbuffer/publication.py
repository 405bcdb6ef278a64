"""The writer of a log buffer: an exclusive publication without a media driver.

As there is no driver, the writer itself owns the position limit, the connected flag and the cleaning.
One process at a time publishes into a file; a lock that dies with it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from penstock.logbuffer import blocks, recovery
from penstock.logbuffer import descriptor as d
from penstock.logbuffer.appender import Appender
from penstock.logbuffer.claim import Claim
from penstock.logbuffer.errors import (
    BackPressured,
    Closed,
    MaxPositionExceeded,
    MessageTooLarge,
    NotConnected,
)
from penstock.logbuffer.mapped import Frame, LogFile, create_file, lock_file, require_x86_64
from penstock.logbuffer.payload_parts import parts_of
from penstock.logbuffer.position_limit import Cleaning, Limit


class Publication:
    """Appends messages to a log buffer. Not for several threads at once.

    ``position`` is where the next frame goes, ``position_limit`` where offers begin to be refused;
    ``window`` is how far the limit runs ahead of the slowest reader (bytes, at most a term).
    """

    def __init__(self, log: LogFile, lock: IO[bytes], recovered: recovery.Recovered, cleaning: Cleaning) -> None:
        self.recovered = recovered
        """What was found and skipped when the file was opened; nothing when it was created."""
        self.max_payload_length = log.parameters.mtu - d.HEADER_LENGTH
        self.max_message_length = d.max_message_length(log.term_length)
        self._log = log
        self._lock = lock
        self._mtu = log.parameters.mtu
        self._tail = Appender(log, recovered.position, recovered.cleaned, recovered.last)
        window = log.parameters.window or log.term_length // 2
        self._limit = Limit(self._tail, log.term_length, window, cleaning)

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        term_length: int,
        mtu: int,
        session_id: int,
        stream_id: int,
        initial_term_id: int,
        position: int = 0,
        readers: Sequence[int] = (),
        cleaning: Cleaning = Cleaning.LAGGING,
        connected: bool = True,
        **more: Any,
    ) -> Publication:
        """A new file whose first frame will stand at ``position``.

        In the place of a lost one it begins at the highest of ``readers``, the positions to which readers
        have come, and padding leads the others there (those more than two terms behind are Lapped).
        ``more`` are further fields of ``descriptor.Parameters``. Raises FileExistsError, ValueError for
        lengths the layout does not allow, OSError (a full disk) and UnsupportedProcessor.
        """
        require_x86_64()
        parameters = d.Parameters(term_length, mtu, session_id, stream_id, initial_term_id, **more)
        if position % d.FRAME_ALIGNMENT or not 0 <= position < d.max_position(term_length):
            raise ValueError(f"a stream cannot begin at position {position}")
        position = max(position, *map(d.align, readers), 0)
        create_file(Path(path), parameters, position)
        lock = lock_file(Path(path))
        log = LogFile(path, writable=True)
        log.store(d.IS_CONNECTED, int(connected))
        oldest = log.term_begin(position) - 2 * term_length
        begin = max(min(readers, default=position), oldest)
        recovery.pad(log, begin, position, readers)
        return cls(log, lock, recovery.Recovered(position, begin), cleaning)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        readers: Sequence[int] = (),
        expected: d.Parameters | None = None,
        cleaning: Cleaning = Cleaning.LAGGING,
    ) -> Publication:
        """Goes on with a file after its writer ended, in whatever way; ``recovered`` says what was skipped.

        ``readers`` are the positions up to which readers have come: what lies before the lowest is not
        missed, and nothing is written before the highest. A file of the wrong size gets the right one;
        one whose metadata are damaged is rebuilt from what is left of them and from its frames, and with
        ``expected`` also where all of them are gone. Raises NotALogBuffer, Busy, OSError, UnsupportedProcessor.
        """
        require_x86_64()
        lock = lock_file(Path(path))
        try:
            log, recovered = recovery.recover(Path(path), readers, expected)
        except BaseException:
            lock.close()
            raise
        return cls(log, lock, recovered, cleaning)

    # State

    @property
    def path(self) -> Path:
        return self._log.path

    @property
    def parameters(self) -> d.Parameters:
        return self._log.parameters

    @property
    def position(self) -> int:
        """Where the next frame goes."""
        return self._tail.position

    @property
    def position_limit(self) -> int:
        return self._limit.position

    @position_limit.setter
    def position_limit(self, value: int) -> None:
        self._limit.position = value

    @property
    def window(self) -> int:
        return self._limit.window

    @window.setter
    def window(self, value: int) -> None:
        self._limit.window = value

    @property
    def closed(self) -> bool:
        return self._log.closed

    @property
    def connected(self) -> bool:
        return self._log.load(d.IS_CONNECTED) == 1

    @connected.setter
    def connected(self, value: bool) -> None:
        self._log.store(d.IS_CONNECTED, int(value))

    def last_frame(self) -> Frame | None:
        """The last frame before the tail that is no padding, if it was not cleaned."""
        last = self._tail.last
        length, flags, kind = self._log.whole_frame(last) if last is not None else (0, 0, d.PAD)
        return self._log.frame(last, length, flags) if last is not None and length and kind == d.DATA else None

    # Limit and cleaning

    def consumed(self, position: int) -> None:
        """The slowest reader has come to ``position``: raises the limit, and cleans behind it. See Cleaning."""
        self._limit.consumed(position)

    def disconnect(self, furthest: int = 0) -> None:
        """No reader is left: offers are refused as NotConnected until there is one again.

        ``furthest``: how far one had come, where it was ahead of the slowest; the next reader begins there.
        """
        self.connected = False
        self._limit.withdraw(furthest)

    def clean_to(self, position: int) -> None:
        """Zeroes everything before ``position``. No reader may need it any more."""
        self._tail.clean_to(position)

    # Offers

    def offer(self, data: Any, reserved_value: int = 0) -> int:
        """Appends one message (a buffer, or a list of buffers put together) and returns the new position.

        Longer than the MTU allows, it becomes several frames, all in one term. Raises a Refused
        (BackPressured, NotConnected, AdminAction, MaxPositionExceeded, Closed) with nothing written, or
        MessageTooLarge.
        """
        parts = parts_of(data)
        length = sum(map(len, parts))
        self._check_limit(length)
        if length <= self.max_payload_length:
            required = d.align(length + d.HEADER_LENGTH)
        elif length <= self.max_message_length:
            required = d.fragmented_length(length, self._mtu)
        else:
            raise MessageTooLarge(f"message exceeds maxMessageLength of {self.max_message_length}, length={length}")
        self._tail.make_room(required)
        self._tail.append(parts, length, reserved_value, self._mtu)
        return self._tail.position

    def offer_batch(self, data: Any, offsets: blocks.Integers, reserved_values: Any = 0) -> int:
        """Appends many messages, ``data[offsets[i]:offsets[i + 1]]``, as one block of unfragmented frames.

        ``offsets`` is (n + 1,) int64 and rises; ``reserved_values`` is one integer or (n,). Returns how
        many were taken, from the first on: as many as fit into the term and begin before the limit. Raises
        as ``offer`` when it is none, and MessageTooLarge when one needs more than a frame.
        """
        lengths = np.diff(offsets)
        if not len(lengths):
            return 0
        self._check_payload(int(lengths.max()))
        self._take(int(lengths[0]), d.align(int(lengths[0]) + d.HEADER_LENGTH))
        begin, starts = self.position, blocks.frame_starts(lengths)
        room = self._log.term_end(begin) - begin
        count = blocks.how_many(starts, room, self.position_limit - begin)
        values = reserved_values if np.ndim(reserved_values) == 0 else reserved_values[:count]
        payload = np.frombuffer(memoryview(data).cast("B"), np.uint8)[int(offsets[0]) : int(offsets[count])]
        self._tail.append_batch(payload, lengths[:count], starts[: count + 1], values)
        return count

    def offer_block(self, block: Any) -> int:
        """Appends a prepared block of whole frames in one copy and returns the new position.

        Its first frame must be a data frame of this stream for exactly this position, and it must fit
        into the term: ValueError otherwise. Nothing else in it is looked at. A full term is left without
        an AdminAction, as Aeron does here.
        """
        view = memoryview(block).cast("B")
        if not self._log.closed:
            self._tail.leave_full_term()
        self._check_limit(len(view))
        self._tail.check_block(view)
        self._tail.append_block(view)
        return self.position

    def append_padding(self, length: int) -> int:
        """Appends a padding frame with ``length`` bytes after its header; readers skip it."""
        longest = d.fragmented_length(self.max_message_length, self._mtu)
        if length > longest:
            raise MessageTooLarge(f"padding exceeds maxFramedLength of {longest}, length={length}")
        required = d.align(length + d.HEADER_LENGTH)
        self._take(length, required)
        begin = self._tail.position
        self._tail.advance(required)
        self._log.pad(begin, length + d.HEADER_LENGTH)
        return self._tail.position

    def try_claim(self, length: int) -> Claim:
        """Room for a message of ``length`` bytes that the caller writes in place, then commits or aborts.

        Readers go no further than the claim until then, so nothing else should be offered before.
        """
        self._check_payload(length)
        required = d.align(length + d.HEADER_LENGTH)
        self._take(length, required)
        begin = self._tail.position
        self._tail.advance(required)
        self._log.begin_frame(begin, length + d.HEADER_LENGTH, d.UNFRAGMENTED, d.DATA, 0)
        self._tail.last = begin
        return Claim(self._log, begin, length + d.HEADER_LENGTH)

    def release(self) -> None:
        """Lets go of the pages touched so far: without it, all three terms come to count as this process's memory."""
        self._log.release()

    def end_of_stream(self) -> None:
        """Says to readers that nothing will follow. Opening the file again takes it back."""
        self._log.store(d.END_OF_STREAM_POSITION, self._tail.reserved)

    def sync(self) -> None:
        """Returns when everything offered so far is on the disk. Milliseconds: not for every offer."""
        self._log.sync()

    def close(self) -> None:
        self._log.close()
        self._lock.close()

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, length: int, required: int) -> None:
        """Raises the Refused that stands against taking ``required`` bytes at the tail."""
        self._check_limit(length)
        self._tail.make_room(required)

    def _check_limit(self, length: int) -> None:
        if self._log.closed:
            raise Closed("the publication is closed")
        if self._tail.position >= self._limit.position:
            self._refuse(length)

    def _refuse(self, length: int) -> NoReturn:
        if self.position + d.align(length + d.HEADER_LENGTH) >= d.max_position(self._log.term_length):
            raise MaxPositionExceeded(f"no room after position {self.position}")
        if not self.connected:
            raise NotConnected("no reader is connected")
        raise BackPressured(f"position {self.position} has reached the limit of {self.position_limit}")

    def _check_payload(self, length: int) -> None:
        if length > self.max_payload_length:
            raise MessageTooLarge(f"claim exceeds maxPayloadLength of {self.max_payload_length}, length={length}")
