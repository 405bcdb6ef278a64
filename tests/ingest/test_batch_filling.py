"""Time that the socket gets to fill: large batches, but no more than its buffer holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ingest.local_sockets import DEFAULT_QUEUE_LENGTH
from penstock.ingest.udp import BURST_RATE, DATAGRAM_COST_BYTES, FILL_TIME_S, MIN_PAUSE_S, ReceivePacer

SMALL = 1280
"""Bytes that the kernel books for a small datagram."""

STOCK, LARGE = 212_992, 4 << 20
"""Bytes that stock kernels grant, and that most senders should have."""
ROUND, EACH = 400e-6, 0.8e-6
"""Seconds that a round takes, and a datagram in it."""


class Socket:
    """A socket that ``rate`` datagrams a second come to, and a receiver that reads it, in simulated time."""

    def __init__(self, granted: int, rate: float, slots: int = 1024, booked: int = SMALL) -> None:
        self.filling = ReceivePacer(slots, granted // DATAGRAM_COST_BYTES)
        self.room, self.rate, self.slots = 2 * granted // booked, rate, slots
        self.now = self.waiting = 0.0
        self.dropped = 0.0
        self.rounds: list[float] = []

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.waiting += self.rate * seconds
        self.dropped += max(self.waiting - self.room, 0)
        self.waiting = min(self.waiting, self.room)

    def round(self) -> None:
        self.pass_time(max(1 - self.waiting, 0) / self.rate)  # until something comes
        pause = self.filling.pause(self.now)
        if pause > MIN_PAUSE_S:
            self.pass_time(pause)
        received = min(int(self.waiting), self.slots)
        self.waiting -= received
        self.filling.received(received, self.now)
        self.pass_time(ROUND + EACH * received)
        self.rounds.append(received)

    def run(self, rounds: int = 300) -> float:
        """Datagrams of a round, once it runs steadily."""
        self.pass_time(0.001)
        for _ in range(rounds):
            self.round()
        return sum(self.rounds[100:]) / len(self.rounds[100:])


@pytest.mark.parametrize(
    ("granted", "rate", "least"),
    [
        (STOCK, 5_000, 9),
        (LARGE, 1_000, 5),
        (STOCK, 20_000, 40),
        (STOCK, 100_000, 80),
        (STOCK, 250_000, 80),
        (LARGE, 20_000, 40),
        (LARGE, 100_000, 200),
        (LARGE, 250_000, 500),
        (LARGE, 500_000, 700),
    ],
)
def test_batches_fill_and_nothing_is_dropped(granted: int, rate: float, least: int) -> None:
    sock = Socket(granted, rate)
    assert sock.run() >= least
    assert sock.dropped == 0


@pytest.mark.parametrize("granted", [STOCK, LARGE])
def test_the_same_holds_for_datagrams_that_fill_a_frame(granted: int) -> None:
    sock = Socket(granted, 60_000, booked=DATAGRAM_COST_BYTES)
    assert sock.run() >= 70
    assert sock.dropped == 0


@pytest.mark.parametrize("granted", [STOCK, LARGE])
def test_a_burst_while_a_batch_fills_finds_room(granted: int) -> None:
    sock = Socket(granted, 1_500)
    sock.run()
    sock.rate = BURST_RATE
    sock.pass_time(sock.filling.pause(sock.now))
    assert sock.dropped == 0


@pytest.mark.parametrize(("rate", "least"), [(1_500, 2.5), (5_000, 4), (15_000, 4)])
def test_batches_of_a_local_socket_with_ten_datagrams_fill(rate: float, least: float) -> None:
    sock = Socket(STOCK, rate)
    sock.filling, sock.room = ReceivePacer(1024, DEFAULT_QUEUE_LENGTH // 2), DEFAULT_QUEUE_LENGTH
    assert sock.run() >= least


def test_with_a_small_buffer_the_time_that_suits_a_large_one_would_lose_much() -> None:
    sock = Socket(STOCK, 250_000)
    sock.filling = ReceivePacer(1024, LARGE // DATAGRAM_COST_BYTES)
    sock.run()
    assert sock.dropped > 1000


def test_more_than_can_be_taken_is_read_without_delay() -> None:
    sock = Socket(LARGE, 2_000_000)
    sock.run()
    before = sock.now
    sock.round()
    assert sock.rounds[-1] == 1024
    assert sock.now - before == pytest.approx(ROUND + 1024 * EACH, abs=MIN_PAUSE_S)


def test_few_datagrams_are_read_at_once() -> None:
    sock = Socket(LARGE, 300)
    assert sock.run() == 1
    assert sock.filling.pause(sock.now) == 0


def test_after_a_silence_the_first_datagram_does_not_wait() -> None:
    sock = Socket(LARGE, 250_000)
    sock.run()
    sock.filling.idle()
    assert sock.filling.pause(sock.now) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1024), st.floats(0, 1)), max_size=20), st.integers(0, 8 << 20))
def test_pause_is_never_longer_than_a_batch_may_fill(rounds: list[tuple[int, float]], granted: int) -> None:
    filling, now = ReceivePacer(1024, granted // DATAGRAM_COST_BYTES), 5.0
    for received, passed in rounds:
        filling.received(received, now)
        now += passed
        assert filling.pause(now) <= FILL_TIME_S
