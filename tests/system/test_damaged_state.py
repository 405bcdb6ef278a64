"""Small files that are read at the start are damaged: the start succeeds, names each file, and loses no message."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock.testing.pipe import Pipe, wait_until

TOKEN = "the token of the administrator"
UDP = "events-udp"
FILES = (
    "token",
    "buffers/events-udp.log.position",
    "topics/CLOCK",
    "topics/LEDGER",
    "topics/*/cursors/mine.cursor",
    "topics/events/settings.json",
    "topics/events/*.index",
    "topics/events/*.state",
    "topics/events/*.synced",
)
"""Patterns below the data directory."""


def zero(path: Path, dice: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def replace_by_garbage(path: Path, dice: random.Random) -> None:
    path.write_bytes(dice.randbytes(dice.randrange(1, 100)))


def empty(path: Path, dice: random.Random) -> None:
    path.write_bytes(b"")


def invert(path: Path, dice: random.Random) -> None:
    path.write_bytes(bytes(byte ^ 0xAA for byte in path.read_bytes()))


@pytest.mark.survives("supervisor", "damaged bytes")
@pytest.mark.parametrize("damage", [zero, replace_by_garbage, empty, invert])
def test_start_names_each_damaged_file_and_loses_no_message(
    tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    rights = {"token": TOKEN, "admin": "true", "read": '["*"]', "write": '["*"]'}
    pipe = Pipe(tmp_path, *(f"security.tokens.admin.{key}={text}" for key, text in rights.items()))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    dice = random.Random(1)

    def call(method: str, path: str, **more: object) -> httpx.Response:
        return httpx.request(method, f"http://{pipe.http}{path}", headers=headers, timeout=5, **more)  # type: ignore[arg-type]

    def accepted() -> int:
        # The daemon answers before the receivers have reported: no listener is in the balance then.
        listeners = call("GET", "/balance").json()["listeners"]
        return sum(int(entry["counts"].get("accepted", 0)) for entry in listeners if entry["name"] == UDP)

    def start() -> None:
        pipe.start(wait=False)
        wait_until(lambda: _answers(call), what=f"the daemon answers, see {pipe.output}")

    start()
    pipe.datagrams(b"one", b"two")
    wait_until(lambda: accepted() == 2, what="both messages are accepted")
    assert call("PUT", "/topic/events/cursors/mine", json={"offset": 1}).is_success
    assert call("PATCH", "/topics/events", json={"retain_bytes": 1 << 30}).is_success
    pipe.stop()
    paths = [path for pattern in FILES for path in pipe.data_dir.glob(pattern)]
    assert len(paths) == len(FILES)
    for path in paths:
        damage(path, dice)
    pipe.output.write_bytes(b"")
    start()
    pipe.datagrams(b"three")
    wait_until(lambda: accepted() == 3, what="all three messages are accepted")
    assert [cursor["offset"] for cursor in call("GET", "/topic/events/cursors").json()["cursor"]] == ["1"]
    assert call("GET", "/balance").json()["unaccounted"] == 0
    pipe.stop()
    output = pipe.output.read_text()
    assert [path for path in paths if path.name not in output] == []


def _answers(call: Callable[..., httpx.Response]) -> bool:
    try:
        return call("GET", "/topics").is_success
    except httpx.TransportError:
        return False
