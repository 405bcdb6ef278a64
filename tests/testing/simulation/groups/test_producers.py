"""Messages of producers of Kafka's protocol are stored as often as promised, and bugs that are put back are noticed."""

from __future__ import annotations

import pytest

from penstock.log.store.producers import Producers
from penstock.server.kafka.entries import produce
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


BUGS: dict[Bug, int] = {append_without_numbers: 0, forget_producers: 0}
"""A seed that notices each bug."""


# 16 and 26: a disk that fails while a topic is created.
@pytest.mark.parametrize("seed", [*range(1, 10), 16, 26])
def test_run_with_producers_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_producers, seed=seed)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_producers, "--producers")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_producers_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_producers, bug, BUGS[bug])
