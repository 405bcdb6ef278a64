"""The simulated pipe with groups of consumers keeps its promises for each seed, and notices bugs that are put back."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.files.file_system import replace_durably
from penstock.log import cursors
from penstock.server.kafka.groups import group_state
from penstock.server.kafka.groups.group_offsets import GroupOffsets
from penstock.server.kafka.groups.group_state import JoinRequest
from penstock.server.kafka.groups.groups import Groups
from penstock.testing.simulation.groups.run import simulate_groups
from tests.testing.simulation.simulation_checks import (
    Bug,
    check_promises,
    check_same_trace,
    check_that_bug_is_noticed,
)


def number_generations_from_one(patch: pytest.MonkeyPatch) -> None:
    """Number the generations of each new group from 1."""
    patch.setattr(group_state, "MAX_FIRST_GENERATION", 1)


def count_metadata_only(patch: pytest.MonkeyPatch) -> None:
    """Leave names of protocols out of the limit of a member."""
    patch.setattr(JoinRequest, "memory_bytes", property(lambda self: sum(map(len, self.protocols.values()))))


def accept_stale_commits(patch: pytest.MonkeyPatch) -> None:
    """Accept commits of members of an older generation."""
    patch.setattr(Groups, "check_member", lambda self, *member: None)


def answer_commits_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Answer commits of groups that are not synced."""
    patch.setattr(cursors, "replace_durably", partial(replace_durably, synced=False))


def let_commits_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    """Write commits of a group in any order."""
    patch.setattr(GroupOffsets, "_run_in_turn", lambda self, group, write: self._api.run(write))


BUGS: dict[Bug, int] = {
    number_generations_from_one: 0,
    count_metadata_only: 1,
    accept_stale_commits: 3,
    answer_commits_before_sync: 3,
    let_commits_overtake_each_other: 4,
}
"""A seed that notices each bug."""


@pytest.mark.parametrize("seed", range(1, 20))
def test_run_with_groups_keeps_every_promise(seed: int) -> None:
    check_promises(simulate_groups, seed=seed)


def test_seed_keeps_every_promise_with_the_same_trace_in_every_process() -> None:
    check_same_trace(simulate_groups, "--groups")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_simulation_notices_a_bug_of_groups_that_is_put_back(bug: Bug) -> None:
    check_that_bug_is_noticed(simulate_groups, bug, BUGS[bug])
