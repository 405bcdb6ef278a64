"""Sends many datagrams with one system call: sendmmsg over arrays, where the system has it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

# Senders do without Arrow, which this module imports.
if TYPE_CHECKING:
    from penstock.wire.datagrams import Bytes, Ints

MOST = 1024
"""Limit of datagrams per call, from the kernel (UIO_MAXIOV)."""
_IOVEC = np.dtype([("base", "<u8"), ("length", "<u8")])
# struct mmsghdr of 64-bit Linux: a msghdr of 56 bytes (only its iovec and iovec count are set), then msg_len.
_MMSGHDR = np.dtype(
    {
        "names": ["iov", "iovlen", "length"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [16, 24, 56],
        "itemsize": 64,
    }
)
_libc = ctypes.CDLL(None, use_errno=True)
# Workaround: Python's socket module has no sendmmsg. Systems without it send datagram by datagram.
_sendmmsg = getattr(_libc, "sendmmsg", None)


class DatagramBatch:
    """``n`` datagrams in memory, each the concatenation of ``parts`` pieces.

    ``memories`` holds one array per piece of a datagram; ``starts`` and ``lengths`` are int64 (n, parts): the offset
    of each piece in its array, and its length in bytes.
    """

    def __init__(self, memories: Sequence[Bytes], starts: Ints, lengths: Ints) -> None:
        self._memories = memories
        self._starts, self._lengths = starts, lengths
        rows, parts = starts.shape
        bases = np.array([memory.ctypes.data for memory in memories], np.uint64)
        self._vectors = np.empty((rows, parts), _IOVEC)
        self._vectors["base"] = bases + starts.astype(np.uint64)
        self._vectors["length"] = lengths
        self._messages = np.zeros(rows, _MMSGHDR)
        self._messages["iov"] = self._vectors.ctypes.data + np.arange(rows, dtype=np.uint64) * parts * _IOVEC.itemsize
        self._messages["iovlen"] = parts

    @classmethod
    def from_datagrams(cls, datagrams: Sequence[bytes]) -> DatagramBatch:
        """Return a batch of complete datagrams, each a single piece."""
        lengths = np.array([len(datagram) for datagram in datagrams], np.int64).reshape(-1, 1)
        # One byte for an empty batch: numpy has no address for an empty buffer.
        memory = np.frombuffer(b"".join(datagrams) or b"\0", np.uint8)
        return cls([memory], np.cumsum(lengths, axis=0) - lengths, lengths)

    def __len__(self) -> int:
        return len(self._messages)

    def send(self, sock: socket.socket) -> int:
        """Send all datagrams over the connected ``sock``; return their number, as the kernel reports it.

        A missing listener is not an error: its datagrams are sent and lost. Raises OSError for other failures.
        """
        sent = 0
        while sent < len(self):
            sent += self._send_from(sock, sent)
        return sent

    def _send_from(self, sock: socket.socket, begin: int) -> int:
        if _sendmmsg is None:
            return self._send_one(sock, begin)
        first_message = self._messages.ctypes.data + begin * _MMSGHDR.itemsize
        sent_count = _sendmmsg(sock.fileno(), ctypes.c_void_p(first_message), min(len(self) - begin, MOST), 0)
        if sent_count >= 0:
            return int(sent_count)
        error = ctypes.get_errno()
        # ECONNREFUSED refers to an earlier datagram whose port had no listener; these are still unsent.
        if error in (errno.ECONNREFUSED, errno.EINTR, errno.EAGAIN):
            return 0
        raise OSError(error, os.strerror(error))

    def _send_one(self, sock: socket.socket, row: int) -> int:
        spans = zip(self._memories, self._starts[row].tolist(), self._lengths[row].tolist(), strict=True)
        datagram = b"".join(memory[start : start + length].tobytes() for memory, start, length in spans)
        try:
            sock.send(datagram)
        except ConnectionRefusedError:
            # The error belongs to an earlier datagram; this one is still unsent.
            return 0
        return 1
