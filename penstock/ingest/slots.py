"""Slots that datagrams are received into: a mapped file that outlives the receiver.

Layout (little-endian, each part page-aligned): header | mmsghdr[n] | iovec[2n] | sockaddr[n] | matrix (n x 2,112
bytes) | overflow (n x the rest of the largest datagram).

Crash: the kernel writes a datagram's length into its mmsghdr after its bytes, and before a round all lengths are set
to an impossible value. A process that maps the file after a kill therefore knows which slots were filled
(docs/accounting.md, section 7).

Invariant: the header verifies itself. Its constant fields have a CRC32C; the round number is stored three times, and
two equal copies decide. The kernel's data has no checksum: it is used if it is plausible, and the first implausible
slot ends the run. All other words are rewritten when the file is mapped.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
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

from penstock.handover.sender_table import random_key
from penstock.process.kernel import boot_id
from penstock.wire.datagrams import Datagrams

SLOT_SIZE = 2112
"""Bytes of a slot: any datagram of an Ethernet frame fits. A power of two would crowd a few cache sets."""
OVERFLOW_SIZE = 65_536 - SLOT_SIZE
UNFILLED = 0xFFFF_FFFF
"""Length of an empty slot; no datagram has it."""
MAX_DATAGRAM_BYTES = 65_535
"""Limit of UDP: a datagram's length is a 16-bit number."""
MAGIC = 0x31544C53_4B545350  # "PSTKSLT1"
MAX_ROUNDS = 1 << 47
"""Limit of round numbers: a frame's reserved value holds smaller ones."""
PAGE = 4096
"""Bytes of a memory page."""

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
"""Sender's address as the kernel writes it; all addresses of one socket have one family."""
CREDENTIALS = np.dtype(
    {
        "names": ["length", "level", "type", "pid", "uid", "gid"],
        "formats": ["<u8", "<i4", "<i4", "<i4", "<u4", "<u4"],
        "offsets": [0, 8, 12, 16, 20, 24],
        "itemsize": 32,
    }
)
"""Sender's credentials as the kernel writes them for a local socket, in the place of the address (SCM_CREDENTIALS)."""
CREDENTIALS_LENGTH, SCM_CREDENTIALS = 28, 2
NOBODY = 65_534
"""User and group of a sender whose credentials are unknown, as the kernel's overflowuid."""

_UNKNOWN_SENDER = (("pid", 0), ("uid", NOBODY), ("gid", NOBODY))
_LOGGER = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = getattr(_libc, "recvmmsg", None)


