"""The UDP receiver: sockets to slots to batches to the log buffer, a round at a time."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.handover.frame import reserved_value
from penstock.handover.frame_size import FRAME_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES
from penstock.handover.writer import FrameWriter
from penstock.ingest.networks import networks_of
from penstock.ingest.plog_commands import Commands
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import granted_buffer, kernel_drops, socket_identity
from penstock.records import EMPTY_BODY
from penstock.wire.codecs import codec_of
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded
from penstock.wire.plog.commands import Command
from penstock.wire.source_annotations import annotate_sources

FILL_TIME = 0.002
"""Seconds a batch may take to fill when the socket is busy: a round costs 0.2 ms, whether it takes one or fifty."""
BUSY = 2
"""Datagrams expected in that time from which on the socket counts as busy."""
DATAGRAM_COST = 2304
"""Bytes that the kernel books for a datagram of an Ethernet frame; it books twice the granted bytes before it drops."""
LEAST_PAUSE = 0.0001
"""Seconds below which it is not worth while to sleep."""
FINISH_TIME = 2.0
"""Seconds that are spent on what has arrived before the end."""
_NONE = np.zeros(0, np.bool_)


class Decoder(Protocol):
    """What turns a round into messages and counts."""

    @property
    def open_messages(self) -> int: ...
    @property
    def open_fragments(self) -> int: ...
    def decode(self, datagrams: Datagrams, now: float) -> Decoded: ...
    def expire(self, now: float) -> Counts: ...


class ReceivePacer:
    """How long to let the socket fill, so that one system call takes a whole batch out of it.

    It is to be read when it holds half of what its ``granted`` bytes of receive buffer surely hold, three quarters
    of the ``slots``, or what comes in FILL_TIME, whichever is the least. Where little is coming, or more than can be
    taken at once, it is read without delay.
    """

    def __init__(self, slots: int, granted: int) -> None:
        self._slots = slots
        self._wanted = min(3 * slots // 4, granted // DATAGRAM_COST)
        self._rate = 0.0
        self._last = 0.0

    def pause(self, now: float) -> float:
        """Seconds to wait at time ``now`` until the socket is read."""
        if self._rate * FILL_TIME < BUSY:
            return 0.0
        waiting = self._rate * (now - self._last)
        return min((self._wanted - waiting) / self._rate, FILL_TIME)

    def received(self, datagrams: int, now: float) -> None:
        """``datagrams`` were read at time ``now``."""
        self._rate = datagrams / max(now - self._last, 1e-6) if datagrams < self._slots else 0.0
        self._last = now

    def idle(self) -> None:
        """Nothing came for some time."""
        self._rate = 0.0


class UdpReceiver:
    """Receives for one UDP listener. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        sock: socket.socket,
        slots: Slots,
        publisher: FrameWriter,
        decoder: Decoder,
        commands: Commands,
        wake: Callable[[], None],
    ) -> None:
        self._sock, self._slots, self._publisher, self._decoder = sock, slots, publisher, decoder
        self._commands, self._wake = commands, wake
        self._fill = ReceivePacer(slots.slots, granted_buffer(sock))
        self._budget = publisher.frame_limit - FRAME_OVERHEAD_BYTES - 2 * listener.most_beyond
        self._growth, self._annotates = codec_of(listener.codec).growth, listener.annotate_source
        self._networks = networks_of(listener)
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
        unreadable = self._slots.drop_unreadable(begin)
        lost[Name.TAKEN] += self._slots.unusable
        lost[f"{Name.INVALID}slot"] += self._slots.unusable + unreadable
        lost[Name.EMPTY] -= unreadable  # as which they are about to be taken
        if lost.pruned():
            self._publish_counts(lost, begin)
        self._publish_slots(begin, self._slots.filled, left=True)

    def receive(self, timeout: float) -> None:
        """One round: wait up to ``timeout`` seconds for datagrams, fill the slots, publish them."""
        if not self._poll.poll(timeout * 1000):
            self._fill.idle()
            return
        first = int(self._publisher.clock.now() * 1_000_000)
        filled = self._receive()
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
        while time.monotonic() < until and (filled := self._receive()):
            self._publish_slots(0, filled)

    def _receive(self) -> int:
        """Fill slots from the socket, a little later where a batch is going to fill; how many."""
        pause = self._fill.pause(time.monotonic())
        if pause > LEAST_PAUSE:
            time.sleep(pause)
        filled = self._slots.receive(self._sock, 0)
        self._fill.received(filled, time.monotonic())
        return filled

    def _publish_slots(self, begin: int, end: int, first: int = 0, *, left: bool = False) -> None:
        start = begin
        for part in self._parts(self._slots.datagrams(begin, end)):
            rest = part
            while len(rest):
                taken = self._publish(rest, start, first, left)
                rest, start = rest.range(taken, len(rest)), start + taken
        if begin or end:  # a round of which anything was published is never filled again
            self._slots.next_round()

    def _publish(self, datagrams: Datagrams, start: int, first: int, left: bool) -> int:
        """Publish those of the slots from ``start`` on, and answer the commands among them; how many the codec took.

        ``left``: a predecessor left them. Only a checksum of the codec, which a whole datagram has not, vouches then
        for what has lain in a file.
        """
        counts = Counts()
        self._add_drops(counts)
        datagrams, strangers = self._from_here(datagrams, start, left)
        decoded = self._decoder.decode(datagrams, time.monotonic())
        taken = len(datagrams) if decoded.taken is None else decoded.taken
        counts.absorb(decoded.counts)
        if refused := int(strangers[:taken].sum()):
            counts[f"{Name.INVALID}network"] += refused
            counts[Name.EMPTY] -= refused  # as which they were taken
        counts[Name.UNVERIFIED] += decoded.counts[Name.UNBOXED] if left else 0
        answers = [c for c in decoded.commands if self._is_allowed(start + c.index, counts)]
        self._publisher.publish(
            self._annotated(decoded, datagrams, start),
            counts,
            reserved_value(self._slots.round, start + taken),
            first=first,
            open_counts=(self._decoder.open_messages, self._decoder.open_fragments),
        )
        self._wake()
        self._answer(answers, start)
        return taken

    def _from_here(self, datagrams: Datagrams, start: int, left: bool) -> tuple[Datagrams, npt.NDArray[np.bool_]]:
        """Those of the slots from ``start`` on, empty where they come from networks that may not send, and which do."""
        if not self._networks:
            return datagrams, _NONE
        strangers = ~self._networks.have_each(self._slots.senders(start, start + len(datagrams)))
        if left:  # those that could not be read have no length, and a fate already
            strangers &= datagrams.lengths > 0
        return replace(datagrams, lengths=np.where(strangers, 0, datagrams.lengths)), strangers

    def _parts(self, datagrams: Datagrams) -> Iterator[Datagrams]:
        """``datagrams`` in runs whose messages fit into one frame."""
        twice = 2 * datagrams.lengths
        costs = twice + np.minimum(twice, self._growth) + MESSAGE_OVERHEAD_BYTES
        if costs.sum() <= self._budget:
            yield from [datagrams] if len(datagrams) else []
            return
        begin, end = 0, len(datagrams)
        while begin < end:
            room = int(np.searchsorted(np.cumsum(costs[begin:]), self._budget, side="right"))
            stop = min(begin + max(room, 1), end)
            yield datagrams.range(begin, stop)
            begin = stop

    def _annotated(self, decoded: Decoded, datagrams: Datagrams, start: int) -> pa.RecordBatch:
        """The messages, with the addresses they came from where the listener asks for it."""
        if not self._annotates or not len(decoded.rows):
            return decoded.body
        _, first, which = np.unique(datagrams.addresses[decoded.rows], return_index=True, return_inverse=True)
        names = [self._slots.sender(start + int(row))[0] for row in decoded.rows[first]]
        return annotate_sources(decoded.body, names, which)

    def _publish_counts(self, counts: Counts, slot_end: int) -> None:
        still_open = (self._decoder.open_messages, self._decoder.open_fragments)
        self._publisher.publish(EMPTY_BODY, counts, reserved_value(self._slots.round, slot_end), open_counts=still_open)
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
        for number, command in enumerate(commands):
            reply = self._commands.answer(command.verb, command.trail, len(commands) - number)
            if reply is not None:
                try:
                    self._sock.sendto(reply, self._slots.sender(start + command.index))
                except OSError:
                    continue  # the sender is gone, or its answer does not fit: it asked by datagram
