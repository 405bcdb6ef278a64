"""A limit of the connections of a gRPC server that closes old connections for new ones.

gRPC's own limit refuses the new connection, so a thousand silent ones would lock out every client, and gRPC does not
show its connections. Therefore a thread finds their sockets among the descriptors of this process, and shuts down the
surplus; gRPC then sees the end of the stream and frees the connection.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.process.kernel import limit_connections, plain_address
from penstock.process.servers.calls import address_of, port_of

MIN_IDLE_S = 5.0
"""Time after its last call, and the last message of its streams, before a connection may be closed: clients that take
turns do not close each other's.
"""
NEW_S = 5.0
"""Time for the first call of a new connection: TLS over a slow network. It is shorter only if more connections than
half of the burst have no call yet.
"""
NEW_SHARE = 4
"""Limit: the newest connections of one address, up to this part of the limit, count as new; all others without a call
are closed before idle ones, so that no address can close idle ones of other addresses.
"""
HANDSHAKE_TIMEOUT_MS = 10_000
"""Time for TLS and HTTP/2 before gRPC closes a connection; its default is 120 s."""
MAX_BURST = 1000
"""Limit: connections above the limit until the surplus is closed. More than gRPC accepts between two scans, so that
clients that connect again at once do not take every place.
"""
MAX_PAUSE_S = 0.5
"""Pause between scans that find no surplus."""
MIN_PAUSE_S, CALM_S, MAX_SHARE = 0.02, 2.0, 0.05
"""Limit: pause between scans until this time after a surplus, and the share of one core that such scans take."""
REPORT_INTERVAL_S = 10.0
_DESCRIPTORS = "/proc/self/fd"
_WILDCARDS = ("", "0.0.0.0", "::")
_LOGGER = logging.getLogger(__name__)

Peer = tuple[str, int]
"""Address and port of a client."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """A connection as a scan finds it; ``first_seen`` is monotonic."""

    descriptor: int
    peer: Peer
    first_seen: float


class ConnectionLimit:
    """At most ``limit`` connections of one server, and some more until the surplus is closed.

    Connections without an admitted call are closed first, except new ones (``NEW_S``, ``NEW_SHARE``); the address with
    most of them comes first, and its oldest. Then connections are closed that have no open call, the one whose last
    call is longest ago first; then new ones beyond half of the burst; then those whose streams are silent, of the
    address with most of them first, and the longest silent. If every other connection is in use, gRPC refuses the new
    one.

    Invariant: a connection with a request that is being answered is not closed. Its client would repeat an append that
    is stored.

    Thread: ``note_call`` is called on the server's threads; everything else of a started limit is owned by its thread.
    """

    def __init__(self, limit: int, key: str, most: int = 1 << 30) -> None:
        """``key``: the configuration key that log lines name; ``most``: connections that the limit of files allows."""
        self.most = min(limit + MAX_BURST, max(most, 1))
        self.limit, self._key = limit_connections(limit, self.most - self.most // 4, key), key
        self.closed = 0
        """Connections that were closed for new ones, since the start."""
        self.answering: list[Callable[[], Iterable[bytes | str]]] = []
        """Functions that return gRPC's names of the peers with a request that is being answered."""
        self.streams: list[Callable[[], Iterable[tuple[bytes | str, float]]]] = []
        """Functions that return the peer of each open stream, and the monotonic time of its last message.

        Thread: these and ``answering`` are called on this limit's thread.
        """
        self._last_calls: dict[bytes | str, float] = {}
        self._first_seen: dict[int, tuple[Peer | None, float]] = {}
        self._listeners: list[Peer] = []
        self._stopping = threading.Event()
        self._unreported, self._next_report_s = 0, 0.0

    @property
    def options(self) -> list[tuple[str, int]]:
        """Options of the gRPC server."""
        return [
            ("grpc.max_allowed_incoming_connections", self.most),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        ]

    def note_call(self, peer: bytes | str, is_admitted: Callable[[], bool] = lambda: True) -> None:
        """Note a call of ``peer``, in gRPC's words; ``is_admitted`` is asked once per connection."""
        if peer in self._last_calls or is_admitted():
            self._last_calls[peer] = time.monotonic()

    def note_end(self, peer: bytes | str) -> None:
        """Note the end of a long call of ``peer``, so that the answer can still reach the client."""
        self.note_call(peer, lambda: False)

    def start(self, ports: Iterable[int]) -> None:
        """Watch the connections that arrive at the listening sockets of this process with these ports."""
        own = set(ports)
        self._listeners = [address for address in _listening_addresses() if address[1] in own]
        threading.Thread(target=self._run, name="connections", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; no connection is closed afterwards."""
        self._stopping.set()

    def _run(self) -> None:
        pause_s, calm_at_s = MAX_PAUSE_S, 0.0
        while not self._stopping.wait(pause_s):
            began_s, now = time.thread_time(), time.monotonic()
            try:
                if self._close_surplus():
                    calm_at_s = now + CALM_S
            except Exception:
                _LOGGER.exception("the connections of a server could not be limited (%s)", self._key)
            pause_s = max(MIN_PAUSE_S, (time.thread_time() - began_s) / MAX_SHARE) if now < calm_at_s else MAX_PAUSE_S

    def _close_surplus(self) -> bool:
        """Close connections over the limit; report whether there were some."""
        # Fast path: without so many descriptors there are not so many connections. Linux before 6.2 reports size 0.
        count = os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS))
        if count <= self.limit and len(self._last_calls) <= 2 * self.limit:
            return False
        # Order: the peers before the scan. A connection that is accepted after the scan keeps its calls.
        peers = list(self._last_calls)
        connections = self._find_connections(os.listdir(_DESCRIPTORS))
        open_peers = {connection.peer for connection in connections}
        for name in peers:
            if _peer_of(name) not in open_peers:
                self._last_calls.pop(name, None)
        surplus = len(connections) - self.limit
        if surplus <= 0:
            return False
        last_calls, streams, answering = self._find_activity()
        most_new = max(self.limit // NEW_SHARE, 1)
        closable, new = _closable(connections, last_calls, streams, answering, most_new)
        # Order: after the selection, so that idle connections are not closed in place of new ones.
        others = [connection for connection in closable[:surplus] if connection not in new]
        new_ones = [connection for connection in closable[:surplus] if connection in new]
        # Limit: new ones stay within half of the burst. The other half is for those that arrive until the next scan.
        most_closed = max(surplus - len(others) - (self.most - self.limit) // 2, 0)
        self._report(sum(map(_shut_down, [*others, *new_ones[:most_closed]])))
        return True

    def _find_activity(self) -> tuple[dict[Peer, float], dict[Peer, float], set[Peer]]:
        """Return when peers called and when their streams had a message, and the peers that wait for an answer."""
        last_calls = {_peer_of(name): last_s for name, last_s in dict(self._last_calls).items()}
        streams: dict[Peer, float] = {}
        for name, last_s in itertools.chain.from_iterable(list_streams() for list_streams in self.streams):
            peer = _peer_of(name)
            streams[peer] = max(streams.get(peer, 0.0), last_s)
        return last_calls, streams, {_peer_of(name) for names in self.answering for name in names()}

    def _find_connections(self, descriptors: Iterable[str]) -> list[_Connection]:
        """Return the connections of the server among the descriptors of this process."""
        connections, first_seen, now = [], {}, time.monotonic()
        for descriptor in map(int, descriptors):
            try:
                status = os.fstat(descriptor)
            except OSError:  # it has just been closed
                continue
            if not stat.S_ISSOCK(status.st_mode):
                continue
            # Fast path: what a socket is does not change, and its inode number names it.
            known = self._first_seen.get(status.st_ino) or (self._peer_of_socket(descriptor), now)
            first_seen[status.st_ino] = known
            if known[0] is not None:
                connections.append(_Connection(descriptor, known[0], known[1]))
        self._first_seen = first_seen
        return connections

    def _peer_of_socket(self, descriptor: int) -> Peer | None:
        """Return the peer of a connection that was accepted at this server's port; None for another socket."""
        with contextlib.suppress(OSError), _opened(descriptor) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                here, peer = _plain(sock.getsockname()), _plain(sock.getpeername())
                hosts = [host for host, port in self._listeners if port == here[1]]
                if here[0] in hosts or any(host in _WILDCARDS for host in hosts):
                    return peer
        return None

    def _report(self, closed: int) -> None:
        if not closed:
            return
        self.closed += closed
        # Limit: one line in a while, however many connections come.
        self._unreported += closed
        now = time.monotonic()
        if now >= self._next_report_s:
            self._next_report_s = now + REPORT_INTERVAL_S
            text = "%s (%d) is exceeded: %d idle connections are closed for new ones"
            _LOGGER.warning(text, self._key, self.limit, self._unreported)
            self._unreported = 0


def _closable(
    connections: list[_Connection],
    last_calls: dict[Peer, float],
    streams: dict[Peer, float],
    answering: set[Peer],
    most_new: int,
) -> tuple[list[_Connection], set[_Connection]]:
    """Return the connections that may be closed, the first one first, and the new ones of them.

    Of an address at most ``most_new`` count as new.
    """
    idle_since = time.monotonic() - MIN_IDLE_S
    unused: list[_Connection] = []
    idle: list[_Connection] = []
    silent: list[_Connection] = []
    for connection in connections:
        peer = connection.peer
        if peer in answering:
            continue
        if peer not in last_calls:
            unused.append(connection)
        elif max(last_calls[peer], streams.get(peer, 0.0)) < idle_since:
            (silent if peer in streams else idle).append(connection)
    idle.sort(key=lambda connection: last_calls[connection.peer])
    new = _new_of_each_address(unused, most_new)
    # The sort is stable: new ones come last, in the same order.
    unused = sorted(_of_busiest_address_first(unused, lambda connection: connection.first_seen), key=new.__contains__)
    closable = [
        *unused[: len(unused) - len(new)],
        *idle,
        *unused[len(unused) - len(new) :],
        *_of_busiest_address_first(silent, lambda connection: streams[connection.peer]),
    ]
    return closable, new


def _new_of_each_address(unused: list[_Connection], most: int) -> set[_Connection]:
    """Return the newest connections, at most ``most`` of an address."""
    new_since, new, by_address = time.monotonic() - NEW_S, set[_Connection](), Counter[str]()
    for connection in sorted(unused, key=lambda connection: connection.first_seen, reverse=True):
        by_address[connection.peer[0]] += 1
        if connection.first_seen > new_since and by_address[connection.peer[0]] <= most:
            new.add(connection)
    return new


def _of_busiest_address_first(
    connections: list[_Connection], time_of: Callable[[_Connection], float]
) -> list[_Connection]:
    by_address = Counter(connection.peer[0] for connection in connections)
    return sorted(connections, key=lambda connection: (-by_address[connection.peer[0]], time_of(connection)))


def _shut_down(connection: _Connection) -> bool:
    """End a connection; report whether it was still open."""
    # The duplicate names the same connection even if gRPC closes its descriptor and the number is used again; the peer
    # shows whether that has already happened.
    with contextlib.suppress(OSError), _opened(connection.descriptor) as sock:
        if _plain(sock.getpeername()) == connection.peer:
            sock.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _listening_addresses() -> list[Peer]:
    """Return the address of each listening TCP socket of this process."""
    addresses = []
    for descriptor in map(int, os.listdir(_DESCRIPTORS)):
        with contextlib.suppress(OSError), _opened(descriptor) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                addresses.append(_plain(sock.getsockname()))
    return addresses


def _opened(descriptor: int) -> socket.socket:
    """Return a socket object of its own for a descriptor. Raises OSError if that is not a socket."""
    duplicate = os.dup(descriptor)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _plain(address: tuple[str, int]) -> Peer:
    """Return an address without IPv6's form of IPv4 and its further fields."""
    return plain_address(address[0]), address[1]


def _peer_of(name: bytes | str) -> Peer:
    return plain_address(address_of(name)), port_of(name)
