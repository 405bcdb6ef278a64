"""Errors of log buffers.

The refusals of an offer carry the number that Aeron's API returns for them (``code``).
"""

from __future__ import annotations

from penstock.errors import PenstockError


class LogBufferError(PenstockError):
    """Base class of the errors of this package."""


class NotALogBuffer(LogBufferError, ValueError):
    """The file is not an intact log buffer; the text gives the reason in one line."""


class UnsupportedProcessor(LogBufferError, RuntimeError):
    """The order of loads and stores is not known on this processor, or its barrier is missing; the text says which."""


class Busy(LogBufferError, RuntimeError):
    """Another process already publishes into this file."""


class MessageTooLarge(LogBufferError, ValueError):
    """The message is longer than the longest one that the buffer allows."""


class Lapped(LogBufferError, RuntimeError):
    """The next frame of a reader is no longer in the buffer: it was cleaned or overwritten."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the frame at position {position} is no longer in the log buffer")
        self.position = position


class Refused(LogBufferError):
    """An offer was refused; nothing of it is in the buffer."""

    code = 0


class NotConnected(Refused):
    """No reader is connected."""

    code = -1


class BackPressured(Refused):
    """The position limit is reached: the slowest reader must advance first."""

    code = -2


class AdminAction(Refused):
    """The term was full and has been rotated; the same offer can be repeated at once."""

    code = -3


class Closed(Refused):
    """The publication is closed."""

    code = -4


class MaxPositionExceeded(Refused):
    """The stream has reached its last possible position (2**31 terms)."""

    code = -5
