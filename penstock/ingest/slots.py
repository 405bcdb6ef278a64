"""The slots that datagrams are received into: a mapped file that outlives the receiver.

Layout (little-endian, each part page-aligned): header | mmsghdr[n] | iovec[2n] | sockaddr[n] | matrix
(n x 2,112 bytes) | overflow (n x the rest of the largest datagram). The kernel writes a datagram's length into
its mmsghdr after its bytes; before a round all lengths are set to an impossible value. So whoever maps
the file after a kill knows which slots were filled (balance, section 7).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from penstock.process.boot_id import boot_id
from penstock.wire.datagrams import Datagrams

SLOT_SIZE = 2112
"""Holds any datagram of an Ethernet frame; not a power of two, or all of them would share a few lines of the cache."""
OVERFLOW_SIZE = 65_536 - SLOT_SIZE
UNFILLED = 0xFFFF_FFFF
"""A length no datagram has: nothing was received into this slot."""
MAGIC = 0x32544C53_4B545350  # "PSTKSLT2"
PAGE = 4096

_HEADER = np.dtype([("magic", "<u8"), ("slots", "<u8"), ("round", "<u8"), ("boot", "<u8")])
_MMSGHDR = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "length"],
        "formats": ["<u8", "<u4", "<u8", "<u8", "<u8", "<u8", "<i4", "<u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_IOVEC = np.dtype([("base", "<u8"), ("length", "<u8")])
_SOCKADDR = np.dtype(
    {
        "names": ["family", "port", "ipv4", "ipv6"],
        "formats": ["<u2", ">u2", ">u4", ("u1", 16)],
        "offsets": [0, 2, 4, 8],
        "itemsize": 32,
    }
)

_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = getattr(_libc, "recvmmsg", None)


class Slots:
    """The slot memory of one UDP listener, for ``slots`` datagrams of up to 65,535 bytes."""

    def __init__(self, path: Path, slots: int) -> None:
        self._map = _mapped(path, slots)
        self.slots = slots
        parts = self._parts(slots)
        self._header = np.frombuffer(self._map, _HEADER, 1, parts[0])
        self._messages = np.frombuffer(self._map, _MMSGHDR, slots, parts[1])
        self._vectors = np.frombuffer(self._map, _IOVEC, 2 * slots, parts[2])
        self._names = np.frombuffer(self._map, _SOCKADDR, slots, parts[3])
        self._matrix = np.frombuffer(self._map, np.uint8, slots * SLOT_SIZE, parts[4]).reshape(slots, SLOT_SIZE)
        self._overflow = np.frombuffer(self._map, np.uint8, slots * OVERFLOW_SIZE, parts[5])
        self._overflow = self._overflow.reshape(slots, OVERFLOW_SIZE)
        self._attach()

    @staticmethod
    def _parts(slots: int) -> list[int]:
        sizes = (PAGE, slots * 64, slots * 32, slots * 32, slots * SLOT_SIZE, slots * OVERFLOW_SIZE)
        ends = np.cumsum([-(-size // PAGE) * PAGE for size in sizes])
        return [0, *(int(end) for end in ends)]

    def _attach(self) -> None:
        """Make the kernel's structures point into this mapping; lengths and sender addresses stay."""
        boot = crc32c.crc32c(boot_id().encode())
        fresh = self._header["magic"][0] != MAGIC or self._header["slots"][0] != self.slots
        fresh = fresh or self._header["boot"][0] != boot  # after a power cut lengths and bytes need not fit together
        base = self._matrix.ctypes.data, self._overflow.ctypes.data
        each = np.arange(self.slots, dtype=np.uint64)
        self._vectors["base"][0::2] = base[0] + each * SLOT_SIZE
        self._vectors["base"][1::2] = base[1] + each * OVERFLOW_SIZE
        self._vectors["length"][0::2] = SLOT_SIZE
        self._vectors["length"][1::2] = OVERFLOW_SIZE
        self._messages["name"] = self._names.ctypes.data + each * _SOCKADDR.itemsize
        self._messages["iov"] = self._vectors.ctypes.data + each * 2 * _IOVEC.itemsize
        self._messages["iovlen"] = 2
        self._messages["namelen"] = _SOCKADDR.itemsize  # the kernel makes it what addresses of the socket's family take
        if fresh:
            self._messages["length"] = UNFILLED
            self._header["slots"], self._header["boot"] = self.slots, boot
            self._header["round"] += 1
            self._header["magic"] = MAGIC

    @property
    def round(self) -> int:
        """Number of the round that the slots are filled for."""
        return int(self._header["round"][0])

    @property
    def filled(self) -> int:
        """How many slots of this round hold a datagram."""
        unfilled = np.flatnonzero(self._messages["length"] == UNFILLED)
        return int(unfilled[0]) if len(unfilled) else self.slots

    def receive(self, sock: socket.socket, begin: int) -> int:
        """Receive what waits, without blocking, into the slots from ``begin`` on; how many datagrams.

        Raises OSError for anything but an empty socket.
        """
        if _recvmmsg is None:
            return self._receive_one_by_one(sock, begin)
        at = self._messages.ctypes.data + begin * _MMSGHDR.itemsize
        got = _recvmmsg(
            sock.fileno(), ctypes.c_void_p(at), ctypes.c_uint(self.slots - begin), socket.MSG_DONTWAIT, None
        )
        if got < 0:
            error = ctypes.get_errno()
            if error in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ECONNREFUSED):
                return 0
            raise OSError(error, os.strerror(error))
        return int(got)

    def _receive_one_by_one(self, sock: socket.socket, begin: int) -> int:
        for slot in range(begin, self.slots):
            try:
                parts = [memoryview(self._matrix[slot]), memoryview(self._overflow[slot])]
                length, _, _, address = sock.recvmsg_into(parts, 0, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return slot - begin
            self._name(slot, sock.family, address)
            self._messages["length"][slot] = length
        return self.slots - begin

    def _name(self, slot: int, family: int, address: tuple[str, int]) -> None:
        name = self._names[slot : slot + 1]
        name["family"], name["port"] = family, address[1]
        packed = np.frombuffer(socket.inet_pton(family, address[0]), np.uint8)
        if family == socket.AF_INET:
            name["ipv4"] = int.from_bytes(packed.tobytes(), "big")
        else:
            name["ipv6"][0] = packed

    def lengths(self, begin: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Bytes of the datagrams of slots [begin, end)."""
        return self._messages["length"][begin:end].astype(np.int64)

    def datagrams(self, begin: int, end: int) -> Datagrams:
        """The datagrams of slots [begin, end), as views."""
        names = self._names[begin:end]
        return Datagrams(
            matrix=self._matrix[begin:end],
            overflow=self._overflow[begin:end],
            lengths=self.lengths(begin, end),
            addresses=_identities(names),
            ports=names["port"],
        )

    def sender(self, slot: int) -> tuple[str, int]:
        """Address and port of the sender of slot ``slot``, as socket.sendto takes it."""
        name = self._names[slot]
        if name["family"] == socket.AF_INET6:
            return socket.inet_ntop(socket.AF_INET6, name["ipv6"].tobytes()), int(name["port"])
        return socket.inet_ntoa(int(name["ipv4"]).to_bytes(4, "big")), int(name["port"])

    def next_round(self) -> None:
        """Everything of this round is published: make the slots ready for the next one."""
        # The lengths first: a round number that ran ahead would make filled slots look new.
        self._messages["length"] = UNFILLED
        self._header["round"] += 1


def _identities(names: npt.NDArray[np.void]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Of the addresses of one socket's senders: they are of one family."""
    if not len(names) or names["family"][0] != socket.AF_INET6:
        return names["ipv4"]  # as it stands in the slots, not copied: hardly ever looked at
    ipv6 = names["ipv6"].copy().view("<u8").reshape(-1, 2)
    mixed: npt.NDArray[np.uint64] = ipv6[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ ipv6[:, 1]
    return mixed


def _mapped(path: Path, slots: int) -> mmap.mmap:
    """Map ``path``, made anew when its size is another."""
    size = Slots._parts(slots)[-1]
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size != size:
            os.ftruncate(descriptor, 0)
            os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
