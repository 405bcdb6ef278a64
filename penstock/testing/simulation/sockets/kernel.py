"""The simulated kernel: descriptors, datagram sockets with their buffer and counters, ``recvmmsg`` and ``poll``.

Invariant: as on Linux, a datagram leaves its socket in the call that writes it into the receiver's memory, and a
process that dies before or after that call changes nothing.
"""

from __future__ import annotations

import ctypes
import errno
import select as system_select
import socket as system_socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

SO_MEMINFO, SO_COOKIE = 55, 57
DROPS_INDEX = 8
DATAGRAM_OVERHEAD_BYTES = 768
"""Bytes that the kernel charges for a datagram besides its own."""
FIRST_DESCRIPTOR = 100_000
"""Real files of the process have lower numbers."""
_MMSGHDR = struct.Struct("<QIxxxxQQQQixxxxIxxxx")
"""Name, its length, vectors, their number, control, its length, flags, length of the datagram."""
_VECTOR = struct.Struct("<QQ")
_NAME = struct.Struct("=H2s4s8x")
Address = tuple[str, int]


class Described(Protocol):
    """A socket with a descriptor of the simulated kernel."""

    def fileno(self) -> int: ...

    @property
    def is_readable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram in a socket."""

    sender: Address
    data: bytes


class Kernel:
    """Open sockets by descriptor."""

    def __init__(self) -> None:
        self.sockets: dict[int, Described] = {}
        self._next = FIRST_DESCRIPTOR

    def open(self, sock: Described) -> int:
        """Return the descriptor of a new socket."""
        self._next += 1
        self.sockets[self._next] = sock
        return self._next

    def close(self, descriptor: int) -> None:
        """Forget a descriptor."""
        self.sockets.pop(descriptor, None)

    def recvmmsg(self, descriptor: int, headers: Any, count: Any, flags: int, timeout: None) -> int:
        """Receive datagrams into the memory of the caller, as the system call does."""
        sock = self.sockets[descriptor]
        assert isinstance(sock, DatagramSocket)
        received = sock.read(count.value)
        for number, datagram in enumerate(received):
            _store(headers.value + number * _MMSGHDR.size, datagram)
        if not received:
            ctypes.set_errno(errno.EAGAIN)
            return -1
        return len(received)


def _store(header: int, datagram: Datagram) -> None:
    name, _, vectors, number, *_ = _MMSGHDR.unpack(ctypes.string_at(header, _MMSGHDR.size))
    host, port = datagram.sender
    sender = _NAME.pack(system_socket.AF_INET, port.to_bytes(2, "big"), system_socket.inet_aton(host))
    ctypes.memmove(name, sender, len(sender))
    rest = datagram.data
    for index in range(number):
        base, length = _VECTOR.unpack(ctypes.string_at(vectors + index * _VECTOR.size, _VECTOR.size))
        ctypes.memmove(base, rest[:length], len(rest[:length]))
        rest = rest[length:]
    # Order: the length last, as the kernel stores it; the fields before it keep what the caller wrote.
    ctypes.memmove(header + 8, struct.pack("<I", len(sender)), 4)
    flags = system_socket.MSG_TRUNC if rest else 0
    ctypes.memmove(header + 48, struct.pack("<ixxxxI", flags, len(datagram.data) - len(rest)), 12)


class DatagramSocket:
    """A bound UDP socket, which belongs to the supervisor and outlives receivers."""

    family, type = system_socket.AF_INET, system_socket.SOCK_DGRAM

    def __init__(self, kernel: Kernel, buffer_bytes: int) -> None:
        self._kernel = kernel
        self._descriptor = kernel.open(self)
        self._buffer_bytes, self._held_bytes = buffer_bytes, 0
        self._queue: deque[Datagram] = deque()
        self.entered: list[Datagram] = []
        """All datagrams that found room, in their order."""
        self.rounds: list[int] = []
        """The number of datagrams that were read before each call that read some, since the power was cut."""
        self.read_total = 0
        self.drops = self.drops_total = 0
        self.answers: list[bytes] = []

    def lose_power(self) -> int:
        """Become the socket that the supervisor opens after a power cut; return how many datagrams are gone."""
        self._kernel.close(self._descriptor)
        self._descriptor = self._kernel.open(self)
        self._queue.clear()
        self._held_bytes = self.drops = 0
        self.rounds.clear()
        self.read_total = len(self.entered)
        return self.read_total

    def arrive(self, datagram: Datagram) -> None:
        """Take a datagram from the network, or drop it if the buffer is full."""
        charge = len(datagram.data) + DATAGRAM_OVERHEAD_BYTES
        if self._held_bytes + charge > self._buffer_bytes:
            self.drops += 1
            self.drops_total += 1
            return
        self._held_bytes += charge
        self._queue.append(datagram)
        self.entered.append(datagram)

    def read(self, most: int) -> list[Datagram]:
        """Return up to ``most`` datagrams."""
        count = min(most, len(self._queue))
        if count:
            self.rounds.append(self.read_total)
        self.read_total += count
        datagrams = [self._queue.popleft() for _ in range(count)]
        self._held_bytes -= sum(len(datagram.data) + DATAGRAM_OVERHEAD_BYTES for datagram in datagrams)
        return datagrams

    @property
    def is_readable(self) -> bool:
        return bool(self._queue)

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, blocks: bool) -> None:
        """Do nothing: no call blocks."""

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        """Return the counters and the granted buffer, in the kernel's form."""
        if option == SO_MEMINFO:
            return struct.pack(f"<{DROPS_INDEX + 1}I", *[0] * DROPS_INDEX, self.drops % (1 << 32))
        if option == SO_COOKIE:
            return self._descriptor.to_bytes(8, "little")
        assert option == system_socket.SO_RCVBUF, f"unexpected option {option}"
        return self._buffer_bytes

    def sendto(self, data: bytes, address: Address) -> int:
        """Send an answer."""
        self.answers.append(data)
        return len(data)


