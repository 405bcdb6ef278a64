"""The simulated receivers with their sockets keep their promises for each seed, and notice bugs that are put back."""

from __future__ import annotations

import contextlib

import crc32c
import pytest

from penstock.handover.stored_waits import Fate, StoredWaits
from penstock.ingest import slots
from penstock.ingest.connections import Connection
from penstock.ingest.line_publisher import LinePublisher
from penstock.ingest.tcp import TcpReceiver
from penstock.ingest.udp import UdpReceiver
from penstock.testing.simulation.sockets.run import simulate_sockets
from penstock.wire.plog.reassembly import FinishedMessages
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)


def publish_slots_twice(patch: pytest.MonkeyPatch) -> None:
    """Publish all slots of a killed receiver, also slots that are in the log buffer."""
    take_over = UdpReceiver.take_over

    def take_over_all(self: UdpReceiver) -> None:
        self._publisher.published = (0, 0)
        take_over(self)

    patch.setattr(UdpReceiver, "take_over", take_over_all)


def count_drops_again(patch: pytest.MonkeyPatch) -> None:
    """Count the kernel's drops from 0 after each start of a receiver."""
    take_over = UdpReceiver.take_over

    def forget_drops(self: UdpReceiver) -> None:
        self._publisher.drops = ("", 0)
        take_over(self)

    patch.setattr(UdpReceiver, "take_over", forget_drops)


def forget_finished_messages(patch: pytest.MonkeyPatch) -> None:
    """Begin a new message with a late copy of a fragment."""
    patch.setattr(FinishedMessages, "fate", lambda self, key, header: None)


def acknowledge_before_the_log(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge messages before the log has stored them."""
    patch.setattr(StoredWaits, "_fate", lambda self, *wait: Fate.STORED)


def answer_behind_a_cut_answer(patch: pytest.MonkeyPatch) -> None:
    """Send further answers behind a part of one, which had found no more room."""

    def reply(self: Connection, reply: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.send(reply)

    patch.setattr(Connection, "reply", reply)


def lose_the_last_line(patch: pytest.MonkeyPatch) -> None:
    """Drop what a sender that ends its connection has sent of a line."""

    def end(self: TcpReceiver, connection: Connection) -> int:
        self._forget(connection)
        return 0

    patch.setattr(TcpReceiver, "_end", end)


def use_slots_of_an_earlier_boot(patch: pytest.MonkeyPatch) -> None:
    """Publish slots that were filled before the power was cut."""
    attach = slots.Slots._attach

    def attach_as_of_this_boot(self: slots.Slots, published: int) -> None:
        if self._header["magic"][0] == slots.MAGIC:
            self._header["boot"] = crc32c.crc32c(slots.boot_id().encode())
            self._header["check"] = slots._header_checksum(self._header[0])
        attach(self, published)

    patch.setattr(slots.Slots, "_attach", attach_as_of_this_boot)


def forget_evicted_lines(patch: pytest.MonkeyPatch) -> None:
    """Count no unfinished lines of connections that a limit closes."""
    patch.setattr(Connection, "unfinished_lines", 0)


def answer_commands_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Answer the commands of a round in the reverse order."""
    answer = LinePublisher._answer_commands

    def answer_reversed(self: LinePublisher) -> None:
        self._commands_to_answer.reverse()
        answer(self)

    patch.setattr(LinePublisher, "_answer_commands", answer_reversed)


BUGS: dict[Bug, int] = {
    publish_slots_twice: 0,
    count_drops_again: 0,
    forget_finished_messages: 2,
    acknowledge_before_the_log: 0,
    answer_behind_a_cut_answer: 1,
    lose_the_last_line: 24,
    use_slots_of_an_earlier_boot: 1115,
    forget_evicted_lines: 2021,
    answer_commands_out_of_order: 0,
}
"""A seed that notices each bug."""


# 910001: a kill before the first frame of a log buffer.
@pytest.mark.parametrize("seed", [*range(1, 20), 910_001])
def test_run_with_sockets_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_sockets, seed=seed)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_sockets, "--sockets")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_receivers_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_sockets, bug, BUGS[bug])