class Slots:
    """Slot memory of one UDP listener, for ``slots`` datagrams of up to 65,535 bytes. Used by one thread.

    ``published`` is the round of the last frame in the log buffer: a new file starts after it. A file with a damaged
    header is renamed; ``unusable`` counts its slots that held datagrams, which are lost unless their frame was
    published. ``is_local``: of a local socket; its slots have the senders' credentials instead of addresses.
    """

    def __init__(self, path: Path, slots: int, published: int = 0, *, is_local: bool = False) -> None:
        self.slots, self._is_local = slots, is_local
        self.set_address_key(random_key())
        self.unusable = _set_aside_unusable(path, slots)
        self._map_parts(_map_file(path, slots))
        self._attach(published)

    def _map_parts(self, memory: mmap.mmap) -> None:
        self._map, slots, parts = memory, self.slots, self._parts(self.slots)
        self._header = np.frombuffer(memory, _HEADER, 1, parts[0])
        self._messages = np.frombuffer(memory, _MMSGHDR, slots, parts[1])
        self._vectors = np.frombuffer(memory, _IOVEC, 2 * slots, parts[2])
        self._names = np.frombuffer(memory, SENDER, slots, parts[3])
        self._matrix = np.frombuffer(memory, np.uint8, slots * SLOT_SIZE, parts[4]).reshape(slots, SLOT_SIZE)
        self._overflow = np.frombuffer(memory, np.uint8, slots * OVERFLOW_SIZE, parts[5])
        self._overflow = self._overflow.reshape(slots, OVERFLOW_SIZE)

    @staticmethod
    def file_length(slots: int) -> int:
        """Return the bytes of a file of ``slots`` slots."""
        return Slots._parts(slots)[-1]

    @staticmethod
    def _parts(slots: int) -> list[int]:
        sizes = (PAGE, slots * 64, slots * 32, slots * 32, slots * SLOT_SIZE, slots * OVERFLOW_SIZE)
        ends = np.cumsum([-(-size // PAGE) * PAGE for size in sizes])
        return [0, *(int(end) for end in ends)]

    def _attach(self, published: int) -> None:
        """Point the kernel's structures into this mapping; lengths and sender addresses stay."""
        boot = crc32c.crc32c(boot_id().encode())
        number = _read_round(self._header[0])
        # Crash: after a power cut lengths and bytes may disagree, so slots of an earlier boot are not used.
        is_new_boot_or_file = number is None or self._header["boot"][0] != boot
        base = self._matrix.ctypes.data, self._overflow.ctypes.data
        indices = np.arange(self.slots, dtype=np.uint64)
        self._vectors["base"][0::2] = base[0] + indices * SLOT_SIZE
        self._vectors["base"][1::2] = base[1] + indices * OVERFLOW_SIZE
        self._vectors["length"][0::2] = SLOT_SIZE
        # Limit: the kernel cuts longer datagrams, which only local senders can write, and marks them.
        self._vectors["length"][1::2] = MAX_DATAGRAM_BYTES - SLOT_SIZE
        self._messages["name"] = self._names.ctypes.data + indices * SENDER.itemsize
        self._messages["iov"] = self._vectors.ctypes.data + indices * 2 * _IOVEC.itemsize
        self._messages["iovlen"] = 2
        self._messages["control"], self._messages["controllen"] = 0, 0
        self._messages["namelen"] = SENDER.itemsize  # the kernel overwrites it with the size for the socket's family
        if self._is_local:
            # Room for the credentials alone: the kernel drops file descriptors that a sender passes with them.
            self._messages["control"], self._messages["controllen"] = self._messages["name"], CREDENTIALS.itemsize
            self._messages["name"], self._messages["namelen"] = 0, 0
        if is_new_boot_or_file:
            self._messages["length"] = UNFILLED
            # Limit: a damaged log buffer may state any number; one that leaves no numbers for later rounds is ignored.
            number = max(number or 0, published if published < MAX_ROUNDS // 2 else 0) + 1
        self._store_round(number or 0)
        if is_new_boot_or_file or self._header["magic"][0] != MAGIC:
            self._header["slots"], self._header["boot"] = self.slots, boot
            # Order: magic and checksum last; a header without them is not trusted.
            self._header["magic"] = MAGIC
            self._header["check"] = _header_checksum(self._header[0])

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
        """Number of slots up to the last one that holds a datagram of this round, unreadable ones included."""
        occupied = np.flatnonzero(self._messages["length"] <= MAX_DATAGRAM_BYTES)
        return int(occupied[-1]) + 1 if len(occupied) else 0

    def drop_unreadable(self, begin: int) -> int:
        """Turn slots from ``begin`` on with impossible lengths into empty datagrams; return their number."""
        lengths = self._messages["length"][begin : self.filled]
        is_impossible = lengths > MAX_DATAGRAM_BYTES
        lengths[is_impossible] = 0
        return int(is_impossible.sum())

    def receive(self, sock: socket.socket, begin: int) -> int:
        """Receive pending datagrams without blocking into the slots from ``begin`` on; return their number.

        Raises OSError, except for an empty socket.
        """
        if _recvmmsg is None:
            return self._receive_one_by_one(sock, begin)
        # Fast path: one system call per round; the kernel writes bytes, lengths and senders directly into the slots.
        first_header = self._messages.ctypes.data + begin * _MMSGHDR.itemsize
        count = _recvmmsg(
            sock.fileno(), ctypes.c_void_p(first_header), ctypes.c_uint(self.slots - begin), socket.MSG_DONTWAIT, None
        )
        if count < 0:
            error = ctypes.get_errno()
            if error in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ECONNREFUSED):
                return 0
            raise OSError(error, os.strerror(error))
        return int(count)

    def _receive_one_by_one(self, sock: socket.socket, begin: int) -> int:
        # Workaround: platforms without recvmmsg take one system call per datagram.
        for slot in range(begin, self.slots):
            try:
                parts = [memoryview(self._matrix[slot]), memoryview(self._overflow[slot])]
                length, _, flags, address = sock.recvmsg_into(parts, 0, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return slot - begin
            if not self._is_local:
                self._store_sender(slot, sock.family, address)
            self._messages["flags"][slot] = flags
            self._messages["length"][slot] = length
        return self.slots - begin

    def _store_sender(self, slot: int, family: int, address: tuple[str, int]) -> None:
        name = self._names[slot : slot + 1]
        name["family"], name["port"] = family, address[1]
        packed = np.frombuffer(socket.inet_pton(family, address[0]), np.uint8)
        if family == socket.AF_INET:
            name["ipv4"] = int.from_bytes(packed.tobytes(), "big")
        else:
            name["ipv6"][0] = packed

    def lengths(self, begin: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the sizes of the datagrams in slots [begin, end)."""
        return self._messages["length"][begin:end].astype(np.int64)

    def datagrams(self, begin: int, end: int) -> Datagrams:
        """Return the datagrams in slots [begin, end), as views: nothing is copied before decoding."""
        names = self._names[begin:end]
        return Datagrams(
            matrix=self._matrix[begin:end],
            overflow=self._overflow[begin:end],
            lengths=self.lengths(begin, end),
            addresses=self._credential_identities(begin, end) if self._is_local else self._address_identities(names),
            ports=np.zeros(end - begin, np.uint16) if self._is_local else names["port"],
        )

    def truncated(self, begin: int, end: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the datagrams in slots [begin, end) that the kernel cut."""
        is_cut: npt.NDArray[np.bool_] = (self._messages["flags"][begin:end] & socket.MSG_TRUNC) != 0
        return is_cut

    def credentials(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Return process, user and group of the local senders of slots [begin, end), of shape (slots, 3)."""
        records = self._names[begin:end].view(CREDENTIALS)
        # Crash: after a restart the slots may have been filled by a socket that had no credentials.
        is_valid = (records["length"] == CREDENTIALS_LENGTH) & (records["type"] == SCM_CREDENTIALS)
        columns = [np.where(is_valid, records[name], unknown) for name, unknown in _UNKNOWN_SENDER]
        return np.stack(columns, axis=1).astype(np.int64)

    def _credential_identities(self, begin: int, end: int) -> npt.NDArray[np.unsignedinteger[Any]]:
        credentials = self.credentials(begin, end)
        identities: npt.NDArray[np.uint64] = (credentials[:, 0] << 32 | credentials[:, 1]).astype(np.uint64)
        return identities

    def set_address_key(self, key: int) -> None:
        """Set the secret key of the hash of IPv6 addresses, without which senders could choose equal hashes."""
        words = np.frombuffer(hashlib.shake_128(key.to_bytes(8, "little")).digest(80), "<u8").reshape(5, 2)
        self._address_factors, self._address_addends = words[:4], words[4]

    def _address_identities(self, names: npt.NDArray[np.void]) -> npt.NDArray[np.unsignedinteger[Any]]:
        if not len(names) or names["family"][0] != socket.AF_INET6:
            return names["ipv4"]  # a view: few codecs need the addresses
        words = names["ipv6"].copy().view("<u4").reshape(-1, 4).astype(np.uint64)
        # Multilinear hash: the high halves of both sums are equal for two addresses with a probability of 2^-64.
        sums = words @ self._address_factors + self._address_addends
        identities: npt.NDArray[np.uint64] = sums[:, 0] >> np.uint64(32) | sums[:, 1] & np.uint64(0xFFFFFFFF << 32)
        return identities

    def senders(self, begin: int, end: int) -> npt.NDArray[np.void]:
        """Return the senders' addresses of slots [begin, end), as views."""
        return self._names[begin:end]

    def sender(self, slot: int) -> tuple[str, int]:
        """Return address and port of a slot's sender, in the form for ``socket.sendto``."""
        name = self._names[slot]
        if name["family"] == socket.AF_INET6:
            return socket.inet_ntop(socket.AF_INET6, name["ipv6"].tobytes()), int(name["port"])
        return socket.inet_ntoa(int(name["ipv4"]).to_bytes(4, "big")), int(name["port"])

    def next_round(self) -> None:
        """Prepare the slots for the next round, after everything of this round is published."""
        # Order: lengths before the round number; otherwise a crash in between would make filled slots look new.
        self._messages["length"] = UNFILLED
        if self._is_local:
            self._messages["controllen"] = CREDENTIALS.itemsize  # the kernel wrote the length that it used
        self._store_round(self._number + 1)


def _header_checksum(header: np.void) -> int:
    """Return the checksum of the constant fields of a header."""
    return crc32c.crc32c(struct.pack("<3Q", header["magic"], header["slots"], header["boot"]))


def _read_round(header: np.void) -> int | None:
    """Return the round number that two of three copies agree on; None if the header is damaged or empty."""
    if header["magic"] != MAGIC or header["check"] != _header_checksum(header):
        return None
    numbers = [int(number) for number in (header["round"], *header["rounds"])]
    number, times = Counter(numbers).most_common(1)[0]
    return number if times > 1 and number < MAX_ROUNDS else None


def _set_aside_unusable(path: Path, slots: int) -> int:
    """Rename a file that is damaged, or of another size with datagrams in it; return the number of datagrams."""
    size = path.stat().st_size if path.exists() else 0
    with path.open("rb") if size else io.BytesIO() as file:
        begin = file.read(Slots._parts(slots)[2])
    header = np.frombuffer(begin[:PAGE].ljust(PAGE, b"\0"), _HEADER, 1)[0]
    slots_of_file = int(header["slots"]) if _read_round(header) is not None else 0
    is_whole = slots_of_file > 0 and size == Slots._parts(slots_of_file)[-1]
    if not any(begin) or (is_whole and slots_of_file == slots):
        return 0
    count = max(len(begin) - PAGE, 0) // _MMSGHDR.itemsize
    messages = np.frombuffer(begin, _MMSGHDR, count, PAGE) if count else np.zeros(0, _MMSGHDR)
    occupied = int(((messages["length"] <= MAX_DATAGRAM_BYTES) & (messages["iovlen"] > 0)).sum())
    if is_whole and not occupied:
        path.unlink()  # made for another number of slots
        return 0
    renamed = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(renamed)
    _LOGGER.error(
        "slots: %s is damaged or of another size; renamed to %s with %d datagrams", path, renamed.name, occupied
    )
    return occupied


def _map_file(path: Path, slots: int) -> mmap.mmap:
    size = Slots.file_length(slots)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
