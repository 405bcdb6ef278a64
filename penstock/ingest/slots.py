"""The slots that datagrams are received into: a mapped file that outlives the receiver.

Layout (little-endian, each part page-aligned): header | mmsghdr[n] | iovec[2n] | sockaddr[n] | matrix
(n x 2,112 bytes) | overflow (n x the rest of the largest datagram). The kernel writes a datagram's length into
its mmsghdr after its bytes; before a round all lengths are set to an impossible value. So whoever maps
the file after a kill knows which slots were filled (balance, section 7).

The header checks itself: what never changes by a CRC32C, the round by standing there three times, of which two tell.
What the kernel wrote has no checksum: it is taken where it can be, and a slot that cannot be as the kernel left it ends
the run. All other words are written anew when the file is mapped.
"""

from __future__ import annotations

import ctypes
import errno
import io
import logging
import mmap
import os
import socket
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from penstock.process.kernel import boot_id
from penstock.wire.datagrams import Datagrams

SLOT_SIZE = 2112
"""Holds any datagram of an Ethernet frame; not a power of two, or all of them would share a few lines of the cache."""
OVERFLOW_SIZE = 65_536 - SLOT_SIZE
UNFILLED = 0xFFFF_FFFF
"""A length no datagram has: nothing was received into this slot."""
LARGEST = 65_535
"""Bytes of the largest datagram."""
MAGIC = 0x33544C53_4B545350  # "PSTKSLT3"
BEFORE = 0x32544C53_4B545350  # "PSTKSLT2": one round, no check
MOST_ROUNDS = 1 << 47
"""As a frame's reserved value holds them."""
PAGE = 4096

