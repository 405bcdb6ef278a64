"""A failing run is shrunk to fewer faults and messages that fail in the same way."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.run import simulate
from penstock.testing.simulation.shrink import kind_of, shrink
from tests.testing.simulation.bugs import BUGS, answer_before_sync


def test_shrunk_case_fails_with_fewer_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_before_sync(monkeypatch)
    outcome = simulate(BUGS[answer_before_sync])
    case = shrink(outcome, runs=6)
    assert len(case.faults) < len(outcome.faults)
    assert kind_of(case.run().broken) == kind_of(outcome.broken)
    assert f'"seed": {outcome.seed}' in case.as_test()


def test_kind_of_a_failure_ignores_offsets_and_payloads() -> None:
    assert kind_of("offset 4 of t was (1, b'x'), and is (2, b'y')") == kind_of("offset 5 of t was (3, b'z'), and is ()")
    assert kind_of("offset 4 of t") != kind_of("the balance does not close: {}")
