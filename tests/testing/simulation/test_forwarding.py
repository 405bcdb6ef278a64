"""The simulated pipe with forwarders keeps its promises for each seed, and notices bugs that are put back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.counts import Counts, Origin
from penstock.handover import writer
from penstock.handover.missed_frames import MissedCounts, missed_counts
from penstock.handover.positions.accounts import Account
from penstock.sinks.forwarder import Forwarder
from penstock.sinks.handler import Delivered
from penstock.testing.simulation.forwarding import simulate_forwarding
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)


def ignore_accounts_after_a_power_failure(patch: pytest.MonkeyPatch) -> None:
    """Drop frames again that the account of a forwarder has."""
    patch.setattr(writer, "read_account", lambda folder, listener, handler: Account())


def leave_messages_without_fate(patch: pytest.MonkeyPatch) -> None:
    """Leave messages without a fate whose counts a power failure took."""
    patch.setattr(Account, "with_lost_counts", lambda self, position, drops: self)


def forget_dropped_frames_of_forwarders(patch: pytest.MonkeyPatch) -> None:
    """Move forwarders past frames, and count none of their messages."""

    def counts_of_log(frames: object, handler: object, *more: object) -> MissedCounts:
        missed = missed_counts(frames, handler, *more)  # type: ignore[arg-type]
        return missed if handler.name == "log" else MissedCounts(Counts(), missed.mark, [])  # type: ignore[attr-defined]

    patch.setattr(writer, "missed_counts", counts_of_log)


def count_refused_messages_as_delivered(patch: pytest.MonkeyPatch) -> None:
    """Count a batch as delivered that its destination has refused."""

    def deliver(self: Forwarder, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        try:
            return self._handler.deliver(batch, origin)
        except OSError:
            return Delivered(batch.num_rows)

    patch.setattr(Forwarder, "_deliver", deliver)


BUGS: dict[Bug, int] = {
    ignore_accounts_after_a_power_failure: 700000023,
    leave_messages_without_fate: 700000084,
    forget_dropped_frames_of_forwarders: 5,
    count_refused_messages_as_delivered: 0,
}
"""A seed that notices each bug."""


CASES = [
    700000010,
    700000042,
    700000084,
    700000475,
    700000490,
    700000502,
    700000552,
    710000915,
    710001140,
    710002406,
    710002955,
]
"""Seeds with faults that the simulation has found."""


@pytest.mark.survives("handlers", "SIGSTOP")
@pytest.mark.parametrize("seed", [*range(1, 20), *CASES])
def test_run_with_forwarders_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_forwarding, seed=seed)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_forwarding, "--forwarding")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_forwarders_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_forwarding, bug, BUGS[bug])
