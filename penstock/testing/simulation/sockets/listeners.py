"""Lives of the real receiver of a listener, over the sockets of the simulated kernel."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.paths import buffer_file, held_file
from penstock.handover.positions.lost_position import frames_in_file
from penstock.ingest import receiver as receiver_room
from penstock.ingest.receiver import STOP_PATIENCE_S, Receiver
from penstock.logbuffer import Publication
from penstock.testing.simulation.machine import Machine, replaced
from penstock.testing.simulation.sockets.kernel import DatagramSocket
from penstock.testing.simulation.sockets.streams import ListeningSocket
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded

SLOTS, TERM_BYTES = 16, 1 << 16
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
        self._is_starting = False
        self.lives: list[Life] = []
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
        assert self._receiver is not None
        return self._receiver._decoder

    def start(self) -> None:
        """Start a receiver on what the last life left."""
        life = Life(self.lives[-1].end or 0 if self.lives else 0)
        self.lives.append(life)
        self._is_starting = True
        make_decoder = receiver_room.make_decoder
        with replaced(
            receiver_room, "make_decoder", lambda config: _ObservedDecoder(make_decoder(config), life.decodes)
        ):
            self._receiver = Receiver(
                {
                    "listener": self.config.model_dump(),
                    "buffer": {"term_length": TERM_BYTES, "slots": SLOTS},
                    "folder": str(self._machine.buffers.folder),
                    "wakes": [],
                    "socket": self.sock.fileno(),
                }
            )
        publisher = self._receiver._publisher
        beat = publisher.on_wait

        def wait() -> None:
            beat()
            self._wait()

        publisher.on_wait = wait
        self._rounds, self._is_starting = self._receiver.rounds(), False
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
                    stream.certain = len(stream.consumed)

    def die(self) -> None:
        """End as by SIGKILL."""
        if isinstance(self.sock, ListeningSocket):
            self.sock.lose_receiver()
        # The kernel closes a dead process's files; cycles of objects would keep theirs.
        if self._receiver is not None:
            parts = vars(self._receiver)
            parts["_publisher"]._publication.close()
            for reader in parts["_readers"]:
                reader.position.close()
            parts["_page"].close()
            parts.clear()
        elif self._is_starting:
            gc.collect()
        self._receiver = self._rounds = None
        self._is_starting = False
        if self.lives and self.lives[-1].end is None:
            self.lives[-1].end = self._published_end()

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
        rounds = self.sock.rounds
        # Rounds are numbered from 1; a frame between rounds names the one that follows.
        return rounds[round_number - 1] + slot_end if round_number <= len(rounds) else self.sock.taken

    @property
    def is_idle(self) -> bool:
        """Report whether the socket is empty and nothing waits for the log."""
        receiver, sock = self._receiver, self.sock
        if receiver is None or sock.is_readable or receiver._publisher.owes:
            return False
        if isinstance(sock, ListeningSocket) and any(s.is_readable for s in sock.streams if not s.is_closed):
            return False
        reader = receiver._readers[0]
        folder = self._machine.buffers.folder
        if reader.position.was_advanced and held_file(folder, self.name).exists():
            return False
        position = reader.position.position
        return position >= receiver._publisher.position or not any(
            frames_in_file(buffer_file(folder, self.name), position)
        )
