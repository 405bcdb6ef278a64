"""Messages of producers of Kafka's protocol are stored as often as promised, and bugs that are put back are noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.log import OutOfSequence, ProducerSequence
from penstock.log.commit import deduplication
from penstock.log.commit.batching import answer_stored
from penstock.log.commit.deduplication import Deduplicator
from penstock.log.store import producers
from penstock.log.store.producers import EPOCH_BITS, Producers, StoredAppend
from penstock.server.kafka.entries import produce
from penstock.server.kafka.entries.produce import RefusedFirsts
from penstock.testing.simulation.groups.producers import simulate_producers
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)


def append_without_numbers(patch: pytest.MonkeyPatch) -> None:
    """Append batches of idempotent producers without their numbers."""
    patch.setattr(produce, "_producer_sequence", lambda *numbers: None)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """Forget all producers at a start."""
    patch.setattr(Producers, "enter_all", lambda self, entries: None)


def admit_batches_behind_a_refused_first(patch: pytest.MonkeyPatch) -> None:
    """Let a later batch in flight become the first one of a producer whose first batch was refused."""
    patch.setattr(RefusedFirsts, "check", lambda self, *batch: None)
    patch.setattr(Deduplicator, "_check_failed_first", lambda self, *append: None)


def accept_gaps(patch: pytest.MonkeyPatch) -> None:
    """Accept any number behind the last one."""
    patch.setattr(producers, "check_next", lambda *numbers: None)
    patch.setattr(deduplication, "check_next", lambda *numbers: None)


def accept_older_epochs(patch: pytest.MonkeyPatch) -> None:
    """Store a batch of an older epoch whose number is not stored."""
    find_stored = Producers.stored_append

    def stored_append(self: Producers, producer: ProducerSequence) -> StoredAppend | None:
        try:
            return find_stored(self, producer)
        except OutOfSequence:
            if (self.last(producer.id) or 0) >> EPOCH_BITS > producer.sequence >> EPOCH_BITS:
                return None
            raise

    patch.setattr(Producers, "stored_append", stored_append)


def answer_repeats_with_another_offset(patch: pytest.MonkeyPatch) -> None:
    """Answer a batch that is stored already with an offset that is not its own."""
    patch.setattr(
        deduplication,
        "answer_stored",
        lambda stored, durability: answer_stored(replace(stored, first=stored.first + 1), durability),
    )


BUGS: dict[Bug, int] = {
    append_without_numbers: 0,
    forget_producers: 0,
    admit_batches_behind_a_refused_first: 16,
    accept_gaps: 2,
    accept_older_epochs: 3,
    answer_repeats_with_another_offset: 0,
}
"""A seed that notices each bug."""


@pytest.mark.parametrize("seed", [*range(1, 10), 16, 26])
def test_run_with_producers_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_producers, seed=seed)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_producers, "--producers")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_producers_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_producers, bug, BUGS[bug])
