"""Messages in several frames."""

from __future__ import annotations

from pathlib import Path

from penstock.logbuffer import Frame, Subscription
from penstock.logbuffer import descriptor as d
from penstock.logbuffer.aeron import FragmentAssembler
from tests.logbuffer.logbuffer_made import create_exclusive


def frame(flags: int, data: bytes, index: int = 0) -> Frame:
    return Frame(memoryview(data), 32 * index, 32 * index + 32, 1, flags)


def test_unfinished_message_is_dropped_and_counted() -> None:
    assembler = FragmentAssembler()
    assert assembler.push([frame(0x80, b"a", 0), frame(0, b"b", 1)]) == []
    (complete,) = assembler.push([frame(0xC0, b"whole", 2)])
    assert (bytes(complete.data), assembler.unfinished) == (b"whole", 1)
    (joined,) = assembler.push([frame(0x80, b"x", 3), frame(0x40, b"y", 4)])
    assert (bytes(joined.data), joined.flags, joined.begin, joined.end) == (b"xy", 0xC0, 96, 160)


def test_rest_of_another_message_is_never_joined() -> None:
    """A reader that was overtaken continues in the middle of a later message."""
    assembler = FragmentAssembler()
    assert assembler.push([frame(0x80, b"a", 0), frame(0, b"b", 1)]) == []
    assert assembler.push([frame(0, b"y", 3), frame(0x40, b"z", 4)]) == []
    assert assembler.unfinished == 1


def test_rest_of_a_message_begun_before_the_position_is_ignored() -> None:
    assembler = FragmentAssembler()
    assert assembler.push([frame(0, b"b", 0), frame(0x40, b"c", 1)]) == []
    assert assembler.unfinished == 0


def test_fragments_outlive_the_cleaning_of_the_buffer(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", mtu=1408)
    publication.offer(b"f" * 2000)
    subscription, assembler = Subscription(tmp_path / "log"), FragmentAssembler()
    assert assembler.push(subscription.poll(limit_frames=1)) == []
    publication.clean_to(subscription.position)
    (complete,) = assembler.push(subscription.poll())
    assert bytes(complete.data) == b"f" * 2000


def test_message_has_the_flags_of_its_first_and_last_fragment() -> None:
    fragments = [
        Frame(memoryview(b"a"), 0, 32, 0, d.BEGIN | 0x01),
        Frame(memoryview(b"b"), 32, 64, 0, 0x02),
        Frame(memoryview(b"c"), 64, 96, 0, d.END | d.EOS),
    ]
    (message,) = FragmentAssembler().push(fragments)
    assert (bytes(message.data), message.flags) == (b"abc", d.BEGIN | d.END | d.EOS | 0x01)
