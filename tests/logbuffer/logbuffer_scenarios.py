"""Random streams and calls, and log buffers with random damage."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

from penstock.logbuffer.descriptor import MAX_TERM_COUNT, Kind
from tests.logbuffer.logbuffer_twins import Ours, Setting, block_for

INT32, INT64 = (-(2**31), 2**31), (-(2**63), 2**63)
Call = tuple[Any, ...]


def setting(chance: random.Random) -> Setting:
    """Return a random stream; some have term ids that wrap, or are close to their end."""
    term = chance.choice([65536] * 5 + [131072, 262144])
    mtu = min(chance.choice([1408, 1408, 64, 4096, 32768, chance.randrange(64, 32768, 32)]), term // 8)
    initial = chance.choice([0, 1598247139, 2**31 - 1, 2**31 - 2, -(2**31), chance.randrange(*INT32)])
    last = [MAX_TERM_COUNT, MAX_TERM_COUNT - 1, MAX_TERM_COUNT - 2]
    count = chance.choice([0, 0, 0, 1, 2, 3, 14, chance.randrange(2**20), *last])
    position = count * term + chance.choice([0, 0, chance.randrange(0, term, 32), term - 32])
    window = max(chance.choice([0, 0, 0, 4096, 16384, term // 4]), 0)
    return Setting(
        term_length=term,
        mtu=mtu,
        session_id=chance.randrange(*INT32),
        stream_id=chance.randrange(*INT32) or 1,
        initial_term_id=initial,
        position=position,
        kind=chance.choice([Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.CONCURRENT]),
        window=window if window >= mtu else 0,
        sparse=chance.random() < 0.7,
    )


def over_udp(stream: Setting, endpoint: str) -> Setting:
    """Return the stream over the loopback, away from the last position: the driver handles that end itself."""
    count, offset = divmod(stream.position, stream.term_length)
    position = min(count, MAX_TERM_COUNT - 100) * stream.term_length + offset
    return replace(stream, endpoint=endpoint, mtu=min(stream.mtu, 4096), position=position)


def next_call(chance: random.Random, ours: Ours, number: int) -> Call:
    if chance.random() < (0.005, 0.3)[not ours.subscriptions] and len(ours.subscriptions) < 3:
        return ("subscribe", ours.setting.subscribed, ours.setting.stream_id)
    if ours.subscriptions and chance.random() < 0.004:
        return ("unsubscribe", chance.randrange(len(ours.subscriptions)))
    if ours.subscriptions and chance.random() < 0.3:
        return a_poll(chance, ours)
    if chance.random() < 0.15:
        return (chance.choice(["turn", "turn", "turn", "state"]),)
    return an_offer(chance, ours, number)


def a_poll(chance: random.Random, ours: Ours) -> Call:
    number = chance.randrange(len(ours.subscriptions))
    if chance.random() < 0.3:
        return ("block_poll", number, chance.choice([32, 100, 1000, 1408, 4096, 10_000, 65536, 2**30]))
    return (chance.choice(["poll", "assemble", "assemble"]), number, chance.choice([1, 5, 10, 100, 1000]))


def an_offer(chance: random.Random, ours: Ours, number: int) -> Call:
    s, reserved = ours.setting, chance.choice([0, 0, number, -number, chance.randrange(*INT64)])
    if ours.claimed is not None:
        return (chance.choice(["commit", "commit", "abort"]), number, reserved)
    longest = s.term_length // 8
    verbs, weights = ["offer", "vector", "claim"], [10, 2, 2]
    if s.kind is Kind.EXCLUSIVE:
        verbs, weights = [*verbs, "pad"], [*weights, 1]
        if ours.publication.position < (MAX_TERM_COUNT + 1) * s.term_length:  # its rotation forgets to look
            verbs, weights = [*verbs, "block"], [*weights, 1]
    match chance.choices(verbs, weights)[0]:
        case "offer":
            return ("offer", number, length(chance, s, longest), reserved)
        case "vector":
            parts = [length(chance, s, longest // 4 - 1) for _ in range(chance.randrange(1, 4))]
            return ("vector", number, reserved, *parts)
        case "claim":
            return ("claim", length(chance, s, s.mtu - 32))
        case "pad":
            return ("pad", length(chance, s, longest))
        case _:
            return ("block", block_for(ours, [length(chance, s, 300) for _ in range(chance.randrange(1, 5))], number))


def length(chance: random.Random, s: Setting, most: int) -> int:
    """Return often a length at which the behaviour changes, sometimes one that is too large."""
    edges = [0, most, min(most, s.mtu - 32), min(most, s.mtu - 31), min(most, 992)]
    random_lengths = [chance.randrange(min(most, top) + 1) for top in (100, 2000, most)]
    return most + 1 if chance.random() < 0.02 else chance.choice([*edges, *random_lengths])


LENGTHS = (0, -1, 1, 31, 32, 33, 100, 1024, -1024, 65536, 2**31 - 1, -(2**31))


def damaged(chance: random.Random, file: bytes) -> bytes:
    """Return a log buffer with changed bytes in its frames and metadata that is still readable as one."""
    data, meta = bytearray(file), len(file) - 4096
    for _ in range(chance.choice([0, 0, 1, 3, 10, 40])):
        offset = chance.randrange(3) * (meta // 3) + chance.choice([0, 32, 1024 * chance.randrange(60)])
        match chance.randrange(4):
            case 0:
                struct.pack_into("<i", data, offset, chance.choice([*LENGTHS, chance.randrange(*INT32)]))
            case 1:
                data[offset + 4 : offset + 32] = chance.randbytes(28)
            case 2:
                data[offset : offset + 1408] = bytes(1408)
            case _:
                data[offset : offset + 300] = chance.randbytes(300)
        data[meta:] = file[meta:]
    if chance.random() < 0.5:
        damage_metadata(chance, data, meta)
    return bytes(data)


def damage_metadata(chance: random.Random, data: bytearray, meta: int) -> None:
    for offset in chance.sample([0, 8, 16, 0x80], 2):
        struct.pack_into(
            "<q", data, meta + offset, chance.choice([-1, chance.randrange(2**32), chance.randrange(*INT64)])
        )
    struct.pack_into("<i", data, meta + 24, chance.randrange(*INT32))
    struct.pack_into("<i", data, meta + 0x88, chance.choice([0, 1, 2, -1]))
    term_id = struct.pack("<i", chance.randrange(*INT32))
    data[meta + 0x108 : meta + 0x10C] = data[meta + 0x154 : meta + 0x158] = term_id
