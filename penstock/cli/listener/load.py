"""Load for a listener: messages of random bytes in fragments, some of them withheld, as plog's stress tool sends them.

Fast path: a burst is laid out as arrays, headers in one buffer and payloads in another, and sent with few system
calls.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

import mmh3
import numpy as np

from penstock.client.send_many import DatagramBatch
from penstock.client.sender import udp_socket
from penstock.counts import Counts
from penstock.wire.datagrams import Ints
from penstock.wire.plog.cutting import MAX_COUNT, MAX_DATAGRAM
from penstock.wire.plog.header import FRAGMENT, HEADER, HEADER_SIZE, VERSION

BURST_S = 0.002
"""Seconds of messages that are sent at once: a shorter sleep between bursts would not be accurate."""
MAX_BURST_MESSAGES, MAX_BURST_BYTES = 512, 4 << 20
"""Limit: the arrays of one burst."""


@dataclass(frozen=True, slots=True)
class StressSettings:
    """Settings of the load, named as in plog's stress tool. Raises ValueError for values that give no load.

    Message sizes are ``min_size`` plus a multiple of ``size_increments``, below ``max_size``. The multiple is a random
    number in [0, 1) to the power of ``size_exponent``, times the number of sizes. ``rate`` is messages per second of
    all threads together, 0 for no limit; ``stop_after`` and ``renew_rate`` are messages of one thread until it ends
    and until it opens a new socket; ``packet_size`` is the most bytes of a datagram, header included; ``loss`` is
    the share of datagrams that is not sent.
    """

    threads: int = 1
    rate: int = 10_000
    renew_rate: int = 100_000
    stop_after: int = 100_000
    min_size: int = 100
    max_size: int = 4_100
    size_increments: int = 20
    size_exponent: float = 5.0
    seed: int = 0
    packet_size: int = 1_424
    loss: float = 0.0
    send_buffer: int = 1 << 20

    def __post_init__(self) -> None:
        if min(self.threads, self.renew_rate, self.stop_after, self.size_increments) < 1 or self.rate < 0:
            raise ValueError("threads, renew_rate, stop_after and size_increments must be at least 1, rate at least 0")
        if not 0 <= self.min_size <= self.max_size or self.max_size >= 1 << 31:
            raise ValueError("sizes must be from 0 to 2 GiB, min_size at most max_size")
        if not HEADER_SIZE < self.packet_size <= MAX_DATAGRAM:
            raise ValueError(f"packet_size must be from {HEADER_SIZE + 1} to {MAX_DATAGRAM}")
        if -(-self.max_size // self.part_size) > MAX_COUNT:
            raise ValueError(f"messages of {self.max_size} bytes need more than {MAX_COUNT} fragments")
        if not 0 <= self.loss <= 1 or self.size_exponent < 0:
            raise ValueError("loss must be from 0 to 1, size_exponent at least 0")

    @property
    def part_size(self) -> int:
        """Bytes of a fragment's payload."""
        return self.packet_size - HEADER_SIZE

    @property
    def sizes(self) -> Ints:
        """All message sizes, in bytes."""
        return np.arange(self.min_size, max(self.max_size, self.min_size + 1), self.size_increments, dtype=np.int64)


