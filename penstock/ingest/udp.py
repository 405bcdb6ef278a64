"""The UDP receiver: sockets to slots to batches to the log buffer, a round at a time."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.ingest.commands import Commands
from penstock.ingest.frames import FRAME_COST, MESSAGE_COST, reserved_value
from penstock.ingest.publisher import Publisher
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import granted_buffer, kernel_drops, socket_identity
from penstock.records import EMPTY_BODY
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog import Command, Decoded

FILL_TIME = 0.002
"""Seconds a batch may take to fill when the socket is busy: small batches cost three times the CPU."""
SMALL_BUFFER = 1 << 20
"""With less receive buffer than this, half a millisecond has to do."""
BUSY = 32
"""Datagrams in the first read from which on the socket counts as busy."""
PAUSE = 0.0003
FINISH_TIME = 2.0
"""Seconds that are spent on what has arrived before the end."""


class Decoder(Protocol):
    """What turns a round into messages and counts."""

    @property
    def open_messages(self) -> int: ...
    @property
    def open_fragments(self) -> int: ...
    def decode(self, datagrams: Datagrams, now: float) -> Decoded: ...
    def expire(self, now: float) -> Counts: ...


class UdpReceiver:
    """Receives for one UDP listener. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        slots: Slots,
        publisher: Publisher,
        decoder: Decoder,
        commands: Commands,
        wake: Callable[[], None],
    ) -> None:
        self._sock, self._slots, self._publisher, self._decoder = sock, slots, publisher, decoder
        self._commands, self._wake = commands, wake
        self._fill_time = FILL_TIME if granted_buffer(sock) >= SMALL_BUFFER else FILL_TIME / 4
        self._budget = publisher.frame_limit - FRAME_COST - 2 * listener.defrag.max_size
        self._identity = socket_identity(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def take_over(self) -> None:
        """Enter what a predecessor left behind: messages it had open, slots filled and not published."""
        lost = Counts()
        before = self._publisher.before
        lost[f"{Name.INCOMPLETE}crash"], lost[Name.OPEN] = before.open_messages, -before.open_messages
        lost[Name.FRAGMENT_DISCARDED], lost[Name.FRAGMENT_OPEN] = before.open_fragments, -before.open_fragments
        round_number, slot_end = self._publisher.published
        begin = slot_end if round_number == self._slots.round else 0
        if lost.pruned():
            self._publish_counts(lost, begin)
        self._publish_slots(begin, self._slots.filled)

    def receive(self, timeout: float) -> None:
        """One round: wait up to ``timeout`` seconds for datagrams, fill the slots, publish them."""
        if not self._poll.poll(timeout * 1000):
            return
        first = int(self._publisher.clock.now() * 1_000_000)
        filled = self._fill()
        self._publish_slots(0, filled, first)

    def tick(self) -> None:
        """Once a second or so: what has expired, what the kernel dropped, what could not be told yet."""
        counts = self._decoder.expire(time.monotonic())
        self._add_drops(counts)
        if counts.pruned() or self._publisher.owes:
            self._publish_counts(counts, 0)

    def finish(self) -> None:
        """Before the end: what waits in the socket, for a limited time."""
        until = time.monotonic() + FINISH_TIME
        while time.monotonic() < until and (filled := self._fill()):
            self._publish_slots(0, filled)

    def _fill(self) -> int:
        """Fill slots from the socket until it is empty, they are full, or the time is up; how many."""
        deadline = time.monotonic() + self._fill_time
        filled = self._slots.receive(self._sock, 0)
        while BUSY <= filled < self._slots.slots and time.monotonic() < deadline:
            got = self._slots.receive(self._sock, filled)
            filled += got
            if not got:
                time.sleep(PAUSE)
        return filled

    def _publish_slots(self, begin: int, end: int, first: int = 0) -> None:
        for start, stop in self._parts(begin, end):
            counts = Counts()
            self._add_drops(counts)
            decoded = self._decoder.decode(self._slots.datagrams(start, stop), time.monotonic())
            counts.absorb(decoded.counts)
            answers = [c for c in decoded.commands if self._is_allowed(start + c.index, counts)]
            self._publisher.publish(
                decoded.body,
                counts,
                reserved_value(self._slots.round, stop),
                first=first,
                still_open=(self._decoder.open_messages, self._decoder.open_fragments),
            )
            self._wake()
            self._answer(answers, start)
        if begin or end:  # a round of which anything was published is never filled again
            self._slots.next_round()

    def _parts(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """[begin, end) in runs of slots whose messages fit into one frame."""
        costs = 2 * self._slots.lengths(begin, end) + MESSAGE_COST
        while begin < end:
            room = int(np.searchsorted(np.cumsum(costs), self._budget, side="right"))
            stop = min(begin + max(room, 1), end)
            yield begin, stop
            costs = costs[stop - begin :]
            begin = stop

    def _publish_counts(self, counts: Counts, slot_end: int) -> None:
        still_open = (self._decoder.open_messages, self._decoder.open_fragments)
        self._publisher.publish(EMPTY_BODY, counts, reserved_value(self._slots.round, slot_end), still_open=still_open)
        self._wake()

    def _add_drops(self, counts: Counts) -> None:
        identity, last = self._publisher.drops
        drops = kernel_drops(self._sock)
        counts[Name.KERNEL_DROPPED] += (drops - (last if identity == self._identity else 0)) % (1 << 32)
        self._publisher.drops = (self._identity, drops)

    def _is_allowed(self, slot: int, counts: Counts) -> bool:
        if self._commands.allowed(self._slots.sender(slot)[0]):
            return True
        counts[Name.COMMAND] -= 1
        counts[f"{Name.INVALID}command_refused"] += 1
        return False

    def _answer(self, commands: list[Command], start: int) -> None:
        for command in commands:
            reply = self._commands.answer(command.verb, command.trail)
            if reply is not None:
                try:
                    self._sock.sendto(reply, self._slots.sender(start + command.index))
                except OSError:
                    continue  # the sender is gone, or its answer does not fit: it asked by datagram
