"""The decoder against what a real plog server was sent and answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.counts import Counts, open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.framing.lines import LineSplitter
from penstock.wire.plog.codec import PlogDecoder, PlogSettings
from penstock.wire.plog.holes import HoleSettings
from tests.wire.plog_vectors import LAST_LINE_COUNTS, TCP, UDP, expected_stat, sparse

SETTINGS = {
    "capture": PlogSettings(),
    "capture_small": PlogSettings(max_size=4096, expire_time=0.4),
    "capture_holes": PlogSettings(holes=HoleSettings(ports=4, ids_per_port=5, expire_time=0.4, maximum_hole=3)),
}


def rounds(case: dict[str, Any], together: bool) -> Iterator[tuple[float, list[list[Any]]]]:
    """The case's datagrams with their time: one by one, or as many at once as came without a pause."""
    now, waiting = 0.0, []
    for step in case["datagrams"]:
        if len(step) == 1:
            yield now, waiting
            now, waiting = now + step[0] / 1000, []
        elif together:
            waiting.append(step)
        else:
            yield now, [step]
    yield now, waiting


def played(case: dict[str, Any], together: bool) -> tuple[Counter[Any], PlogDecoder, Counts]:
    decoder, handled, counts = PlogDecoder(SETTINGS[case["config"]]), Counter(), Counts()
    for now, steps in rounds(case, together):
        datagrams = Datagrams.from_bytes([bytes.fromhex(data) for _, data in steps], ports=[port for port, _ in steps])
        decoded = decoder.decode(datagrams, now)
        counts.absorb(decoded.counts)
        assert open_books(counts) == []
        for row in decoded.body.to_pylist():
            tags = dict(row["annotations"] or ()).get("tags")
            handled[row["payload"].hex(), tuple(tags.split("\0")) if tags else ()] += 1
    return handled, decoder, counts


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in batches"])
@pytest.mark.parametrize("case", UDP, ids=lambda case: case["name"])
def test_udp_is_handled_and_counted_as_by_plog(case: dict[str, Any], together: bool) -> None:
    handled, decoder, _ = played(case, together)
    assert handled == Counter((payload, tuple(tags)) for payload, tags in case["handled"])
    ours = {key: sparse(value) for key, value in decoder.statistics.as_dict().items()}
    expected = expected_stat(case)
    assert {key: ours[key] for key in expected} == expected


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("case", TCP, ids=lambda case: case["name"])
def test_tcp_lines_are_those_of_plog_however_they_are_cut(case: dict[str, Any], size: int) -> None:
    splitter = LineSplitter(64 if case["config"] == "capture_small" else 1 << 20)
    sent = b"".join(bytes.fromhex(chunk) for chunk in case["chunks"])
    lines = [splitter.feed(sent[begin : begin + size]) for begin in range(0, len(sent), size)] + [splitter.finish()]
    got = [line.hex() for each in lines for line in each.lines.to_pylist()]
    assert got == LAST_LINE_COUNTS.get(case["name"], [payload for payload, _ in case["handled"]])


def test_a_jump_is_counted_where_plog_counts_nothing() -> None:
    (case,) = (case for case in UDP if case["name"] == "holes_skip_100")
    assert played(case, True)[2]["jump"] == 1
