"""Lives of the real receiver of a listener, over the sockets of the simulated kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.handover.buffer import HandlerPosition, open_buffer
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.paths import buffer_file, held_file
from penstock.handover.positions.lost_position import frames_in_file
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.state_page import StatePage
from penstock.handover.writer import FrameWriter
from penstock.ingest import receiver as receiver_room
from penstock.ingest.receiver import STOP_PATIENCE_S, Receiver, make_decoder
from penstock.ingest.slots import Slots
from penstock.logbuffer import Publication
from penstock.records import Body
from penstock.testing.simulation.machine import Machine, replaced
from penstock.testing.simulation.promises import Broken, Published
from penstock.testing.simulation.sockets.kernel import DatagramSocket
from penstock.testing.simulation.sockets.streams import ListeningSocket
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded

SLOTS, TERM_BYTES = 16, 1 << 16
Row = tuple[bytes, dict[str, str]]
"""Payload and annotations."""
Decode = tuple[float, int]
"""Time of a call of the decoder, and the number of datagrams that it took; 0 for a look at what has expired."""


@dataclass(slots=True)
class Life:
    """A life of a receiver: its decodes, and how many of the socket's datagrams were published at its end."""

    begin: int
    decodes: list[Decode] = field(default_factory=list)
    end: int | None = None


class _ObservedDecoder:
    """A decoder that notes when it takes how many datagrams."""

    def __init__(self, decoder: Any, decodes: list[Decode]) -> None:
        self._decoder, self._decodes = decoder, decodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        decoded: Decoded = self._decoder.decode(datagrams, now)
        self._decodes.append((now, len(datagrams) if decoded.consumed is None else decoded.consumed))
        return decoded

    def expire(self, now: float) -> Counts:
        self._decodes.append((now, 0))
        counts: Counts = self._decoder.expire(now)
        return counts