_HEADER = np.dtype(
    [("magic", "<u8"), ("slots", "<u8"), ("round", "<u8"), ("boot", "<u8"), ("rounds", "<u8", 2), ("check", "<u8")]
)
_MMSGHDR = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "length"],
        "formats": ["<u8", "<u4", "<u8", "<u8", "<u8", "<u8", "<i4", "<u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_IOVEC = np.dtype([("base", "<u8"), ("length", "<u8")])
SENDER = np.dtype(
    {
        "names": ["family", "port", "ipv4", "ipv6"],
        "formats": ["<u2", ">u2", ">u4", ("u1", 16)],
        "offsets": [0, 2, 4, 8],
        "itemsize": 32,
    }
)
"""A sender's address, as the kernel writes it; those of one socket are of one family."""

_LOGGER = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = getattr(_libc, "recvmmsg", None)


class Slots:
    """The slot memory of one UDP listener, for ``slots`` datagrams of up to 65,535 bytes.

    ``published`` is the round of the last frame in the log buffer: a file made anew begins behind it. A file whose
    header is damaged is put aside; ``unusable`` counts the slots in it that held datagrams, which are lost unless
    their frame was published.
    """

    def __init__(self, path: Path, slots: int, published: int = 0) -> None:
        self.slots = slots
        self.unusable = _put_aside_unusable(path, slots)
        self._view(_mapped(path, slots))
        self._attach(published)

    def _view(self, memory: mmap.mmap) -> None:
        """Sees the parts of the file."""
        self._map, slots, parts = memory, self.slots, self._parts(self.slots)
        self._header = np.frombuffer(memory, _HEADER, 1, parts[0])
        self._messages = np.frombuffer(memory, _MMSGHDR, slots, parts[1])
        self._vectors = np.frombuffer(memory, _IOVEC, 2 * slots, parts[2])
        self._names = np.frombuffer(memory, SENDER, slots, parts[3])
        self._matrix = np.frombuffer(memory, np.uint8, slots * SLOT_SIZE, parts[4]).reshape(slots, SLOT_SIZE)
        self._overflow = np.frombuffer(memory, np.uint8, slots * OVERFLOW_SIZE, parts[5])
        self._overflow = self._overflow.reshape(slots, OVERFLOW_SIZE)

    @staticmethod
    def _parts(slots: int) -> list[int]:
        sizes = (PAGE, slots * 64, slots * 32, slots * 32, slots * SLOT_SIZE, slots * OVERFLOW_SIZE)
        ends = np.cumsum([-(-size // PAGE) * PAGE for size in sizes])
        return [0, *(int(end) for end in ends)]

    def _attach(self, published: int) -> None:
        """Make the kernel's structures point into this mapping; lengths and sender addresses stay."""
        boot = crc32c.crc32c(boot_id().encode())
        number = _round(self._header[0])
        # After a power cut lengths and bytes need not fit together.
        fresh = number is None or self._header["boot"][0] != boot
        base = self._matrix.ctypes.data, self._overflow.ctypes.data
        each = np.arange(self.slots, dtype=np.uint64)
        self._vectors["base"][0::2] = base[0] + each * SLOT_SIZE
        self._vectors["base"][1::2] = base[1] + each * OVERFLOW_SIZE
        self._vectors["length"][0::2] = SLOT_SIZE
        self._vectors["length"][1::2] = OVERFLOW_SIZE
        self._messages["name"] = self._names.ctypes.data + each * SENDER.itemsize
        self._messages["iov"] = self._vectors.ctypes.data + each * 2 * _IOVEC.itemsize
        self._messages["iovlen"] = 2
        self._messages["control"], self._messages["controllen"] = 0, 0
        self._messages["namelen"] = SENDER.itemsize  # the kernel makes it what addresses of the socket's family take
        if fresh:
            self._messages["length"] = UNFILLED
            number = max(number or 0, published if published < MOST_ROUNDS // 2 else 0) + 1
        self._store_round(number or 0)
        if fresh or self._header["magic"][0] != MAGIC:
            self._header["slots"], self._header["boot"] = self.slots, boot
            self._header["magic"] = MAGIC
            self._header["check"] = _check(self._header[0])

    def _store_round(self, number: int) -> None:
        self._number = number
        self._header["round"] = number
        self._header["rounds"] = number

    @property
    def round(self) -> int:
        """Number of the round that the slots are filled for."""
        return self._number

    @property
    def filled(self) -> int:
        """How many slots of this round hold a datagram; those that were one and cannot be read among them."""
        held = np.flatnonzero(self._messages["length"] <= LARGEST)
        return int(held[-1]) + 1 if len(held) else 0

    def drop_unreadable(self, begin: int) -> int:
        """Make slots from ``begin`` on that hold no possible length empty datagrams; how many there were."""
        lengths = self._messages["length"][begin : self.filled]
        wrong = lengths > LARGEST
        lengths[wrong] = 0
        return int(wrong.sum())

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

    def senders(self, begin: int, end: int) -> npt.NDArray[np.void]:
        """The addresses of the senders of slots [begin, end), as views."""
        return self._names[begin:end]

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
        self._store_round(self._number + 1)


def _identities(names: npt.NDArray[np.void]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Of the addresses of one socket's senders: they are of one family."""
    if not len(names) or names["family"][0] != socket.AF_INET6:
        return names["ipv4"]  # as it stands in the slots, not copied: hardly ever looked at
    ipv6 = names["ipv6"].copy().view("<u8").reshape(-1, 2)
    mixed: npt.NDArray[np.uint64] = ipv6[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ ipv6[:, 1]
    return mixed


def _check(header: np.void) -> int:
    """The checksum of what never changes in a header."""
    return crc32c.crc32c(struct.pack("<3Q", header["magic"], header["slots"], header["boot"]))


def _round(header: np.void) -> int | None:
    """The number of the round in a header, as two of three say; None where it is damaged, or there is none yet."""
    numbers = [int(number) for number in (header["round"], *header["rounds"])]
    if header["magic"] == BEFORE:
        numbers[1:] = numbers[:1]
    elif header["magic"] != MAGIC or header["check"] != _check(header):
        return None
    number, times = Counter(numbers).most_common(1)[0]
    return number if times > 1 and number < MOST_ROUNDS else None


def _put_aside_unusable(path: Path, slots: int) -> int:
    """Put a file aside that is damaged, or of another size with datagrams in it; how many datagrams are in it."""
    size = path.stat().st_size if path.exists() else 0
    with path.open("rb") if size else io.BytesIO() as file:
        begin = file.read(Slots._parts(slots)[2])
    header = np.frombuffer(begin[:PAGE].ljust(PAGE, b"\0"), _HEADER, 1)[0]
    made = int(header["slots"]) if _round(header) is not None else 0
    is_whole = made > 0 and size == Slots._parts(made)[-1]
    if not any(begin) or (is_whole and made == slots):
        return 0
    count = max(len(begin) - PAGE, 0) // _MMSGHDR.itemsize
    messages = np.frombuffer(begin, _MMSGHDR, count, PAGE) if count else np.zeros(0, _MMSGHDR)
    held = int(((messages["length"] <= LARGEST) & (messages["iovlen"] > 0)).sum())
    if is_whole and not held:
        path.unlink()  # made for another number of slots
        return 0
    aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(aside)
    _LOGGER.error("%s cannot be used; it is put aside as %s, with %d datagrams", path, aside.name, held)
    return held


def _mapped(path: Path, slots: int) -> mmap.mmap:
    """Map ``path``, made where there is none."""
    size = Slots._parts(slots)[-1]
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
