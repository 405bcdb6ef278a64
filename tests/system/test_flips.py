"""After a flipped bit in a file that stopped processes share, the start succeeds and the balance closes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe, wait_until

UDP = "events-udp"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path)
    pipe.start()
    yield pipe
    pipe.stop()


def flip(path: Path, byte: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ mask]))


@pytest.mark.survives("log", "damaged bytes")
def test_start_after_a_flipped_bit_neither_hides_nor_invents_messages(pipe: Pipe) -> None:
    buffers, sent = pipe.data_dir / "buffers", 0
    flips = [
        ("slots", 23, 0x80),
        ("slots", 4152, 0x10),
        ("log.position", 9, 0x10),
        ("log.position", 8 * 65 + 1, 0x10),
        ("log.position", 8 * 68 + 6, 0x01),
        ("state", 0, 0x08),
    ]
    for name, byte, mask in flips:
        pipe.datagrams(b"one", b"two", b"three")
        sent += 3
        wait_until(lambda sent=sent: pipe.counts(UDP)["accepted"] == sent, what="what was sent is there")
        pipe.kill_all()
        flip(buffers / f"{UDP}.{name}", byte, mask)
        pipe.start()
        pipe.datagrams(b"four")
        sent += 1
        wait_until(lambda sent=sent: pipe.counts(UDP)["accepted"] >= sent, what=f"it is there after {name} byte {byte}")
        # A frame that moves to the log during a reading is missing in it.
        balance = pipe.settled()
        counts = pipe.counts(UDP)
        assert (counts["accepted"], counts["corrupt"]) == (sent, 0), f"{name} byte {byte}: {counts}"
        assert balance["unaccounted"] == 0, f"{name} byte {byte}: {balance}"