class Stress:
    """The threads that send to ``address``. Each owns its socket and its counts; ``counts`` may be read at any time."""

    def __init__(self, address: tuple[str, int], settings: StressSettings) -> None:
        self._address, self._settings = address, settings
        self._payload_bytes = np.random.default_rng(settings.seed).integers(0, 256, max(settings.max_size, 1), np.uint8)
        self._sizes = settings.sizes
        # -1: not computed yet. A hash has 32 bits, so it is never negative here. Threads share it without a
        # lock: those that race compute the same hash.
        self._hashes = np.full(len(self._sizes), -1, np.int64)
        self._counts = [Counts() for _ in range(settings.threads)]
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._send_messages, args=(n,), daemon=True) for n in range(settings.threads)
        ]
        self.error: OSError | None = None

    @property
    def counts(self) -> Counts:
        """Return the counts so far: messages, bytes, datagrams, withheld datagrams (``lost``) and sockets."""
        total = Counts()
        for counts in self._counts:
            total.absorb(dict(counts))
        return total

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the threads to end early."""
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the threads and return whether all have ended; ``error`` is the cause of an early end."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _send_messages(self, number: int) -> None:
        settings, counts = self._settings, self._counts[number]
        random = np.random.default_rng([settings.seed, number])
        rate = settings.rate / settings.threads
        burst = max(
            min(MAX_BURST_MESSAGES, MAX_BURST_BYTES // settings.max_size if settings.max_size else MAX_BURST_MESSAGES),
            1,
        )
        started_at, sent = time.monotonic(), 0
        sock: socket.socket | None = None
        try:
            while sent < settings.stop_after and not self._stopping.is_set():
                if sent % settings.renew_rate == 0:
                    sock = self._renew_socket(sock, counts)
                assert sock
                remaining = min(settings.stop_after - sent, settings.renew_rate - sent % settings.renew_rate)
                messages = min(remaining, burst, max(int(rate * BURST_S), 1) if rate else burst)
                self._send_burst(sock, random, sent, messages, counts)
                sent += messages
                ahead_s = sent / rate - (time.monotonic() - started_at) if rate else 0
                if ahead_s > 0:
                    self._stopping.wait(ahead_s)
        except OSError as error:
            self.error = error
        finally:
            if sock is not None:
                sock.close()

    def _renew_socket(self, old: socket.socket | None, counts: Counts) -> socket.socket:
        if old is not None:
            old.close()
        sock = udp_socket(*self._address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer)
        counts["sockets"] += 1
        return sock

    def _send_burst(
        self, sock: socket.socket, random: np.random.Generator, first_id: int, messages: int, counts: Counts
    ) -> None:
        size_indices = (random.random(messages) ** self._settings.size_exponent * len(self._sizes)).astype(np.int64)
        sizes = self._sizes[size_indices]
        datagrams, fragments = self._lay_out_fragments(random, sizes, self._message_hashes(size_indices), first_id)
        if len(datagrams):
            datagrams.send(sock)
        counts.absorb({"messages": messages, "bytes": int(sizes.sum()), "datagrams": len(datagrams)})
        if lost := fragments - len(datagrams):
            counts["lost"] += lost

    def _message_hashes(self, size_indices: Ints) -> Ints:
        # Fast path: messages of one size have the same bytes, so each size is hashed once.
        for index in np.unique(size_indices[self._hashes[size_indices] < 0]).tolist():
            self._hashes[index] = mmh3.mmh3_32_uintdigest(self._payload_bytes[: int(self._sizes[index])].tobytes(), 0)
        hashes: Ints = self._hashes[size_indices]
        return hashes

    def _lay_out_fragments(
        self, random: np.random.Generator, sizes: Ints, hashes: Ints, first_id: int
    ) -> tuple[DatagramBatch, int]:
        """Return the datagrams to send, and the number of fragments including those withheld."""
        part = self._settings.part_size
        per_message = np.maximum(-(-sizes // part), 1)
        message = np.repeat(np.arange(len(sizes)), per_message)
        index = np.arange(len(message)) - np.repeat(np.cumsum(per_message) - per_message, per_message)
        is_sent = random.random(len(message)) >= self._settings.loss
        message, index = message[is_sent], index[is_sent]
        headers = np.zeros(len(message), HEADER)
        headers["version"], headers["type"] = VERSION, FRAGMENT
        headers["count"], headers["index"], headers["size"] = per_message[message], index, part
        headers["id"] = (first_id + message) & 0xFFFF_FFFF
        headers["total"], headers["hash"] = sizes[message], hashes[message]
        starts = np.stack([np.arange(len(message)) * HEADER_SIZE, index * part], axis=1)
        payload_bytes = np.minimum(sizes[message] - index * part, part)
        lengths = np.stack([np.full(len(message), HEADER_SIZE), payload_bytes], axis=1)
        return DatagramBatch([headers.view(np.uint8), self._payload_bytes], starts, lengths), len(is_sent)