@dataclass(slots=True)
class _Poll:
    kernel: Kernel
    descriptors: list[int] = field(default_factory=list)

    def register(self, sock: Any, events: int) -> None:
        self.descriptors.append(sock.fileno())

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Return readable sockets, or those whose senders have left, at once."""
        ready = (descriptor for descriptor in self.descriptors if descriptor in self.kernel.sockets)
        return [(n, system_select.POLLIN) for n in ready if self._is_ready(self.kernel.sockets[n])]

    @staticmethod
    def _is_ready(sock: Any) -> bool:
        return bool(sock.is_readable if isinstance(sock, DatagramSocket) else sock.has_left)


class SimulatedSelect:
    """The module ``select`` on a simulated kernel."""

    POLLIN, POLLRDHUP = system_select.POLLIN, system_select.POLLRDHUP

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def poll(self) -> _Poll:
        """Return a new poller."""
        return _Poll(self._kernel)


@dataclass(frozen=True, slots=True)
class _Key:
    fileobj: Any
    data: Any


class _Selector:
    """``selectors.DefaultSelector`` whose ``select`` returns at once, in the order that ``shuffle`` gives."""

    def __init__(self, shuffle: Callable[[list[Any]], None]) -> None:
        self._keys: dict[Any, _Key] = {}
        self._shuffle = shuffle

    def register(self, sock: Any, events: int, data: Any = None) -> None:
        self._keys[sock] = _Key(sock, data)

    def unregister(self, sock: Any) -> None:
        del self._keys[sock]

    def get_map(self) -> dict[Any, _Key]:
        return self._keys

    def select(self, timeout: float | None = None) -> Sequence[tuple[_Key, int]]:
        ready = [(key, 1) for key in self._keys.values() if key.fileobj.is_readable]
        self._shuffle(ready)
        return ready


class SimulatedSelectors:
    """The module ``selectors`` on a simulated kernel."""

    EVENT_READ = 1

    def __init__(self, shuffle: Callable[[list[Any]], None]) -> None:
        self._shuffle = shuffle

    def DefaultSelector(self) -> _Selector:  # noqa: N802 - the name of the module
        """Return a new selector."""
        return _Selector(self._shuffle)


class SimulatedSocketModule:
    """The module ``socket`` for ``receiver``: a socket by its descriptor."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def socket(self, fileno: int) -> Described:
        """Return the socket that the supervisor handed down."""
        return self._kernel.sockets[fileno]
