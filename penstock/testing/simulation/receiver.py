"""A receiver: accepts messages of senders into its log buffer, and answers senders that wait for the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.config import ListenerConfig
from penstock.counts import BucketClock, Counts, Name
from penstock.handover.buffer import HandlerPosition, open_buffer
from penstock.handover.paths import buffer_file, held_file, state_file
from penstock.handover.positions.lost_position import frames_in_file
from penstock.handover.state_page import StatePage
from penstock.handover.stored_waits import Fate, StoredWaits
from penstock.handover.writer import FrameWriter
from penstock.logbuffer import Publication
from penstock.records import EMPTY_BODY, body
from penstock.testing.simulation.machine import Machine
from penstock.testing.simulation.promises import Published

TERM_BYTES = 1 << 16
FRAME_OVERHEAD_BYTES = 1000
"""About the bytes of a frame besides its messages."""
Answer = Callable[[Fate], None]


@dataclass(slots=True)
class _Life:
    """The open files of one life."""

    publication: Publication
    readers: list[HandlerPosition]
    page: StatePage
    writer: FrameWriter
    waits: StoredWaits[Answer]

    def close(self) -> None:
        self.publication.close()
        self.page.close()
        for reader in self.readers:
            reader.position.close()


class Receiver:
    """The lives of a listener's receiver, each after the last. ``answers``: its senders wait for the log.

    ``handlers`` are configured behind the log.
    """

    def __init__(
        self, machine: Machine, name: str, topic: str, answers: bool, handlers: Sequence[dict[str, str]] = ()
    ) -> None:
        self.name, self.topic, self.answers = name, topic, answers
        self._machine = machine
        log = {"type": "log", "topic": topic, "overflow": "block" if answers else "drop"}
        self._config = ListenerConfig.model_validate(
            {"name": name, "protocol": "tcp" if answers else "udp", "handlers": [log, *handlers]}
        )
        self.published = Published(name)
        self.written: Counter[bytes] = Counter()
        """Copies of each message in complete frames."""
        self._life: _Life | None = None
        self.life = 0

    @property
    def is_running(self) -> bool:
        return self._life is not None

    def start(self) -> None:
        """Open the log buffer in the state that the last life left."""
        clock, folder = self._machine.clock, self._machine.buffers.folder
        publication, readers = open_buffer(folder, self._config, TERM_BYTES)
        page = StatePage(state_file(folder, self.name))
        writer = FrameWriter(self.name, self._config.codec, publication, readers, page)
        self.published.spared += max(writer.total - writer.before.total, 0)
        writer.clock = BucketClock(clock.time, clock.monotonic, writer.before.origin.bucket)
        waits: StoredWaits[Answer] = StoredWaits(writer, readers, clock=clock.monotonic)
        self._life = _Life(publication, readers, page, writer, waits)
        self.life += 1
        self._machine.buffers.write_back_created()

    def can_receive(self, payloads: Sequence[bytes], may_drop: bool = False) -> bool:
        """Report whether the receiver takes these messages.

        It must not wait for a lagging log, because no other process would run. With ``may_drop`` a listener that drops
        frames takes all messages.
        """
        if self._life is None or (may_drop and not self.answers):
            return self._life is not None
        return self._life.waits.has_room(sum(map(len, payloads)) + FRAME_OVERHEAD_BYTES)

    def receive(self, payloads: Sequence[bytes], answer: Answer) -> None:
        """Write messages as one frame; ``answer`` is called when their fate is decided."""
        assert self._life is not None
        begin, count, published = self._life.writer.position, len(payloads), self.published
        # Uncertain until the frame is complete: the receiver may die within the call.
        published.uncertain += count
        self._life.writer.publish(body(list(payloads)), Counts({Name.SEEN: count, Name.ACCEPTED: count}), 0)
        published.uncertain -= count
        published.complete += count
        self.written.update(payloads)
        self._life.waits.expect(begin, answer)

    def step(self) -> None:
        """Answer senders, and write a frame for counts that are owed."""
        assert self._life is not None
        for answer, fate in self._life.waits.take_decided():
            answer(fate)
        if self._life.writer.owes and (not self.answers or self.can_receive([])):
            self._life.writer.publish(EMPTY_BODY, Counts(), 0)

    @property
    def is_idle(self) -> bool:
        """Report whether nothing waits for the log."""
        if self._life is None or self._life.writer.owes:
            return False
        if self._life.readers[0].position.was_advanced and held_file(self._machine.buffers.folder, self.name).exists():
            return False
        return self.has_read_all(0)

    def has_read_all(self, reader: int) -> bool:
        """Report whether the log (0), or another handler by its number, has read all frames."""
        if self._life is None:
            return False
        position = self._life.readers[reader].position.position
        # A power cut may take the last frames: the reader then waits before the place where the writer continues.
        path = buffer_file(self._machine.buffers.folder, self.name)
        return position >= self._life.writer.position or not any(frames_in_file(path, position))

    def die(self) -> None:
        """End as by SIGKILL."""
        self.life += 1
        if self._life is not None:
            self._life.close()
            self._life = None
