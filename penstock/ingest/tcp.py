"""The TCP receiver: many connections, large reads, lines found by numpy, one batch per round."""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.handover.buffer import HandlerPosition
from penstock.handover.frame import reserved_value
from penstock.handover.frame_size import FRAME_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES
from penstock.handover.writer import FrameWriter
from penstock.ingest.acknowledgements import Acknowledgements
from penstock.ingest.connections import Connection, Connections, joiner_of, splitter_of
from penstock.ingest.networks import networks_of
from penstock.ingest.plog_commands import Commands
from penstock.ingest.udp import FILL_TIME, FINISH_TIME, LEAST_PAUSE
from penstock.process.kernel import raise_file_limit
from penstock.records import EMPTY_BODY
from penstock.wire.codecs import codec_of
from penstock.wire.decoded import Decoded
from penstock.wire.lines import NO_LINES, Lines, line_counts
from penstock.wire.plog.commands import Command
from penstock.wire.plog.statistics import Statistics
from penstock.wire.source_annotations import CERTIFICATE_NAME, annotate, annotate_sources

if TYPE_CHECKING:
    from penstock.ingest.tls import TlsDoor

READ_SIZE = 1 << 20
"""Bytes of one read at most: small batches of lines cost more."""
LEAST_READ = 16 << 10
"""Bytes of one read where many connections share a round."""
ROUND_SIZE = 4 << 20
"""Bytes published at once at most, so that a fast sender does not hold up the others' messages."""
TURN_S = 0.02
"""Limit: time of a round after which requests that make much work wait for the next one."""
MOST_ACCEPTED = 128
"""Connections let in at a time."""
RESERVED_FILES = 100
"""Descriptors of a receiver that are not for connections."""
HANDSHAKE_TIME = 10.0
"""Seconds without a byte after which a TLS handshake is given up."""
_LOGGER = logging.getLogger(__name__)


