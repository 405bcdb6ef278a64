"""Log buffers in Aeron's layout: one writer, several readers, one mapped file between processes.

Read ``descriptor`` (the layout) and ``mapped`` (the file in memory), ``publication`` with ``appender``,
``subscription`` with ``lapped``, then ``recovery`` with ``frame_search`` and ``reshape`` (after a crash). ``aeron`` has
features that only compatibility with Aeron needs. Imports ``errors`` and ``files``.
"""

from penstock.logbuffer.descriptor import Parameters, mtu_for
from penstock.logbuffer.errors import (
    AdminAction,
    BackPressured,
    Busy,
    Closed,
    Lapped,
    LogBufferError,
    MaxPositionExceeded,
    MessageTooLarge,
    NotALogBuffer,
    NotConnected,
    Refused,
    UnsupportedProcessor,
)
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.recovery import Reason, Recovered, Skipped
from penstock.logbuffer.subscription import Subscription

__all__ = [
    "AdminAction",
    "BackPressured",
    "Busy",
    "Closed",
    "Frame",
    "Lapped",
    "LogBufferError",
    "MaxPositionExceeded",
    "MessageTooLarge",
    "NotALogBuffer",
    "NotConnected",
    "Parameters",
    "Publication",
    "Reason",
    "Recovered",
    "Refused",
    "Skipped",
    "Subscription",
    "UnsupportedProcessor",
    "mtu_for",
]
