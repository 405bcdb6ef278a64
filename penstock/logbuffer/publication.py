"""The writer of a log buffer: an exclusive publication without a media driver.

Without a driver, the writer itself owns the position limit, the connected flag and the cleaning. One process at a time
publishes into a file, under a lock that is released when it dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from penstock.logbuffer import descriptor, recovery
from penstock.logbuffer.appender import Appender
from penstock.logbuffer.errors import BackPressured, Closed, MaxPositionExceeded, MessageTooLarge
from penstock.logbuffer.mapped import Frame, LogFile, create_file, lock_file, require_ordered_memory


class Publication:
    """Appends messages to a log buffer, each as one frame. Not thread-safe.

    ``position_limit`` is the position at which offers are refused; ``window`` is its distance to the slowest reader in
    bytes, at most a term.
    """

    def __init__(self, log: LogFile, lock: IO[bytes], recovered: recovery.Recovered) -> None:
        self.recovered = recovered
        """Outcome of recovery when the file was opened; empty after creation."""
        self.window = log.parameters.window or log.term_length // 2
        self.position_limit = recovered.position
        self.max_message_length = min(
            descriptor.max_message_length(log.term_length), log.parameters.mtu - descriptor.HEADER_LENGTH
        )
        self._log = log
        self._lock = lock
        self._tail = Appender(log, recovered.position, recovered.cleaned, recovered.last)

    @classmethod
    def create(
        cls, path: Path | str, parameters: descriptor.Parameters, *, position: int = 0, readers: Sequence[int] = ()
    ) -> Self:
        """Create a file whose first frame is at ``position``.

        In place of a lost file it begins at the highest of ``readers``, the positions of existing readers; padding
        leads the others there, and readers more than two terms behind get Lapped. Raises FileExistsError, OSError
        (such as a full disk) and UnsupportedProcessor.
        """
        require_ordered_memory()
        term_length = parameters.term_length
        if position % descriptor.FRAME_ALIGNMENT or not 0 <= position < descriptor.max_position(term_length):
            raise ValueError(f"a stream cannot begin at position {position}")
        position = max(position, *map(descriptor.align, readers), 0)
        create_file(Path(path), parameters, position)
        lock = lock_file(Path(path))
        log = LogFile(path, writable=True)
        # Without a media driver nobody else sets the flag.
        log.store(descriptor.IS_CONNECTED, 1)
        oldest = log.term_begin(position) - 2 * term_length
        begin = max(min(readers, default=position), oldest)
        recovery.pad(log, begin, position, readers)
        return cls(log, lock, recovery.Recovered(position, begin))

    @classmethod
    def open(
        cls, path: Path | str, *, readers: Sequence[int] = (), expected: descriptor.Parameters | None = None
    ) -> Self:
        """Continue a file after its writer ended in any way; ``recovered`` lists what was skipped.

        ``readers`` are the positions of readers: bytes before the lowest are not missed, and nothing is written before
        the highest. A file of the wrong size is resized. Damaged metadata are rebuilt from their remains and from the
        frames, with ``expected`` also if all metadata are gone. Raises NotALogBuffer, Busy, OSError,
        UnsupportedProcessor.
        """
        require_ordered_memory()
        lock = lock_file(Path(path))
        try:
            # Order: the lock first, so that only one process repairs the file.
            log, recovered = recovery.recover(Path(path), readers, expected)
        except BaseException:
            lock.close()
            raise
        return cls(log, lock, recovered)

    @property
    def path(self) -> Path:
        return self._log.path

    @property
    def parameters(self) -> descriptor.Parameters:
        return self._log.parameters

    @property
    def position(self) -> int:
        """Position of the next frame."""
        return self._tail.position

    def last_frame(self) -> Frame | None:
        """Return the last data frame before the tail, unless it was cleaned."""
        last = self._tail.last
        length, flags, kind = self._log.whole_frame(last) if last is not None else (0, 0, descriptor.PAD)
        return self._log.frame(last, length, flags) if last is not None and length and kind == descriptor.DATA else None

    def consumed(self, position: int) -> None:
        """Raise the limit for the slowest reader's ``position``, and clean one term behind that reader."""
        # Limit: one term per call, so that no offer waits for the zeroing of several terms.
        self._tail.clean_one_term(position - self._log.term_length)
        self.position_limit = max(self.position_limit, position + min(self.window, self._log.term_length))

    def offer(self, data: Any, reserved_value: int = 0) -> int:
        """Append one message (a buffer, or a list of buffers to join) and return the new position.

        Raises a Refused (BackPressured, AdminAction, MaxPositionExceeded, Closed) with nothing written, or
        MessageTooLarge.
        """
        parts = parts_of(data)
        length = sum(map(len, parts))
        self._check_limit(length)
        self._check_length(length)
        self._tail.make_room(self._tail.required(length))
        self._tail.append(parts, length, reserved_value)
        return self._tail.position

    def release(self) -> None:
        """Unmap touched pages now and then, so that not all terms count as this process's memory; called often."""
        self._log.release(self._tail.position)

    def close(self) -> None:
        self._log.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_limit(self, length: int) -> None:
        if self._log.closed:
            raise Closed("the publication is closed")
        if self._tail.position >= self.position_limit:
            self._refuse(length)

    def _refuse(self, length: int) -> NoReturn:
        if self.position + descriptor.align(length + descriptor.HEADER_LENGTH) >= descriptor.max_position(
            self._log.term_length
        ):
            raise MaxPositionExceeded(f"the stream ends after position {self.position}")
        raise BackPressured(f"position {self.position} has reached the limit of {self.position_limit}")

    def _check_length(self, length: int) -> None:
        if length > self.max_message_length:
            raise MessageTooLarge(f"message exceeds maxMessageLength of {self.max_message_length}, length={length}")


def parts_of(data: Any) -> list[memoryview]:
    """Return the non-empty buffers of ``data`` (a buffer, or a list or tuple of them) as views of bytes."""
    buffers = data if isinstance(data, list | tuple) else (data,)
    views = (memoryview(buffer) for buffer in buffers)
    return [view.cast("B") for view in views if view.nbytes]
