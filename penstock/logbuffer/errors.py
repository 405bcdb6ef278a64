"""What can go wrong at a log buffer, as typed errors.

The refusals of an offer carry the number Aeron's API returns for them (``code``).
"""

from __future__ import annotations

from penstock.errors import PenstockError


class LogBufferError(PenstockError):
    """The base of all errors of this package."""


class NotALogBuffer(LogBufferError, ValueError):
    """The file is not an intact log buffer; the message says in one line what is wrong with it."""


class UnsupportedProcessor(LogBufferError, RuntimeError):
    """The order in which plain stores become visible is only known for x86-64."""


class Busy(LogBufferError, RuntimeError):
    """Another process already publishes into this file."""


class MessageTooLarge(LogBufferError, ValueError):
    """The message can never fit: it is longer than the longest one the buffer allows."""


class Lapped(LogBufferError, RuntimeError):
    """The frame a reader wanted next is no longer in the buffer: it was cleaned or overwritten."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the frame at position {position} is no longer in the log buffer")
        self.position = position


class Refused(LogBufferError):
    """An offer was not taken; nothing of it is in the buffer."""

    code = 0


class NotConnected(Refused):
    """No reader is connected."""

    code = -1


class BackPressured(Refused):
    """The position limit is reached: the slowest reader has to go on first."""

    code = -2


class AdminAction(Refused):
    """The term was full and has been rotated; the same offer can be made again at once."""

    code = -3


class Closed(Refused):
    """The publication is closed."""

    code = -4


class MaxPositionExceeded(Refused):
    """The stream has reached the last position it can have (2**31 terms)."""

    code = -5
