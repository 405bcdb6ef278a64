"""plog's statistics."""

from __future__ import annotations

import json

import numpy as np

from penstock.wire.plog.statistics import CLASSES, Statistics, log2_class

SEED_KEYS = {
    *("failed_to_send", "exceptions", "udp_simple_messages", "udp_invalid_version", "v0_invalid_type"),
    *("unknown_command", "v0_commands", "v0_invalid_multipart_header", "v0_fragments", "v0_invalid_fragments"),
    *("v0_invalid_checksum", "dropped_fragments", "cache", "kafka"),
}
SERVER_KEYS = {"unhandled_objects", "holes_from_dead_port", "holes_from_new_message", "defragmenter"}
OURS = {"v0_multipart_messages"}


def test_both_sets_of_keys_are_there_in_json() -> None:
    answer = json.loads(json.dumps(Statistics().as_dict()))
    assert set(answer) == SEED_KEYS | SERVER_KEYS | OURS
    assert answer["cache"] == answer["defragmenter"] == {"evictions": 0, "hits": 0, "misses": 0}
    assert [len(row) for row in answer["v0_invalid_fragments"]] == list(range(1, CLASSES + 1))


def test_classes_are_those_of_plog() -> None:
    assert log2_class(np.array([0, 1, 2, 3, 4, 7, 8, 32767, 32768, 65535])).tolist() == [
        0,
        1,
        2,
        2,
        3,
        3,
        4,
        15,
        16,
        16,
    ]


def test_fragments_are_counted_by_index_and_by_their_message() -> None:
    statistics = Statistics()
    statistics.add_fragments(np.array([0, 0, 1, 65534]))
    statistics.add_invalid(np.array([5, 5, 65535]), np.array([2, 3, 65534]))
    statistics.add_bad_checksums(np.array([1, 2, 2]))
    answer = statistics.as_dict()
    assert [answer["v0_fragments"][i] for i in (0, 1, 16)] == [2, 1, 1]
    assert (answer["v0_invalid_fragments"][3][2], answer["v0_invalid_fragments"][16][16]) == (2, 1)
    assert answer["v0_invalid_checksum"][:2] == [1, 2]


def test_missing_fragments_are_counted_by_index() -> None:
    statistics = Statistics()
    statistics.add_dropped(20, np.array([0, 2, 5, 19]))
    answer = statistics.as_dict()
    assert answer["dropped_fragments"][5] == [0, 1, 1, 3, 8, 3]
    assert answer["defragmenter"]["evictions"] == 1
