"""Receiver of datagrams, UDP and local: socket to slots to batches to the log buffer, one round at a time.

Copies of a datagram: kernel to slot (recvmmsg), slot to Arrow array (one gather per round), Arrow array to frame.
Nothing runs per datagram in Python.

Order: a round's slots are reused only after its frame is published, so a kill between the two loses nothing.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.handover.frames.frame import reserved_value
from penstock.handover.frames.frame_size import FRAME_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES
from penstock.handover.sender_table import (
    ACCEPTED,
    INVALID,
    NO_ARRIVALS,
    OVERLONG,
    REFUSED,
    Arrivals,
    Ints,
    add_counts,
    address_names,
    distinct_senders,
    named_arrivals,
    sender_counts,
    text_names,
    with_losses,
)
from penstock.handover.writer import FrameWriter
from penstock.ingest.local_sockets import queue_length
from penstock.ingest.networks import networks_of
from penstock.ingest.plog_commands import Commands
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import granted_buffer, kernel_drops, socket_identity
from penstock.process.kernel import plain_address
from penstock.records import EMPTY_BODY
from penstock.wire.codecs import codec_of
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded
from penstock.wire.plog.commands import Command
from penstock.wire.plog.statistics import Statistics
from penstock.wire.source_annotations import (
    NO_HOST,
    annotate_credentials,
    annotate_sources,
    messages_by_host,
)

FILL_TIME_S = 0.005
"""Time that a batch may take to fill on a busy socket: receiver and log take 1 ms for one datagram or for fifty."""
MIN_FILL_TIME_S = 0.002
"""Time that a batch may take to fill in a small buffer: a local socket has ten datagrams, and its senders wait."""
BURST_RATE = 50_000
"""Datagrams a second that may come unexpectedly while a batch fills: without room for them it fills for less time."""
BUSY_DATAGRAMS = 2
"""Expected datagrams within the time to fill that make a socket busy."""
DATAGRAM_COST_BYTES = 2304
"""Bytes that the kernel charges for a datagram of an Ethernet frame; it drops beyond twice the granted bytes."""
MIN_PAUSE_S = 0.0001
"""Shortest pause that is worth a sleep."""
FINISH_TIME_S = 2.0
"""Limit: time spent at the end on datagrams that have already arrived."""
_NO_ROWS = np.zeros(0, np.bool_)


class Decoder(Protocol):
    """Interface of the codec: a round of datagrams to messages and counts."""

    @property
    def open_messages(self) -> int: ...
    @property
    def open_fragments(self) -> int: ...
    @property
    def statistics(self) -> Statistics: ...
    def decode(self, datagrams: Datagrams, now: float) -> Decoded: ...
    def expire(self, now: float) -> Counts: ...


class ReceivePacer:
    """Pause before each read that lets the socket fill, so that one system call takes a whole batch.

    The socket is read once it holds the smallest of half of the datagrams that its granted receive buffer surely holds,
    three quarters of the slots, and the arrivals of FILL_TIME_S, or less. If few datagrams arrive, or more than one
    read can take, there is no pause. ``room``: half of the datagrams that the socket holds.
    """

    def __init__(self, slots: int, room: int) -> None:
        self._slots = slots
        self._target = min(3 * slots // 4, room)
        self._fill_time_s = min(FILL_TIME_S, max(room / BURST_RATE, MIN_FILL_TIME_S))
        self._rate = 0.0
        self._last = 0.0

    def pause(self, now: float) -> float:
        """Return the seconds to wait at time ``now`` before the socket is read."""
        if self._rate * self._fill_time_s < BUSY_DATAGRAMS:
            return 0.0
        waiting = self._rate * (now - self._last)
        return min((self._target - waiting) / self._rate, self._fill_time_s)

    def received(self, datagrams: int, now: float) -> None:
        """Record that ``datagrams`` were read at time ``now``."""
        self._rate = datagrams / max(now - self._last, 1e-6) if datagrams < self._slots else 0.0
        self._last = now

    def idle(self) -> None:
        """Record that nothing arrived for some time."""
        self._rate = 0.0


class UdpReceiver:
    """Receiver of one UDP or local listener, in the receiver's only thread. ``wake`` is called after each frame."""

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
        self._is_local = listener.is_local
        if publisher.senders is not None:
            # The rows of the table are found by identities of the same key after a restart.
            slots.set_address_key(publisher.sender_key)
        room = queue_length() // 2 if self._is_local else granted_buffer(sock) // DATAGRAM_COST_BYTES
        self._pacer = ReceivePacer(slots.slots, room)
        self._budget = publisher.frame_limit - FRAME_OVERHEAD_BYTES - 2 * listener.most_beyond
        self._growth, self._annotates = codec_of(listener.codec).growth, listener.annotate_source
        self._networks, self._counts_hosts = networks_of(listener), listener.senders == "host"
        self._refusal = f"{Name.INVALID}{'overlong' if self._is_local else 'network'}"
        self._identity = socket_identity(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def take_over(self) -> None:
        """Recover from a predecessor: count its open messages as lost, publish slots filled and not published."""
        lost = Counts()
        before = self._publisher.before
        lost[f"{Name.INCOMPLETE}crash"], lost[Name.OPEN] = before.open_messages, -before.open_messages
        lost[Name.FRAGMENT_DISCARDED], lost[Name.FRAGMENT_OPEN] = before.open_fragments, -before.open_fragments
        round_number, slot_end = self._publisher.published
        # Crash: the last frame names its round and last slot; only the slots after it are unpublished.
        begin = slot_end if round_number == self._slots.round else 0
        unreadable = self._slots.drop_unreadable(begin)
        lost[Name.TAKEN] += self._slots.unusable
        lost[f"{Name.INVALID}slot"] += self._slots.unusable + unreadable
        lost[Name.EMPTY] -= unreadable  # the decoder will count them as empty
        if lost.pruned():
            self._publish_counts(lost, begin)
        self._publish_slots(begin, self._slots.filled, is_inherited=True)

    def receive(self, timeout: float) -> None:
        """Run one round: wait up to ``timeout`` seconds for datagrams, fill the slots, publish them."""
        if not self._poll.poll(timeout * 1000):
            self._pacer.idle()
            return
        first = int(self._publisher.clock.now() * 1_000_000)
        filled = self._receive()
        self._publish_slots(0, filled, first)

    def tick(self) -> None:
        """Publish expired messages, kernel drops and pending counts; called every half second."""
        counts = self._decoder.expire(time.monotonic())
        self._add_drops(counts)
        if counts.pruned() or self._publisher.owes:
            self._publish_counts(counts, 0)

    def finish(self) -> None:
        """Publish the datagrams that wait in the socket, for a limited time."""
        until = time.monotonic() + FINISH_TIME_S
        while time.monotonic() < until and (filled := self._receive()):
            self._publish_slots(0, filled)

    def _receive(self) -> int:
        """Fill slots from the socket, after a pause if a batch is filling; return their number."""
        pause = self._pacer.pause(time.monotonic())
        if pause > MIN_PAUSE_S:
            time.sleep(pause)
        filled = self._slots.receive(self._sock, 0)
        self._pacer.received(filled, time.monotonic())
        return filled

    def _publish_slots(self, begin: int, end: int, first: int = 0, *, is_inherited: bool = False) -> None:
        start = begin
        for part in self._parts(self._slots.datagrams(begin, end)):
            remaining = part
            while len(remaining):
                consumed = self._publish(remaining, start, first, is_inherited)
                remaining, start = remaining.range(consumed, len(remaining)), start + consumed
        if begin or end:  # Invariant: a round that is published in part is never filled again
            self._slots.next_round()

    def _publish(self, datagrams: Datagrams, start: int, first: int, is_inherited: bool) -> int:
        """Publish the slots from ``start`` on and answer their commands; return how many the codec consumed.

        ``is_inherited``: a predecessor received them. Their bytes have been in a file, so only a codec's checksum
        confirms them; messages of a single datagram have none and count as unverified.
        """
        counts = Counts()
        self._add_drops(counts)
        datagrams, is_refused = self._filter(datagrams, start, is_inherited)
        decoded = self._decoder.decode(datagrams, time.monotonic())
        consumed = len(datagrams) if decoded.consumed is None else decoded.consumed
        counts.absorb(decoded.counts)
        if refused_count := int(is_refused[:consumed].sum()):
            counts[self._refusal] += refused_count
            counts[Name.EMPTY] -= refused_count  # the decoder saw them as empty
        counts[Name.UNVERIFIED] += decoded.counts[Name.UNBOXED] if is_inherited else 0
        allowed_commands = [command for command in decoded.commands if self._is_allowed(start + command.index, counts)]
        self._publisher.publish(
            self._annotated(decoded, datagrams, start),
            counts,
            reserved_value(self._slots.round, start + consumed),
            first=first,
            open_counts=(self._decoder.open_messages, self._decoder.open_fragments),
            arrivals=self._count_senders(datagrams, start, decoded, is_refused) if self._publisher.senders else None,
        )
        self._wake()
        self._answer(allowed_commands, start)
        return consumed

    def _filter(self, datagrams: Datagrams, start: int, is_inherited: bool) -> tuple[Datagrams, npt.NDArray[np.bool_]]:
        """Empty refused datagrams (foreign networks, too long); return all datagrams and a mask of the refused ones."""
        if self._is_local:
            is_refused = self._slots.truncated(start, start + len(datagrams)) & (datagrams.lengths > 0)
            return replace(datagrams, lengths=np.where(is_refused, 0, datagrams.lengths)), is_refused
        if not self._networks:
            return datagrams, _NO_ROWS
        is_refused = ~self._networks.contain_each(self._slots.senders(start, start + len(datagrams)))
        if is_inherited:  # unreadable ones have length 0 and are counted already
            is_refused &= datagrams.lengths > 0
        return replace(datagrams, lengths=np.where(is_refused, 0, datagrams.lengths)), is_refused

    def _parts(self, datagrams: Datagrams) -> Iterator[Datagrams]:
        """Yield runs of datagrams whose messages fit into one frame."""
        # Limit: upper bound of a message in a frame: its payload, annotations no longer than it, and their growth.
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
        """Return the messages, with their source addresses if the listener annotates them."""
        if not self._annotates or not len(decoded.rows):
            return decoded.body
        if self._is_local:
            return annotate_credentials(
                decoded.body, self._slots.credentials(start, start + len(datagrams))[decoded.rows]
            )
        # One text per distinct sender of the round, not per message.
        _, first, sender_indices = np.unique(datagrams.addresses[decoded.rows], return_index=True, return_inverse=True)
        names = [plain_address(self._slots.sender(start + int(row))[0]) for row in decoded.rows[first]]
        return annotate_sources(decoded.body, names, sender_indices)

    def _count_senders(
        self, datagrams: Datagrams, start: int, decoded: Decoded, is_refused: npt.NDArray[np.bool_]
    ) -> Arrivals:
        """Return counts by sender: sent and lost in this round, and losses of earlier rounds."""
        rows = len(datagrams) if decoded.consumed is None else decoded.consumed
        if self._counts_hosts:
            return self._count_hosts(decoded, int(is_refused[:rows].sum()))
        identities = self._users(start, start + rows) if self._is_local else datagrams.addresses[:rows]
        distinct, arrived = distinct_senders(identities)
        counts = sender_counts(len(distinct))
        if len(decoded.rows) == rows:
            counts[:, ACCEPTED] = arrived
        else:
            add_counts(counts, ACCEPTED, distinct, identities[decoded.rows])
        if len(decoded.refused):
            add_counts(counts, REFUSED, distinct, identities[decoded.refused])
        if len(is_refused) and (refused := is_refused[:rows]).any():
            add_counts(counts, OVERLONG if self._is_local else INVALID, distinct, identities[refused])
        return self._with_losses(Arrivals(distinct, counts, len(distinct), partial(self._describe, identities, start)))

    def _count_hosts(self, decoded: Decoded, refused_datagrams: int) -> Arrivals:
        """Return the messages by the host in their header; what was lost before its header was read has none."""
        counts: dict[str, Ints] = {}
        for host, messages in messages_by_host(decoded.body).items():
            counts[host] = sender_counts(1)[0]
            counts[host][ACCEPTED] = messages
        if refused_datagrams or len(decoded.refused):
            losses = counts.setdefault(NO_HOST, sender_counts(1)[0])
            losses[REFUSED] = len(decoded.refused)
            losses[OVERLONG if self._is_local else INVALID] = refused_datagrams
        return named_arrivals(counts, self._publisher.sender_key)

    def _with_losses(self, arrivals: Arrivals) -> Arrivals:
        # The codec knows addresses only, so losses of local senders cannot be attributed; their codecs have none.
        losses = self._decoder.statistics.losses.remove_all()
        return with_losses(arrivals, losses) if losses and not self._is_local else arrivals

    def _users(self, begin: int, end: int) -> npt.NDArray[np.uint64]:
        # Processes come and go, users stay. One more, because 0 is not an identity.
        users: npt.NDArray[np.uint64] = (self._slots.credentials(begin, end)[:, 1] + 1).astype(np.uint64)
        return users

    def _describe(
        self, identities: npt.NDArray[np.unsignedinteger[Any]], start: int, distinct: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Return kinds and names of distinct senders of the slots from ``start`` on."""
        if self._is_local:
            return text_names([f"uid {identity - 1}" for identity in distinct.tolist()])
        order = np.argsort(identities, kind="stable")
        slots = start + order[np.searchsorted(identities[order].astype(np.uint64), distinct)]
        senders = self._slots.senders(0, self._slots.slots)
        return address_names(senders[slots])

    def _publish_counts(self, counts: Counts, slot_end: int) -> None:
        still_open = (self._decoder.open_messages, self._decoder.open_fragments)
        arrivals = self._with_losses(NO_ARRIVALS) if self._publisher.senders else None
        reserved = reserved_value(self._slots.round, slot_end)
        self._publisher.publish(EMPTY_BODY, counts, reserved, open_counts=still_open, arrivals=arrivals)
        self._wake()

    def _add_drops(self, counts: Counts) -> None:
        identity, last = self._publisher.drops
        # The kernel's counter belongs to the socket and wraps at 2^32; a new socket starts at 0.
        drops = kernel_drops(self._sock)
        counts[Name.KERNEL_DROPPED] += (drops - (last if identity == self._identity else 0)) % (1 << 32)
        self._publisher.drops = (self._identity, drops)

    def _is_allowed(self, slot: int, counts: Counts) -> bool:
        # A local sender's address is not kept, so it could not be answered.
        if not self._is_local and self._commands.is_allowed(self._slots.sender(slot)[0]):
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
