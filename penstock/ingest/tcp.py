"""TCP receiver: many connections, large reads, lines located by numpy, one batch per round (``line_publisher``).

Limits: ROUND_BYTES per round, ``max_unfinished`` bytes of unfinished lines in all connections together,
``max_connections``, and ``max_line`` per line (in ``wire.framing.lines``); together they bound a listener's memory.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from penstock.config import ListenerConfig
from penstock.counts import Name
from penstock.handover.buffer import HandlerPosition
from penstock.handover.sender_table import OVERLONG
from penstock.handover.writer import FrameWriter
from penstock.ingest.acknowledgements import Acknowledgements
from penstock.ingest.connections import Connection, Connections, connection_limit, make_joiner, splitters_of
from penstock.ingest.line_publisher import LineDecoder, LinePublisher
from penstock.ingest.local_sockets import peer_credentials
from penstock.ingest.networks import networks_of
from penstock.ingest.plog_commands import Commands
from penstock.ingest.sockets import listen, tls_sockets
from penstock.ingest.udp import FILL_TIME_S, FINISH_TIME_S, MIN_PAUSE_S
from penstock.process.kernel import plain_address
from penstock.wire.codecs import codec_of

READ_BYTES = 1 << 20
"""Limit of one read; large reads make large batches, which cost less per line."""
MIN_READ_BYTES = 16 << 10
"""Bytes of one read when many connections share a round."""
ROUND_BYTES = 4 << 20
"""Limit of bytes published at once, so that a fast sender does not delay the messages of others."""
TURN_S = 0.02
"""Limit: time of a round after which connections with many messages or expensive requests wait for the next round."""
MAX_ACCEPTED = 128
"""Limit: connections accepted at once, so that a burst of connections does not delay lines."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Silence after which a TLS handshake is given up."""
_LOGGER = logging.getLogger(__name__)


