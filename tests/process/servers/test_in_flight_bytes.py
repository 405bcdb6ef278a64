"""The limit of request bytes of all clients."""

from __future__ import annotations

from penstock.process.servers.in_flight_bytes import InFlightBytes, RequestBytes


def test_largest_incomplete_request_is_aborted_over_the_limit() -> None:
    aborted = []
    budget = InFlightBytes(max_bytes=100)
    requests = {name: RequestBytes(lambda name=name: aborted.append(name)) for name in ("whole", "large", "small")}
    budget.grow(requests["whole"], 50)
    requests["whole"].complete = True
    budget.grow(requests["large"], 30)
    budget.grow(requests["small"], 10)
    budget.grow(requests["small"], 15)
    assert aborted == ["large"]
    budget.release(requests["whole"])
    budget.grow(requests["small"], 60)
    assert aborted == ["large"], "there is room again"
