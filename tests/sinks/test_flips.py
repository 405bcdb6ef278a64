"""A flipped bit in a file of a forwarder: the forwarder continues, its route closes, and no message is invented.
Lost messages have a fate.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from penstock.handover.paths import account_file, buffer_file, position_file, state_file
from tests.sinks.sinks_life import RecordingHandler, delivery_of, forward, publish, start

FIRST = [b"first %d" % n for n in range(4)]
WAITING = [b"waiting %d" % n for n in range(4)]
AFTER = [b"after %d" % n for n in range(2)]
SENT = [*FIRST, *WAITING, *AFTER]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def nonzero_bytes(path: Path) -> list[int]:
    data = path.read_bytes()
    return [index for index in range(len(data)) if data[index]]


@pytest.mark.survives("handlers", "damaged bytes")
@pytest.mark.parametrize("name", ["account", "position", "state", "logbuffer"])
def test_flipped_bit_invents_no_message_and_the_route_closes(tmp_path: Path, name: str) -> None:
    folder, backup = tmp_path / "buffers", tmp_path / "kept"
    folder.mkdir()
    life, before = start(folder), RecordingHandler()
    publish(life, *FIRST[:2])
    forward(folder, before)
    publish(life, *FIRST[2:])
    forward(folder, before)
    publish(life, *WAITING[:2])
    publish(life, *WAITING[2:])
    life.end()
    shutil.copytree(folder, backup)
    path = {
        "account": account_file(folder, "events", "mine"),
        "position": position_file(folder, "events", "mine"),
        "state": state_file(folder, "events"),
        "logbuffer": buffer_file(folder, "events"),
    }[name]
    dice = random.Random(7)
    for _ in range(120):
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        byte = dice.choice(nonzero_bytes(path))
        flip(path, 8 * byte + dice.randrange(8))
        life, after = start(folder), RecordingHandler()
        publish(life, *AFTER)
        forward(folder, after)
        life.end()
        delivered = [*before.payloads, *after.payloads]
        context = f"{name} byte {byte}: {delivered}"
        assert set(delivered) <= set(SENT), f"{context}: invented"
        assert len(set(after.payloads)) == len(after.payloads), f"{context}: doubled"
        assert set(AFTER) <= set(delivered), context
        route = delivery_of(folder).route()
        assert (route.unaccounted, route.in_buffer) == (0, 0), f"{context}: {route}"
        assert len(SENT) - len(set(delivered)) <= route.corrupt, f"{context}: {route}"