class LineDecoder(Protocol):
    """What turns lines into messages."""

    statistics: Statistics

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Lines of one connection that are to be published."""

    lines: pa.Array[Any]
    address: str
    name: str


class TcpReceiver:
    """Receives for one TCP listener. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        publisher: FrameWriter,
        decoder: LineDecoder,
        commands: Commands,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        readers: Sequence[HandlerPosition] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._listener, self._sock, self._publisher, self._decoder = listener, sock, publisher, decoder
        self._commands, self._wake, self._clock, self._sleep = commands, wake, clock, sleep
        self._connections = Connections(most_connections(listener), listener.max_unfinished)
        self._budget = publisher.frame_limit - FRAME_OVERHEAD_BYTES
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._round = publisher.published[0] + 1
        self._earliest = 0.0  # the time of ``clock`` before which the next round is not worth its cost
        codec = codec_of(listener.codec)
        self._growth, self._codec, self._annotates = codec.growth, codec, listener.annotate_source
        self._tls, self._networks = _tls_door(listener), networks_of(listener)
        self._promised = Acknowledgements(publisher, readers) if codec.splitter else None
        self._waiting: list[_Waiting] = []
        self._asked: list[tuple[Connection, Command]] = []
        self._busy: deque[Connection] = deque()
        self._counts = Counts()
        self._buffer = bytearray(READ_SIZE)

    def receive(self, timeout: float) -> None:
        """One round: what all ready connections have sent, a little later where the last round found little."""
        pause = self._earliest - self._clock()
        if pause > LEAST_PAUSE:
            self._sleep(pause)
        self._round_of(timeout)

    def _round_of(self, timeout: float) -> bool:
        """One round; whether there was anything to do."""
        first = int(self._publisher.clock.now() * 1_000_000)
        size = 0
        if self._busy:
            timeout = 0.0
        ready = self._selector.select(self._promised.within(timeout) if self._promised else timeout)
        began = self._clock()
        room = min(max(ROUND_SIZE // max(len(ready), 1), LEAST_READ), READ_SIZE)
        for key, _ in ready:
            if key.data is None:
                self._accept_waiting()
            elif key.data.is_open and not key.data.has_work:  # it may have had to make room for another one meanwhile
                size += self._read(key.data, room)
            if size >= ROUND_SIZE:
                size = self._flush(first)
        size += self._go_on_with_busy(began)
        self._flush(first)
        self._keep_promises()
        self._earliest = began + FILL_TIME if self._found_little(size) else 0.0
        return bool(ready) or bool(self._busy)

    def _go_on_with_busy(self, began: float) -> int:
        """Give connections whose requests make much work their turns, until this round took TURN_S.

        Returns the bytes of the requests that are read on.
        """
        size = 0
        for _ in range(len(self._busy)):
            connection = self._busy.popleft()
            if connection.is_open:
                size += connection.unfinished
                self._feed(connection, memoryview(b""))
            if self._clock() - began > TURN_S:
                break
        return size

    def _found_little(self, size: int) -> bool:
        """Whether the bytes of a round were hardly worth it; never while a sender waits to be told something."""
        return 0 < size < LEAST_READ and not (self._promised and self._promised.owed)

    def tick(self) -> None:
        """Once a second or so: counts that could not be told yet, and new connections where there was no room."""
        if self._sock not in self._selector.get_map():
            self._selector.register(self._sock, selectors.EVENT_READ)
        self._close_silent()
        self._settle()
        if self._tls:
            self._tls.refresh()
        if self._publisher.owes:
            self._publish(EMPTY_BODY, Counts(), 0)

    def take_over(self) -> None:
        """Nothing is left behind by a predecessor: its connections ended with it."""

    def finish(self) -> None:
        """Before the end: what has arrived, the last lines without newline included."""
        until = time.monotonic() + FINISH_TIME
        while self._round_of(0) and time.monotonic() < until:
            continue
        self._close_all([key.data for key in self._selector.get_map().values() if key.data is not None])

    def _accept_waiting(self) -> None:
        """Let in those who wait, a limited number at a time; others go where there is no room for all."""
        for _ in range(MOST_ACCEPTED):
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._make_room():
                    self._selector.unregister(self._sock)  # it stays readable: leave it until the next tick
                return
            if self._networks.have(str(address[0])):
                self._add(sock, str(address[0]))
            else:
                self._counts[f"{Name.CONNECTION_CLOSED}network"] += 1
                sock.close()

    def _add(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls:
            try:
                sock = self._tls.wrap(sock)
            except OSError:  # it has gone already
                self._counts[f"{Name.CONNECTION_CLOSED}tls"] += 1
                sock.close()
                return
        splitter = splitter_of(self._listener)
        joiner = joiner_of(self._listener)
        connection = Connection(sock, address, splitter, self._clock(), joiner, shaking=self._tls is not None)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._connections.add(connection)
        if not connection.shaking:
            self._reply(connection)
        while self._connections.exceed:
            self._make_room()

    def _read(self, connection: Connection, room: int) -> int:
        """Read at most ``room`` bytes; how many came, or are published as its last line."""
        if connection.shaking:
            return self._shake(connection)
        try:
            got = self._receive_into(connection.sock, memoryview(self._buffer)[:room])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            got = 0
        if not got:
            return self._close(connection)
        connection.heard = self._clock()
        self._feed(connection, memoryview(self._buffer)[:got])
        return got

    def _feed(self, connection: Connection, data: memoryview) -> None:
        self._take(connection, connection.feed(data))
        self._connections.fed(connection)
        self._reply(connection)
        if connection.has_work and connection.is_open:
            self._busy.append(connection)
        while self._connections.exceed:
            self._make_room()

    def _receive_into(self, sock: socket.socket, room: memoryview) -> int:
        return self._tls.receive(sock, room) if self._tls else sock.recv_into(room)

    def _shake(self, connection: Connection) -> int:
        """Go on with a TLS handshake. Returns 0: nothing of a message can have come."""
        assert self._tls is not None, "only senders that speak TLS have a handshake"
        connection.heard = self._clock()
        name, reason = self._tls.shake(connection.sock)
        if reason:
            self._turn_away(connection, reason)
        elif name is not None:
            connection.name = name
            self._connections.shaken(connection)
            self._reply(connection)
        return 0

    def _reply(self, connection: Connection) -> None:
        """Tell a sender what it is to know at once, where its protocol has that; and end what cannot go on."""
        if (dialogue := connection.dialogue) is None:
            return
        replies, dialogue.replies = dialogue.replies, []
        for reply in replies:
            _send(connection.sock, reply)
        if dialogue.closed:
            self._turn_away(connection, dialogue.closed)

    def _keep_promises(self) -> None:
        """Tell senders that what they sent is stored; who cannot be told has to send it again."""
        for connection, reply in self._promised.take_decided() if self._promised else ():
            if connection.is_open and reply is None:
                self._close(connection)
            elif connection.is_open and reply is not None:
                _send(connection.sock, reply)

    def _turn_away(self, connection: Connection, reason: str) -> None:
        self._counts[f"{Name.CONNECTION_CLOSED}{reason}"] += 1
        self._forget(connection)

    def _settle(self) -> None:
        """Publish what time makes whole, and give up handshakes that do not go on."""
        now = self._clock()
        for connection in self._connections.shaking_since(now - HANDSHAKE_TIME):
            self._turn_away(connection, "tls")
        for connection in self._connections.waiting():
            self._take(connection, connection.settle(now, self._listener.multiline.wait))
            self._connections.fed(connection)
        self._flush(0)

    def _make_room(self) -> bool:
        """Close the connection that goes first, without the line that it has begun; whether there was one."""
        connection = self._connections.first_to_go()
        if connection is None:
            return False
        # Only the last line is unfinished: lines that wait for the framing to show are complete.
        self._take(connection, connection.whole())
        evicted = connection.begun
        self._counts.absorb({Name.LINES: evicted, Name.LINE_EVICTED: evicted, f"{Name.CONNECTION_CLOSED}limit": 1})
        self._forget(connection)
        return True

    def _close(self, connection: Connection) -> int:
        """Close one that has ended: what it sent last is a line; how many bytes that is."""
        size = connection.unfinished
        self._take(connection, connection.finish())
        if self._asked:
            self._flush(0)
        self._forget(connection)
        return size

    def _forget(self, connection: Connection) -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()

    def _close_silent(self) -> None:
        if timeout := self._listener.idle_timeout:
            silent = self._connections.silent_since(self._clock() - timeout)
            self._counts[f"{Name.CONNECTION_CLOSED}idle"] += len(silent)
            self._close_all(silent)

    def _close_all(self, connections: Iterable[Connection]) -> None:
        size = 0
        for connection in connections:
            size += self._close(connection)
            if size >= ROUND_SIZE:
                size = self._flush(0)
        self._flush(0)

    def _take(self, connection: Connection, lines: Lines) -> None:
        messages, commands, counts = line_counts(
            lines, self._decoder.statistics, self._codec.reserves, self._codec.keeps_empty
        )
        self._asked += [(connection, command) for command in commands if self._commands.allowed(connection.address)]
        self._counts.absorb(counts)
        if self._promised and (dialogue := connection.dialogue):
            self._promised.ask(connection, dialogue.acknowledgements)
            dialogue.acknowledgements = []
        if len(messages):
            self._waiting.append(_Waiting(messages, connection.address, connection.name))

    def _answer(self) -> None:
        """Answer what was asked, once the lines before it are published."""
        asked, self._asked = self._asked, []
        for number, (connection, command) in enumerate(asked):
            reply = self._commands.answer(command.verb, command.trail, len(asked) - number)
            if reply is not None:
                _send(connection.sock, reply + b"\n")

    def _flush(self, first: int) -> int:
        """Publish what waits, in parts where one frame cannot hold it, then answer. Returns 0, what waits now."""
        counts, self._counts = self._counts, Counts()
        waiting, self._waiting = self._waiting, []
        arrays = [each.lines for each in waiting] or [NO_LINES]
        lines = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        done = 0
        while done < len(lines):
            rows = self._fitting(lines[done:])
            part = Counts(dict.fromkeys((Name.LINES, Name.LINE_MESSAGE, Name.SEEN, Name.ACCEPTED), rows))
            counts.subtract(part)
            if done + rows == len(lines):  # what is left of the round rides with its last part
                part.absorb(counts)
                counts = Counts()
            decoded = self._decoder.decode_lines(lines[done : done + rows])
            part.absorb(decoded.counts)
            self._publish(self._annotated(decoded, waiting, done), part, first)
            done += rows
        if counts.pruned():
            self._publish(EMPTY_BODY, counts, first)
        if self._promised:
            self._promised.written()
        self._answer()
        return 0

    def _annotated(self, decoded: Decoded, waiting: list[_Waiting], done: int) -> pa.RecordBatch:
        """The messages of the lines from ``done`` on, with where they came from as far as the listener asks for it."""
        body = decoded.body
        if not self._annotates and not self._listener.client_ca:
            return body
        which = np.searchsorted(np.cumsum([len(each.lines) for each in waiting]), decoded.rows + done, side="right")
        if self._annotates:
            body = annotate_sources(body, [each.address for each in waiting], which)
        if self._listener.client_ca:
            body = annotate(body, CERTIFICATE_NAME, [each.name for each in waiting], which)
        return body

    def _fitting(self, lines: pa.Array[Any]) -> int:
        """How many of ``lines`` surely fit into one frame: by halves, as a line is small against a frame."""
        rows = len(lines)
        while rows > 1 and self._cost(lines[:rows]) > self._budget:
            rows = (rows + 1) // 2
        return rows

    def _cost(self, lines: pa.Array[Any]) -> int:
        """Bytes of a frame that ``lines`` take at most."""
        twice = 2 * lines.nbytes
        return int(twice + min(twice, len(lines) * self._growth) + len(lines) * MESSAGE_OVERHEAD_BYTES)

    def _publish(self, body: pa.RecordBatch, counts: Counts, first: int) -> None:
        self._publisher.publish(body, counts, reserved_value(self._round, 0), first=first)
        self._round += 1
        self._wake()


def _tls_door(listener: ListenerConfig) -> TlsDoor | None:
    if listener.tls_cert is None:
        return None
    from penstock.ingest.tls import TlsDoor  # brings OpenSSL, which others do without

    return TlsDoor(listener)


def most_connections(listener: ListenerConfig) -> int:
    """How many connections a listener may have: as configured, and as descriptors allow."""
    allowed = max(raise_file_limit() - RESERVED_FILES, 1)
    if allowed < listener.max_connections:
        text = "max_connections is %d, but this process may have %d only (RLIMIT_NOFILE)"
        _LOGGER.warning(text, listener.max_connections, allowed)
    return min(listener.max_connections, allowed)


def _send(sock: socket.socket, reply: bytes) -> None:
    try:
        sock.send(reply)
    except OSError:
        return  # the asker does not read; its connection ends in its own time
