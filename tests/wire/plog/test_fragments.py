"""Fragments that stand whole in one batch are handled as columns."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest

from penstock.counts import Counts, open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder, PlogSettings
from penstock.wire.plog.cutting import fragment
from penstock.wire.plog.fragments import Defragmenter


def batch(messages: int, parts: int, size: int = 50, tags: tuple[str, ...] = ()) -> Datagrams:
    sent = [fragment(bytes([65 + n]) * (parts * size), n, tags=tags, fragment_size=size + 10) for n in range(messages)]
    return Datagrams.from_bytes([part for each in sent for part in each], slot_size=200)


def python_calls(datagrams: Datagrams) -> int:
    """Count the Python functions that a decoder calls for one batch."""
    decoder, calls = PlogDecoder(), 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # others may have set functions that it calls
    sys.setprofile(count)
    try:
        decoded = decoder.decode(datagrams, 0.0)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert decoded.body.num_rows == decoded.counts["accepted"] > 0
    assert open_books(decoded.counts) == []
    return calls


@pytest.mark.parametrize("tags", [(), ("pk:1", "a")], ids=["without tags", "with tags"])
def test_messages_whole_in_one_batch_take_no_more_python_with_more_fragments(tags: tuple[str, ...]) -> None:
    python_calls(batch(4, 3, tags=tags))  # what is imported or cached the first time
    assert python_calls(batch(4, 3, tags=tags)) == python_calls(batch(4, 90, tags=tags))


def test_they_never_come_to_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Defragmenter, "_take_by_table", lambda *_: pytest.fail("a fragment was taken by itself"))
    decoder = PlogDecoder()
    for first in range(3):  # what was finished before makes no difference to other messages
        datagrams = [part for n in range(4) for part in fragment(b"m" * 500, 10 * first + n, fragment_size=100)]
        assert decoder.decode(Datagrams.from_bytes(datagrams), 0.0).body.num_rows == 4
    assert decoder.open_messages == 0


def test_no_header_takes_memory_by_its_word() -> None:
    """Two thousand messages that each announce 2 GiB would need 4 TiB."""
    decoder, total = PlogDecoder(PlogSettings(max_size=1 << 31)), Counts()
    head = b"\0\1\xff\xff\0\0\xff\xff%b\x7f\xff\xff\xff\0\0\0\0\0\0\0\0"
    for begin in range(0, 2000, 500):
        datagrams = [head % (begin + n).to_bytes(4, "big") + b"x" * 65_535 for n in range(1)]
        datagrams += [head % (begin + n).to_bytes(4, "big") + b"x" for n in range(1, 500)]
        total.absorb(decoder.decode(Datagrams.from_bytes(datagrams, slot_size=64), 0.0).counts)
        assert decoder.held_bytes <= 65_535 * 4
    assert open_books(total) == []
    assert total["taken"] == 2000
