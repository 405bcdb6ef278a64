"""Bytes of requests of all clients together."""

from __future__ import annotations

from penstock.process.bytes_under_way import BytesUnderWay, Held


def test_where_there_is_no_room_the_largest_request_that_still_comes_goes_first() -> None:
    gone = []
    narrow = BytesUnderWay(most=100)
    held = {name: Held(lambda name=name: gone.append(name)) for name in ("whole", "large", "small")}
    narrow.grown(held["whole"], 50)
    held["whole"].whole = True
    narrow.grown(held["large"], 30)
    narrow.grown(held["small"], 10)
    narrow.grown(held["small"], 15)
    assert gone == ["large"]
    narrow.released(held["whole"])
    narrow.grown(held["small"], 60)
    assert gone == ["large"], "there is room again"
