"""A flipped bit in what a forwarder keeps or shares: it goes on, its route closes, and nothing is given to it that was
not sent. What is lost has a name.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from penstock.handover.paths import account_file, buffer_file, position_file, state_file
from tests.sinks.sinks_life import Taking, forward, publish, standing, start

FIRST = [b"first %d" % n for n in range(4)]
WAITING = [b"waiting %d" % n for n in range(4)]
AFTER = [b"after %d" % n for n in range(2)]
SENT = [*FIRST, *WAITING, *AFTER]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def used(path: Path) -> list[int]:
    data = path.read_bytes()
    return [at for at in range(len(data)) if data[at]]


@pytest.mark.parametrize("name", ["account", "position", "state", "logbuffer"])
def test_no_flipped_bit_invents_a_message_or_opens_the_route(tmp_path: Path, name: str) -> None:
    folder, kept = tmp_path / "buffers", tmp_path / "kept"
    folder.mkdir()
    life, before = start(folder), Taking()
    publish(life, *FIRST[:2])
    forward(folder, before)
    publish(life, *FIRST[2:])
    forward(folder, before)
    publish(life, *WAITING[:2])
    publish(life, *WAITING[2:])
    life.end()
    shutil.copytree(folder, kept)
    path = {
        "account": account_file(folder, "events", "mine"),
        "position": position_file(folder, "events", "mine"),
        "state": state_file(folder, "events"),
        "logbuffer": buffer_file(folder, "events"),
    }[name]
    chance = random.Random(7)
    for _ in range(120):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        byte = chance.choice(used(path))
        flip(path, 8 * byte + chance.randrange(8))
        life, after = start(folder), Taking()
        publish(life, *AFTER)
        forward(folder, after)
        life.end()
        given = [*before.payloads, *after.payloads]
        what = f"{name} byte {byte}: {given}"
        assert set(given) <= set(SENT), f"{what}: invented"
        assert len(set(after.payloads)) == len(after.payloads), f"{what}: doubled"
        assert set(AFTER) <= set(given), what
        route = standing(folder).route()
        assert (route.unaccounted, route.in_buffer) == (0, 0), f"{what}: {route}"
        assert len(SENT) - len(set(given)) <= route.corrupt, f"{what}: {route}"