class _Parts:
    """The parts of a running receiver, noted as it makes them. The kernel closes the files of a dead one."""

    def __init__(self, decodes: list[Decode], published: Published) -> None:
        self._decodes, self._published = decodes, published
        self._files: list[Publication | StatePage | ReaderPosition] = []
        self.readers: list[HandlerPosition] = []
        self.writer: FrameWriter | None = None
        self.slots: Slots | None = None

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Note the parts of a receiver that starts in the block."""
        replacements = {
            "make_decoder": self._make_decoder,
            "open_buffer": self._open_buffer,
            "FrameWriter": self._make_writer,
            "StatePage": self._open_page,
            "Slots": self._make_slots,
        }
        with contextlib.ExitStack() as stack:
            for name, replacement in replacements.items():
                stack.enter_context(replaced(receiver_room, name, replacement))
            yield

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _make_decoder(self, listener: ListenerConfig) -> _ObservedDecoder:
        self.decoder = _ObservedDecoder(make_decoder(listener), self._decodes)
        return self.decoder

    def _open_buffer(self, *arguments: Any) -> tuple[Publication, list[HandlerPosition]]:
        publication, self.readers = open_buffer(*arguments)
        self._files += [publication, *(reader.position for reader in self.readers)]
        return publication, self.readers

    def _make_writer(self, *arguments: Any) -> FrameWriter:
        writer = self.writer = FrameWriter(*arguments)
        publish, published = writer.publish, self._published
        published.spared += max(writer.total - writer.before.total, 0)

        def observed_publish(messages: Body, counts: Counts, *rest: Any, **named: Any) -> None:
            # Uncertain until the frame is complete: the receiver may die within the call.
            accepted = counts[Name.ACCEPTED]
            published.uncertain += accepted
            publish(messages, counts, *rest, **named)
            published.uncertain -= accepted
            published.complete += accepted

        writer.publish = observed_publish  # type: ignore[method-assign]
        return writer

    def _make_slots(self, *arguments: Any, **named: Any) -> Slots:
        self.slots = Slots(*arguments, **named)
        return self.slots

    def _open_page(self, *arguments: Any, **named: Any) -> StatePage:
        page = StatePage(*arguments, **named)
        self._files.append(page)
        return page


class SocketListener:
    """A listener with its socket, and the lives of its receiver, each after the last.

    ``wait`` lets other processes run while the receiver waits for room in its log buffer.
    """

    def __init__(
        self,
        machine: Machine,
        config: ListenerConfig,
        sock: DatagramSocket | ListeningSocket,
        wait: Callable[[], None],
    ) -> None:
        self.name, self.config, self.sock = config.name, config, sock
        self._machine, self._wait = machine, wait
        self._receiver: Receiver | None = None
        self._rounds: Iterator[None] | None = None
        self._parts: _Parts | None = None
        self.lives: list[Life] = []
        """The lives since the power was cut."""
        self.begin = 0
        """The number of datagrams that entered the socket before the power was cut."""
        self._first_round = 1
        """The number of the first round since the power was cut."""
        self.published = Published(config.name)
        self._stored: list[Row] = []
        self.rest_until = 0
        """The step before which the receiver takes none."""
        self.has_given_up = False
        """Whether a receiver that stopped may have left lines unpublished."""

    @property
    def topic(self) -> str:
        """The topic of the listener."""
        assert self.config.log is not None
        return str(self.config.log.topic)

    @property
    def is_running(self) -> bool:
        return self._rounds is not None

    @property
    def decoder(self) -> Any:
        """The decoder of this life."""
        assert self._parts is not None
        return self._parts.decoder

    def start(self) -> None:
        """Start a receiver on what the last life left."""
        life = Life(self.lives[-1].end or 0 if self.lives else self.begin)
        self.lives.append(life)
        parts = self._parts = _Parts(life.decodes, self.published)
        with parts.observed():
            self._receiver = Receiver(
                {
                    "listener": self.config.model_dump(),
                    "buffer": {"term_length": TERM_BYTES, "slots": SLOTS},
                    "folder": str(self._machine.buffers.folder),
                    "wakes": [],
                    "socket": self.sock.fileno(),
                }
            )
        assert parts.writer is not None
        if len(self.lives) == 1 and isinstance(self.sock, DatagramSocket):
            assert parts.slots is not None
            self._first_round = parts.slots.round
        beat = parts.writer.on_wait

        def wait() -> None:
            beat()
            self._wait()

        parts.writer.on_wait = wait
        self._rounds = self._receiver.rounds()
        self._machine.buffers.write_back_created()

    def step(self) -> None:
        """Take one round."""
        assert self._rounds is not None
        self._mark_certain()
        next(self._rounds)
        self._mark_certain()

    def stop(self) -> None:
        """Stop in order, as for a reload of the listener."""
        assert self._receiver is not None
        assert self._rounds is not None
        self._receiver.stop()
        before = self._machine.clock.monotonic()
        for _ in self._rounds:
            pass
        if self._machine.clock.monotonic() - before >= STOP_PATIENCE_S:
            self.has_given_up = True
        else:
            self._mark_certain()
        self.die()

    def _mark_certain(self) -> None:
        # What a receiver has read before this step is in the log buffer.
        if isinstance(self.sock, ListeningSocket):
            for stream in self.sock.streams:
                if not stream.died:
                    stream.certain, stream.was_closed = len(stream.consumed), stream.is_closed

    def skip_handlers(self) -> None:
        """Keep the handler of the writer from the table of senders: no handler runs in a process that is killed."""
        if self._parts is not None and self._parts.writer is not None:
            self._parts.writer.senders = None

    def die(self) -> None:
        """End as by SIGKILL."""
        if isinstance(self.sock, ListeningSocket):
            self.sock.lose_receiver()
        if self._receiver is not None:
            vars(self._receiver).clear()  # cycles of objects would keep its maps open
        if self._parts is not None:
            self._parts.close()
        self._receiver = self._rounds = self._parts = None
        if self.lives and self.lives[-1].end is None:
            self.lives[-1].end = self._published_end()

    def check_stored_before(self, rows: list[Row]) -> None:
        """Check that all rows of the last check are still stored. Raises Broken."""
        if rows[: len(self._stored)] != self._stored:
            raise Broken(f"{self.name}: rows that were stored have changed: {set(map(str, self._stored))}")
        self._stored = rows

    def lose_power(self) -> None:
        """End with the machine, which loses the socket."""
        self.die()
        self.lives.clear()
        self.begin = self.sock.lose_power()

    def _published_end(self) -> int:
        """Return how many datagrams of the socket are published, as the newest frame tells it."""
        if not isinstance(self.sock, DatagramSocket):
            return 0
        begin = self.lives[-1].begin
        path = buffer_file(self._machine.buffers.folder, self.name)
        if not path.exists():
            return begin
        with contextlib.closing(Publication.open(path)) as publication:
            frame = publication.last_frame()
            metadata = intact_metadata(frame) if frame else None
        if metadata is None or metadata.slots is None:
            return begin
        round_number, slot_end = metadata.slots
        rounds, number = self.sock.rounds, round_number - self._first_round
        if number < 0:  # the frame is from before the power was cut
            return begin
        # A frame between rounds names the one that follows.
        return rounds[number] + slot_end if number < len(rounds) else self.sock.read_total

    @property
    def is_idle(self) -> bool:
        """Report whether the socket is empty and nothing waits for the log."""
        parts, sock = self._parts, self.sock
        if self._rounds is None or parts is None or parts.writer is None or sock.is_readable or parts.writer.owes:
            return False
        if isinstance(sock, ListeningSocket) and any(s.is_readable for s in sock.streams if not s.is_closed):
            return False
        folder, position = self._machine.buffers.folder, parts.readers[0].position
        if position.was_advanced and held_file(folder, self.name).exists():
            return False
        path = buffer_file(folder, self.name)
        return position.position >= parts.writer.position or not any(frames_in_file(path, position.position))
