"""Messages that are whole inside one batch."""

from __future__ import annotations

import random

import mmh3
import numpy as np
import pyarrow as pa

from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.cutting import fragment
from penstock.wire.plog.grouping import Groups, assemble, hashes, split
from penstock.wire.plog.header import Fragments, is_consistent, parse

MESSAGES = [bytes([number]) * (100 * number + 50) for number in range(1, 6)]


def grouped(datagrams: Datagrams, open_messages: frozenset[int] = frozenset()) -> tuple[Groups, Fragments]:
    fragments, _ = parse(datagrams, np.arange(len(datagrams)))
    return split(fragments, is_consistent(fragments), lambda keys: {key for key in keys if key[2] in open_messages})


def shuffled(*drop: int) -> Datagrams:
    parts = [part for number, message in enumerate(MESSAGES) for part in fragment(message, number, fragment_size=100)]
    random.Random(1).shuffle(parts)
    return Datagrams.from_bytes([part for index, part in enumerate(parts) if index not in drop])


def test_whole_groups_are_found_and_assembled_in_any_order() -> None:
    datagrams = shuffled()
    groups, rest = grouped(datagrams)
    messages = assemble(datagrams, groups)
    assert len(rest) == 0
    assert messages.payloads.to_pylist() == MESSAGES
    assert messages.is_valid.all()
    assert sorted(messages.rows.tolist()) == sorted(set(messages.rows.tolist()))


def test_the_rows_of_a_group_are_where_it_began_and_was_completed() -> None:
    parts = fragment(b"x" * 250, 1, fragment_size=100)
    groups, _ = grouped(Datagrams.from_bytes([parts[2], b"\0\1", parts[0], parts[1]]))
    assert (groups.first_rows().tolist(), groups.last_rows().tolist()) == ([0], [3])


def test_fragments_of_incomplete_messages_keep_their_order_of_arrival() -> None:
    groups, rest = grouped(shuffled(0))
    assert len(groups) == len(MESSAGES) - 1
    assert (np.diff(rest.rows) > 0).all()
    assert len(set(rest.id.tolist())) == 1


def test_messages_of_which_something_is_known_are_left() -> None:
    groups, rest = grouped(shuffled(), frozenset({2, 3}))
    assert {key[2] for key in groups.keys()} == {0, 1, 4}  # noqa: SIM118
    assert set(rest.id.tolist()) == {2, 3}


def test_a_double_or_a_stray_header_keeps_a_group_from_being_whole() -> None:
    parts = fragment(b"x" * 250, 1, fragment_size=100)
    stray = parts[1][:16] + b"abcd" + parts[1][20:]
    for sent in ([*parts, parts[0]], [parts[0], stray, parts[2]]):
        groups, rest = grouped(Datagrams.from_bytes(sent))
        assert (len(groups), len(rest)) == (0, len(sent))


def test_fragments_larger_than_a_slot_are_assembled() -> None:
    payload = bytes(range(256)) * 40
    datagrams = Datagrams.from_bytes(fragment(payload, 1, fragment_size=3000), slot_size=64)
    groups, _ = grouped(datagrams)
    assert assemble(datagrams, groups).payloads.to_pylist() == [payload]


def test_hashes_are_murmur_of_each_payload() -> None:
    payloads = pa.array([b"", b"a", b"x" * 1000, b"tail"])
    for part in (payloads, payloads[1:3], payloads[:0]):
        assert hashes(part).tolist() == [mmh3.hash(each, 0, False) for each in part.to_pylist()]
