"""Statistics summed over listeners."""

from __future__ import annotations

from penstock.server.api.monitoring import add_up


def test_statistics_are_summed_element_by_element() -> None:
    first = {
        "version": "1",
        "uptime": 5,
        "holes": 1,
        "v0_fragments": [1, 2],
        "kafka": {"count": 1, "rate": [1.0, 2.0]},
    }
    second = {
        "version": "1",
        "uptime": 9,
        "holes": 2,
        "v0_fragments": [3, 4],
        "kafka": {"count": 2, "rate": [0.5, 0.5]},
    }
    assert add_up([first, second]) == {"holes": 3, "v0_fragments": [4, 6], "kafka": {"count": 3, "rate": [1.5, 2.5]}}


def test_sum_without_listeners_is_empty() -> None:
    assert add_up([]) == {}
    assert add_up([{}, {"holes": 1}]) == {"holes": 1}
