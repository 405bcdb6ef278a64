"""Connections of a TCP listener: the state of each, and the choice of the one to evict.

Limit: the number of connections and the sum of their unfinished bytes are bounded, so that senders that never finish a
line cannot exhaust memory.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.process.kernel import limit_connections, raise_file_limit
from penstock.wire.codecs import codec_of
from penstock.wire.framing.compressed_streams import UncompressedSplitter
from penstock.wire.framing.line_framing import NO_LINES, Lines
from penstock.wire.framing.lines import Framing, LineSplitter
from penstock.wire.framing.multiline import INDENTED, LineJoiner
from penstock.wire.gelf.splitter import GelfSplitter

if TYPE_CHECKING:
    from penstock.wire.forward.splitter import ForwardSplitter

RESERVED_FILES = 100
"""File descriptors reserved for anything but connections."""
LINES_PER_TURN = 16 << 10
"""Limit: messages of one connection that are decoded before other connections have their turn: 1 to 3 us each."""


@dataclass(slots=True, eq=False)
class Connection:
    """A sender's connection; ``last_heard_s`` is the monotonic time of its last bytes.

    Limit: ``feed`` returns at most LINES_PER_TURN messages, so that the senders of other connections are served before
    the remaining ones are decoded.

    ``in_handshake``: its TLS handshake is not complete; ``name``: the name in its certificate; ``credentials``:
    process, user and group of a local sender, whose ``address`` is empty. ``began_waiting``: monotonic time since
    which it holds bytes that may be a complete message. ``has_left``: whether the sender has disconnected.
    ``has_cut_reply``: whether only a part of a reply found room, so that none may follow.
    """

    sock: socket.socket
    address: str
    splitter: LineSplitter | ForwardSplitter
    last_heard_s: float
    joiner: LineJoiner | None = None
    in_handshake: bool = False
    name: str = ""
    began_waiting: float | None = None
    credentials: tuple[int, int, int] = (0, 0, 0)
    has_left: bool = False
    has_cut_reply: bool = False
    _remaining: pa.Array[Any] = field(default_factory=lambda: NO_LINES)

    @property
    def dialogue(self) -> ForwardSplitter | None:
        """Splitter of a protocol whose senders are answered; None for other protocols."""
        return None if isinstance(self.splitter, LineSplitter) else self.splitter

    @property
    def sender(self) -> str:
        """Name in the counts by sender: the address; of a local sender the user, because processes come and go."""
        return self.address or f"uid {self.credentials[1]}"

    @property
    def is_open(self) -> bool:
        return self.sock.fileno() >= 0

    @property
    def unfinished(self) -> int:
        """Number of bytes held that do not make a complete message yet."""
        return self.splitter.unfinished + (self.joiner.held_bytes if self.joiner else 0)

    @property
    def unfinished_lines(self) -> int:
        """Number of unfinished lines."""
        return int(self.splitter.unfinished > 0) + (self.joiner.held_lines if self.joiner else 0)

    @property
    def has_work(self) -> bool:
        """Whether received messages wait for their turn; nothing more is read before they are decoded."""
        return len(self._remaining) > 0 or (self.dialogue is not None and self.dialogue.has_work)

    @property
    def waits_for_memory(self) -> bool:
        """Whether its work must wait until requests of other connections are read."""
        return len(self._remaining) == 0 and self.dialogue is not None and self.dialogue.waits_for_memory

    @property
    def waits(self) -> bool:
        """Whether it holds bytes that count as complete lines if the sender pauses (``settle``)."""
        return self.splitter.waits or bool(self.joiner and self.joiner.held_lines)

    def reply(self, reply: bytes) -> None:
        """Send a reply without waiting; a sender that does not read loses it."""
        # Invariant: nothing follows a part of a reply, whose rest would be read from what follows.
        if self.has_cut_reply:
            return
        try:
            self.has_cut_reply = self.sock.send(reply) < len(reply)
        except (BlockingIOError, ConnectionError):
            return  # the sender does not read; its connection ends by itself or as idle
        except OSError:
            self.has_cut_reply = True  # OpenSSL may have sent a part

    def feed(self, chunk: memoryview) -> Lines:
        """Return the messages that ``chunk`` completes, as many as one turn decodes."""
        lines = self._after_remaining(self._joined(self.splitter.feed(chunk)))
        self._remaining = lines.lines[LINES_PER_TURN:]
        return replace(lines, lines=lines.lines[:LINES_PER_TURN]) if len(self._remaining) else lines

    def settle(self, now: float, silence_s: float) -> Lines:
        """Return the lines that a pause has completed; joined lines need ``silence_s`` seconds without a byte."""
        if len(self._remaining):
            return Lines(NO_LINES)
        lines = self._joined(self.splitter.settle()) if self._splitter_is_due(now) else Lines(NO_LINES)
        return self._add_held(lines) if self.joiner and now - self.last_heard_s >= silence_s else lines

    def _splitter_is_due(self, now: float) -> bool:
        splitter = self.splitter
        if not isinstance(splitter, LineSplitter) or not splitter.waits or self.began_waiting is None:
            return False
        # While the framing is undecided, a sender that keeps sending must not delay its first lines.
        return now - (self.began_waiting if splitter.is_undecided else self.last_heard_s) >= splitter.patience_s

    def settled_lines(self) -> Lines:
        """Return the lines that a pause would complete now, without waiting for one."""
        return self._after_remaining(self._joined(self.splitter.settle()))

    def finish(self) -> Lines:
        """Return the remaining messages at the end of the connection."""
        return self._after_remaining(self._add_held(self._joined(self.splitter.finish())))

    def _after_remaining(self, lines: Lines) -> Lines:
        """Return the messages that wait for their turn, followed by ``lines``."""
        if not len(self._remaining):
            return lines
        remaining, self._remaining = self._remaining, NO_LINES
        return replace(lines, lines=pa.concat_arrays([remaining, lines.lines]) if len(lines.lines) else remaining)

    def _joined(self, lines: Lines) -> Lines:
        return self.joiner.feed(lines) if self.joiner else lines

    def _add_held(self, lines: Lines) -> Lines:
        flushed = self.joiner.flush() if self.joiner else Lines(NO_LINES)
        both = pa.concat_arrays([lines.lines, flushed.lines])
        return replace(lines, lines=both, joined=lines.joined + flushed.joined)


class Connections:
    """Connections of one listener: at most ``max_connections``, with ``max_unfinished_bytes`` of all together."""

    def __init__(self, max_connections: int, max_unfinished_bytes: int) -> None:
        self._max_connections, self._max_unfinished_bytes = max_connections, max_unfinished_bytes
        # In the order in which they were added, so that simulated runs repeat. Sets have that of addresses in memory.
        self._all: dict[Connection, None] = {}
        self._unfinished: dict[Connection, int] = {}
        self._unfinished_bytes = 0
        self._waiting: dict[Connection, None] = {}
        self._in_handshake: dict[Connection, None] = {}

    @property
    def is_over_limit(self) -> bool:
        """Whether a limit is exceeded and a connection must be evicted."""
        return len(self._all) > self._max_connections or self._unfinished_bytes > self._max_unfinished_bytes

    def add(self, connection: Connection) -> None:
        self._all[connection] = None
        if connection.in_handshake:
            self._in_handshake[connection] = None

    def end_handshake(self, connection: Connection) -> None:
        """Record that the handshake of ``connection`` is complete."""
        connection.in_handshake = False
        self._in_handshake.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        self._unfinished_bytes -= self._unfinished.pop(connection, 0)
        for connections in (self._all, self._waiting, self._in_handshake):
            connections.pop(connection, None)

    def update(self, connection: Connection) -> None:
        """Record what ``connection`` holds after it was read."""
        unfinished = connection.unfinished
        # Invariant: the sum follows each change, so that the limit is checked without a pass over all connections.
        self._unfinished_bytes += unfinished - self._unfinished.pop(connection, 0)
        if unfinished:
            self._unfinished[connection] = unfinished
        if not connection.waits:
            connection.began_waiting = None
            self._waiting.pop(connection, None)
        elif connection.began_waiting is None:
            connection.began_waiting = connection.last_heard_s
            self._waiting[connection] = None

    def next_to_evict(self) -> Connection | None:
        """Return the connection with the most unfinished bytes; if none has any, the longest silent one."""
        if self._unfinished:
            # The largest one frees the most memory, and a sender that never ends a line is evicted before others.
            return max(self._unfinished, key=self._unfinished.__getitem__)
        return min(self._all, key=lambda connection: connection.last_heard_s, default=None)

    def silent_since(self, time: float) -> list[Connection]:
        """Return connections without a byte since monotonic ``time``."""
        return [connection for connection in self._all if connection.last_heard_s <= time]

    def waiting(self) -> list[Connection]:
        """Return the connections of which ``waits`` is true."""
        return list(self._waiting)

    def stalled_handshakes(self, time: float) -> list[Connection]:
        """Return connections whose handshake had no byte since monotonic ``time``."""
        return [connection for connection in self._in_handshake if connection.last_heard_s <= time]


def framing_of(listener: ListenerConfig) -> Framing:
    """Return the framing of a listener's connections."""
    return codec_of(listener.codec).framing if listener.framing == "auto" else listener.framing


def splitters_of(listener: ListenerConfig) -> Callable[[], LineSplitter | ForwardSplitter]:
    """Return the factory of splitters, one for each connection of ``listener``."""
    make_splitters = codec_of(listener.codec).splitters
    if make_splitters:
        return make_splitters(listener)
    splitter_class = {"syslog": UncompressedSplitter, "gelf": GelfSplitter}.get(listener.codec, LineSplitter)
    return partial(splitter_class, listener.max_line, framing_of(listener))


def make_joiner(listener: ListenerConfig) -> LineJoiner | None:
    """Return a new joiner of lines for one connection; None if each line is a message."""
    if not listener.joins_lines:
        return None
    return LineJoiner(listener.multiline.begins or INDENTED, listener.multiline.max_lines, listener.max_line)


def connection_limit(listener: ListenerConfig) -> int:
    """Return the limit of a listener's connections: its configuration, and the file descriptors available."""
    return limit_connections(
        listener.max_connections,
        raise_file_limit() - RESERVED_FILES,
        f"listener.{listener.name}.max_connections",
    )
