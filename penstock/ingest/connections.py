"""The connections of a TCP listener, what each holds, and which of them goes when there is no room for all."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.wire.codecs import codec_of
from penstock.wire.compressed_streams import UncompressedSplitter
from penstock.wire.line_framing import NO_LINES, Lines
from penstock.wire.lines import Framing, LineSplitter
from penstock.wire.multiline import INDENTED, LineJoiner

if TYPE_CHECKING:
    from penstock.wire.forward.splitter import ForwardSplitter


@dataclass(slots=True, eq=False)
class Connection:
    """One sender; ``heard`` is the monotonic time at which it sent something last.

    ``shaking``: its TLS handshake is not done; ``name``: that of its certificate. ``began_waiting`` is the time from
    which on something that it sent may be complete.
    """

    sock: socket.socket
    address: str
    splitter: LineSplitter | ForwardSplitter
    heard: float
    joiner: LineJoiner | None = None
    shaking: bool = False
    name: str = ""
    began_waiting: float | None = None

    @property
    def dialogue(self) -> ForwardSplitter | None:
        """What knows the answers of a protocol that has some."""
        return None if isinstance(self.splitter, LineSplitter) else self.splitter

    @property
    def is_open(self) -> bool:
        return self.sock.fileno() >= 0

    @property
    def unfinished(self) -> int:
        """Bytes of what may not be whole."""
        return self.splitter.unfinished + (self.joiner.held_bytes if self.joiner else 0)

    @property
    def begun(self) -> int:
        """How many lines that is."""
        return int(self.splitter.unfinished > 0) + (self.joiner.held_lines if self.joiner else 0)

    @property
    def has_work(self) -> bool:
        """Whether something that has come waits for its turn; until then nothing more is read of it."""
        return self.dialogue is not None and self.dialogue.has_work

    @property
    def waits(self) -> bool:
        """Whether it holds what time makes whole."""
        return self.splitter.waits or bool(self.joiner and self.joiner.held_lines)

    def feed(self, data: memoryview) -> Lines:
        """The messages that are whole now that ``data`` has come."""
        return self._joined(self.splitter.feed(data))

    def settle(self, now: float, silence: float) -> Lines:
        """Return what time makes whole: of joined lines after ``silence`` seconds without a byte."""
        lines = self._joined(self.splitter.settle()) if self._splitter_is_due(now) else Lines(NO_LINES)
        return self._with_held(lines) if self.joiner and now - self.heard >= silence else lines

    def _splitter_is_due(self, now: float) -> bool:
        splitter = self.splitter
        if not isinstance(splitter, LineSplitter) or not splitter.waits or self.began_waiting is None:
            return False
        # While the framing is undecided, a sender that goes on sending must not hold back its first lines.
        return now - (self.began_waiting if splitter.is_undecided else self.heard) >= splitter.patience_s

    def whole(self) -> Lines:
        """Return the lines that are complete as far as is known, though more bytes may say otherwise."""
        return self._joined(self.splitter.settle())

    def finish(self) -> Lines:
        """What it held when it ended."""
        return self._with_held(self._joined(self.splitter.finish()))

    def _joined(self, lines: Lines) -> Lines:
        return self.joiner.feed(lines) if self.joiner else lines

    def _with_held(self, lines: Lines) -> Lines:
        held = self.joiner.flush() if self.joiner else Lines(NO_LINES)
        both = pa.concat_arrays([lines.lines, held.lines])
        return replace(lines, lines=both, joined=lines.joined + held.joined)


class Connections:
    """Those of one listener: at most ``most``, with ``most_unfinished`` bytes of unfinished lines in all."""

    def __init__(self, most: int, most_unfinished: int) -> None:
        self._most, self._most_unfinished = most, most_unfinished
        self._all: set[Connection] = set()
        self._unfinished: dict[Connection, int] = {}
        self._held = 0
        self._waiting: set[Connection] = set()
        self._shaking: set[Connection] = set()

    @property
    def exceed(self) -> bool:
        """Whether there are too many of them, or they hold too much."""
        return len(self._all) > self._most or self._held > self._most_unfinished

    def add(self, connection: Connection) -> None:
        self._all.add(connection)
        if connection.shaking:
            self._shaking.add(connection)

    def shaken(self, connection: Connection) -> None:
        """Its handshake is done."""
        connection.shaking = False
        self._shaking.discard(connection)

    def remove(self, connection: Connection) -> None:
        self._held -= self._unfinished.pop(connection, 0)
        for some in (self._all, self._waiting, self._shaking):
            some.discard(connection)

    def fed(self, connection: Connection) -> None:
        """Take note of what ``connection`` holds now."""
        held = connection.unfinished
        self._held += held - self._unfinished.pop(connection, 0)
        if held:
            self._unfinished[connection] = held
        if not connection.waits:
            connection.began_waiting = None
            self._waiting.discard(connection)
        elif connection.began_waiting is None:
            connection.began_waiting = connection.heard
            self._waiting.add(connection)

    def first_to_go(self) -> Connection | None:
        """The one with the most unfinished bytes; where none has any, the one that is silent for the longest time."""
        if self._unfinished:
            return max(self._unfinished, key=self._unfinished.__getitem__)
        return min(self._all, key=lambda each: each.heard, default=None)

    def silent_since(self, time: float) -> list[Connection]:
        """Those not heard since monotonic ``time``."""
        return [each for each in self._all if each.heard <= time]

    def waiting(self) -> list[Connection]:
        """Those that hold what time makes whole."""
        return list(self._waiting)

    def shaking_since(self, time: float) -> list[Connection]:
        """Those in whose handshake nothing came since monotonic ``time``."""
        return [each for each in self._shaking if each.heard <= time]


def framing_of(listener: ListenerConfig) -> Framing:
    """How a listener's connections are cut into lines."""
    return codec_of(listener.codec).framing if listener.framing == "auto" else listener.framing


def splitter_of(listener: ListenerConfig) -> LineSplitter | ForwardSplitter:
    """What finds the messages of one connection."""
    own = codec_of(listener.codec).splitter
    if own:
        return own(listener)
    kind = UncompressedSplitter if listener.codec in ("syslog", "gelf") else LineSplitter
    return kind(listener.max_line, framing_of(listener))


def joiner_of(listener: ListenerConfig) -> LineJoiner | None:
    """What joins the lines of one connection; None where each line is a message."""
    if not listener.joins_lines:
        return None
    return LineJoiner(listener.multiline.begins or INDENTED, listener.multiline.max_lines, listener.max_line)
