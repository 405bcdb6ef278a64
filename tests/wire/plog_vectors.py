"""Requests to a real plog server and its answers, with the answers that differ in Penstock on purpose."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

RECORDED = json.loads(lzma.decompress((Path(__file__).parent / "vectors" / "plog_v0.json.xz").read_bytes()))
UDP = [case for case in RECORDED["cases"] if case["transport"] == "udp"]
TCP = [case for case in RECORDED["cases"] if case["transport"] == "tcp"]

# Where Penstock answers otherwise on purpose: case -> key of STAT -> (our value, why).
INVALID_FIRST = "an invalid fragment opens no message, so the next one is the first to look for it"
DIFFERENT: dict[str, dict[str, tuple[Any, str]]] = {
    "first_payload_longer_than_stated": {"defragmenter": ({"evictions": 0, "hits": 1, "misses": 2}, INVALID_FIRST)},
    "last_arrives_first_invalid_length": {"defragmenter": ({"evictions": 0, "hits": 1, "misses": 2}, INVALID_FIRST)},
    "total_smaller_than_fragments_imply": {
        "exceptions": (0, "a total below what the fragments imply makes each of them invalid, and is not an exception"),
        "v0_invalid_fragments": ({(2, 0): 1, (2, 1): 1, (2, 2): 1}, "the same"),
        "defragmenter": ({"evictions": 0, "hits": 0, "misses": 3}, INVALID_FIRST),
    },
    "holes_late_arrival_after_push_out": {"holes_from_new_message": (0, "a late arrival takes its hole back")},
    "holes_skip_ten_only": {"holes_from_new_message": (10, "a gap of maximum_hole is a hole")},
}
LAST_LINE_COUNTS = {"tcp_last_line_without_newline": ["6f6e65", "74776f"]}


def sparse(value: Any) -> Any:
    """Arrays as what is not zero in them, so that a difference can be read."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return {(i, j): count for i, row in enumerate(value) for j, count in enumerate(row) if count}
    return {i: count for i, count in enumerate(value) if count}


def expected_stat(case: dict[str, Any]) -> dict[str, Any]:
    """Return the expected answer to STAT after the case, arrays sparse, without version, uptime and handlers."""
    theirs = {key: sparse(value) for key, value in (case["stat"] or {}).items()}
    return theirs | {key: value for key, (value, _) in DIFFERENT.get(case["name"], {}).items()}