class TcpReceiver:
    """Receiver of one TCP or local listener, in the receiver's only thread. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        writer: FrameWriter,
        decoder: LineDecoder,
        commands: Commands,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        readers: Sequence[HandlerPosition] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._listener, self._sock, self._wall_clock = listener, sock, writer.clock
        self._clock, self._sleep = clock, sleep
        self._connections = Connections(connection_limit(listener), listener.max_unfinished)
        self._selector = selectors.DefaultSelector()
        self._next_round_at = 0.0  # time of ``clock``: an earlier round is not worth its cost
        self._make_splitter = splitters_of(listener)
        self._tls, self._networks = tls_sockets(listener), networks_of(listener)
        self._acknowledgements = Acknowledgements(writer, readers) if codec_of(listener.codec).splitters else None
        self._lines = LinePublisher(listener, writer, decoder, commands, wake, self._acknowledgements)
        self._busy: deque[Connection] = deque()
        self._parked: dict[Connection, None] = {}
        """Connections whose requests wait until others are read; the first one continues first."""
        self._ended: list[Connection] = []  # the end of each came with messages
        self._buffer = bytearray(READ_BYTES)
        # Order: last, as connections are refused if the receiver cannot start.
        listen(sock, listener)
        self._selector.register(sock, selectors.EVENT_READ)

    def receive(self, timeout: float) -> None:
        """Read all ready connections once; after a pause if the last round was small."""
        pause = self._next_round_at - self._clock()
        if pause > MIN_PAUSE_S:
            self._sleep(pause)
        self._run_round(timeout)

    def _run_round(self, timeout: float) -> bool:
        """Run one round; return whether there was anything to do."""
        first = int(self._wall_clock.now() * 1_000_000)
        size = 0
        self._unpark()
        if self._busy:
            timeout = 0.0
        ready = self._selector.select(
            self._acknowledgements.limit_timeout(timeout) if self._acknowledgements else timeout
        )
        began = self._clock()
        # Connections share a round equally, so a fast sender cannot starve the others.
        # Limit: lines that wait for their turn are in memory, so less is read while there are any.
        room = min(max(ROUND_BYTES // max(len(ready) + len(self._busy), 1), MIN_READ_BYTES), READ_BYTES)
        for key, _ in ready:
            if key.data is None:
                self._accept_waiting()
            elif key.data.is_open and not key.data.has_work:  # an earlier connection of this round may have evicted it
                size += self._read(key.data, room)
            if size >= ROUND_BYTES:
                size = self._lines.publish(first)
        size += self._resume_busy(began, first)
        self._lines.publish(first)
        self._close_ended()
        self._send_acknowledgements()
        self._next_round_at = began + FILL_TIME_S if self._was_small(size) and not self._busy else 0.0
        return bool(ready) or bool(self._busy) or bool(self._parked)

    def _resume_busy(self, began: float, first: int) -> int:
        """Continue connections with many messages or expensive requests in turn, until this round took TURN_S.

        Return the bytes of the requests that were continued.
        """
        size = 0
        for _ in range(len(self._busy)):
            connection = self._busy.popleft()
            if connection.is_open:
                size += connection.unfinished
                # Order: the messages of other connections are published first, and this work counts as the round's.
                self._lines.publish(first)
                self._feed(connection, memoryview(b""))
            if self._clock() - began > TURN_S:
                break
        return size

    def _unpark(self) -> None:
        """Continue the first connection that waits for others, if it may go on."""
        # Limit: one in a round, so that thousands of waiting ones cost nothing while another one is read.
        first = next(iter(self._parked), None)
        if first is not None and not first.waits_for_memory:
            del self._parked[first]
            self._busy.append(first)

    def _notice_left(self) -> None:
        """Continue waiting connections whose senders have left: requests that they will repeat are dropped."""
        if not self._parked:
            return
        poller, by_descriptor = select.poll(), {}
        for connection in self._parked:
            poller.register(connection.sock, select.POLLRDHUP)
            by_descriptor[connection.sock.fileno()] = connection
        for descriptor, _ in poller.poll(0):
            connection = by_descriptor[descriptor]
            connection.has_left = True
            if connection.dialogue is not None:
                connection.dialogue.leave()
            if not connection.waits_for_memory:
                del self._parked[connection]
                self._busy.append(connection)

    def _was_small(self, size: int) -> bool:
        """Report whether a round was hardly worth its cost; never while a sender waits for an acknowledgement."""
        return 0 < size < MIN_READ_BYTES and not (self._acknowledgements and self._acknowledgements.has_pending)

    def tick(self) -> None:
        """Publish pending counts, settle and close idle connections, and accept again; called about every second."""
        if self._sock not in self._selector.get_map():
            self._selector.register(self._sock, selectors.EVENT_READ)
        self._close_silent()
        self._notice_left()
        self._settle()
        if self._tls:
            self._tls.refresh()
        self._lines.publish_owed()

    def take_over(self) -> None:
        """Do nothing: a predecessor's connections ended with it."""

    def finish(self) -> None:
        """Publish all bytes that have arrived, including last lines without a newline."""
        until = time.monotonic() + FINISH_TIME_S
        while self._run_round(0) and time.monotonic() < until:
            continue
        self._close_all([key.data for key in self._selector.get_map().values() if key.data is not None])

    def _accept_waiting(self) -> None:
        """Accept waiting connections, a limited number at once; evict others if descriptors run out."""
        for _ in range(MAX_ACCEPTED):
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._make_room():
                    self._selector.unregister(
                        self._sock
                    )  # it stays readable: retry at the next tick instead of spinning
                return
            if self._listener.is_local:
                self._add(sock, "")
            elif self._networks.contain(str(address[0])):
                self._add(sock, plain_address(str(address[0])))
            else:
                self._count_closed("network")
                sock.close()

    def _add(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        # A peer that vanished without a FIN is detected by the kernel; otherwise its connection would stay until
        # evicted.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls:
            try:
                sock = self._tls.wrap(sock)
            except OSError:  # the sender has disconnected already
                self._count_closed("tls")
                sock.close()
                return
        splitter = self._make_splitter()
        joiner = make_joiner(self._listener)
        connection = Connection(sock, address, splitter, self._clock(), joiner, in_handshake=self._tls is not None)
        if self._listener.is_local:
            connection.credentials = peer_credentials(sock)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._connections.add(connection)
        if not connection.in_handshake:
            self._reply(connection)
        while self._connections.is_over_limit:
            self._make_room()

    def _read(self, connection: Connection, room: int) -> int:
        """Read at most ``room`` bytes; return how many arrived, or are published as the last line."""
        if connection.in_handshake:
            return self._continue_handshake(connection)
        try:
            received, has_ended = self._receive_into(connection.sock, memoryview(self._buffer)[:room])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            received, has_ended = 0, True
        if not received:
            return self._end(connection)
        connection.last_heard_s = self._clock()
        self._feed(connection, memoryview(self._buffer)[:received])
        if has_ended:
            # OpenSSL has read the end with the last messages: the socket does not become readable again.
            self._ended.append(connection)
        return received

    def _end(self, connection: Connection) -> int:
        """Close a connection that its sender has ended, and return the bytes that wait for it."""
        connection.has_left = True
        if self._tls:
            self._tls.answer_end(connection.sock)
        return self._close(connection)

    def _close_ended(self) -> None:
        """Close connections whose end came with messages, once these are taken."""
        for connection in self._ended:
            if connection.is_open and not connection.has_work:
                self._end(connection)
                self._lines.publish(0)
        self._ended = [connection for connection in self._ended if connection.is_open]

    def _feed(self, connection: Connection, chunk: memoryview) -> None:
        self._lines.add(connection, connection.feed(chunk))
        self._connections.update(connection)
        self._reply(connection)
        if connection.has_work and connection.is_open:
            if connection.waits_for_memory:
                self._parked[connection] = None
            else:
                self._busy.append(connection)
        while self._connections.is_over_limit:
            self._make_room()

    def _receive_into(self, sock: socket.socket, room: memoryview) -> tuple[int, bool]:
        """Read what is there; return its size, and whether the sender has ended. Raises OSError."""
        if self._tls:
            return self._tls.receive(sock, room)
        received = sock.recv_into(room)
        return received, not received

    def _continue_handshake(self, connection: Connection) -> int:
        """Continue a TLS handshake; return 0, because no message can have arrived."""
        assert self._tls is not None, "only senders that speak TLS have a handshake"
        connection.last_heard_s = self._clock()
        name, reason = self._tls.continue_handshake(connection.sock)
        if reason:
            self._refuse(connection, reason)
        elif name is not None:
            connection.name = name
            self._connections.end_handshake(connection)
            self._reply(connection)
        return 0

    def _reply(self, connection: Connection) -> None:
        """Send the protocol's immediate replies, and close a connection that its protocol has ended."""
        if (dialogue := connection.dialogue) is None:
            return
        replies, dialogue.replies = dialogue.replies, []
        for reply in replies:
            connection.reply(reply)
        if dialogue.closed:
            self._refuse(connection, dialogue.closed)

    def _send_acknowledgements(self) -> None:
        """Acknowledge stored messages; a sender whose messages were missed is disconnected and sends them again.

        So is one that does not read its acknowledgements, once only a part of one finds room. An empty reply is not
        sent: more rows of its request follow, and with them the reply.
        """
        for connection, reply in self._acknowledgements.take_decided() if self._acknowledgements else ():
            if connection.is_open and reply is None:
                self._close(connection)
            elif connection.is_open and reply:
                connection.reply(reply)
                if connection.has_cut_reply:
                    self._close(connection)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._count_closed(reason)
        self._forget(connection)

    def _settle(self) -> None:
        """Publish lines that a pause completes, and give up stalled handshakes."""
        now = self._clock()
        for connection in self._connections.stalled_handshakes(now - HANDSHAKE_TIMEOUT_S):
            self._refuse(connection, "tls")
        for connection in self._connections.waiting():
            self._lines.add(connection, connection.settle(now, self._listener.multiline.wait))
            self._connections.update(connection)
        self._lines.publish(0)

    def _make_room(self) -> bool:
        """Evict one connection with its unfinished line; return whether there was one."""
        connection = self._connections.next_to_evict()
        if connection is None:
            return False
        # The sender may have written complete lines that were not read yet. Once: others wait for its descriptor.
        if connection.dialogue is None and not connection.in_handshake:
            with contextlib.suppress(OSError):
                received, _ = self._receive_into(connection.sock, memoryview(self._buffer))
                self._lines.add(connection, connection.feed(memoryview(self._buffer)[:received]))
        # Only the last line is unfinished: lines that wait for the framing to be decided are complete.
        self._lines.add(connection, connection.settled_lines())
        # The evicted lines are counted as lost before the connection is forgotten.
        evicted = connection.unfinished_lines
        self._lines.counts.absorb(
            {Name.LINES: evicted, Name.LINE_EVICTED: evicted, f"{Name.CONNECTION_CLOSED}limit": 1}
        )
        self._lines.count_sender(connection, OVERLONG, evicted)
        self._forget(connection)
        return True

    def _close(self, connection: Connection) -> int:
        """Close a connection that has ended, publish its last messages, and return the bytes that wait for it."""
        if connection.dialogue is not None:
            connection.dialogue.end()
            # Limit: one request after the other, because each may take ``max_body`` unpacked.
            while connection.has_work:
                self._lines.add(connection, connection.feed(memoryview(b"")))
                self._lines.publish(0)
        size = connection.unfinished
        self._lines.add(connection, connection.finish())
        if self._lines.has_commands:
            self._lines.publish(0)
        self._forget(connection)
        return size

    def _forget(self, connection: Connection) -> None:
        self._connections.remove(connection)
        self._parked.pop(connection, None)
        if connection.dialogue is not None:
            connection.dialogue.abandon()
            # A listener that stops drops such requests as well, and then no sender has left.
            self._lines.counts[f"{Name.CONNECTION_CLOSED}left"] += connection.has_left and bool(
                connection.dialogue.dropped
            )
        self._selector.unregister(connection.sock)
        connection.sock.close()

    def _count_closed(self, reason: str, connections: int = 1) -> None:
        self._lines.counts[f"{Name.CONNECTION_CLOSED}{reason}"] += connections

    def _close_silent(self) -> None:
        if timeout := self._listener.idle_timeout:
            silent = self._connections.silent_since(self._clock() - timeout)
            # Those with work are not silent: their senders wait for the others.
            silent = [connection for connection in silent if not connection.has_work]
            self._count_closed("idle", len(silent))
            self._close_all(silent)

    def _close_all(self, connections: Iterable[Connection]) -> None:
        size = 0
        for connection in connections:
            size += self._close(connection)
            if size >= ROUND_BYTES:
                size = self._lines.publish(0)
        self._lines.publish(0)
