"""Log buffers in Aeron's layout: one writer, several readers, one mapped file between processes."""

from penstock.handover.position import ReaderPosition
from penstock.logbuffer.aeron.readers import Readers
from penstock.logbuffer.blocks import Block
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
    NotAReaderPosition,
    NotConnected,
    Refused,
    UnsupportedProcessor,
)
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.position_limit import Cleaning
from penstock.logbuffer.publication import Publication
from penstock.logbuffer.recovery import Reason, Recovered, Skipped
from penstock.logbuffer.subscription import FragmentAssembler, Subscription

__all__ = [
    "AdminAction",
    "BackPressured",
    "Block",
    "Busy",
    "Cleaning",
    "Closed",
    "FragmentAssembler",
    "Frame",
    "Lapped",
    "LogBufferError",
    "MaxPositionExceeded",
    "MessageTooLarge",
    "NotALogBuffer",
    "NotAReaderPosition",
    "NotConnected",
    "Parameters",
    "Publication",
    "ReaderPosition",
    "Readers",
    "Reason",
    "Recovered",
    "Refused",
    "Skipped",
    "Subscription",
    "UnsupportedProcessor",
    "mtu_for",
]
