"""Polling: what, how much, and what happens to a reader that is too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import AdminAction, FragmentAssembler, Frame, Lapped, Publication, Subscription


def create(path: Path) -> Publication:
    publication = Publication.create(path, term_length=65536, mtu=8224, session_id=1, stream_id=1, initial_term_id=0)
    publication.position_limit = 1 << 40
    return publication


def fill(publication: Publication, count: int) -> None:
    for number in range(count):
        try:
            publication.offer(bytes(992), number)
        except AdminAction:
            publication.offer(bytes(992), number)


def test_a_poll_stops_when_it_has_enough_bytes(tmp_path: Path) -> None:
    fill(create(tmp_path / "log"), 10)
    subscription = Subscription(tmp_path / "log")
    assert len(subscription.poll(1)) == 1
    assert len(subscription.poll(993)) == 2
    assert subscription.position == 3 * 1024
    assert [frame.reserved_value for frame in subscription.poll()] == [3, 4, 5, 6, 7, 8, 9]
    assert subscription.poll() == []


def test_frames_are_views_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    fill(create(tmp_path / "log"), 1)
    (frame,) = Subscription(tmp_path / "log").poll()
    assert frame.data.readonly


def test_a_poll_ends_with_its_term(tmp_path: Path) -> None:
    fill(create(tmp_path / "log"), 70)
    subscription = Subscription(tmp_path / "log")
    assert [len(subscription.poll()) for _ in range(3)] == [64, 6, 0]


def test_reading_goes_on_where_the_position_is_set(tmp_path: Path) -> None:
    fill(create(tmp_path / "log"), 5)
    subscription = Subscription(tmp_path / "log", 2048)
    assert [frame.reserved_value for frame in subscription.poll(1)] == [2]
    subscription.position = 0
    assert [frame.reserved_value for frame in subscription.poll(1)] == [0]
    with pytest.raises(ValueError, match="no frame begins at position 5"):
        subscription.position = 5


def test_a_reader_that_was_overtaken_is_told(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    subscription = Subscription(tmp_path / "log", 1024)
    fill(publication, 250)
    with pytest.raises(Lapped) as raised:
        subscription.poll()
    assert raised.value.position == 1024


def test_a_reader_whose_frames_were_cleaned_is_told(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    fill(publication, 70)
    publication.clean_to(2048)
    with pytest.raises(Lapped):
        Subscription(tmp_path / "log", 1024).poll()
    assert len(Subscription(tmp_path / "log", 2048).poll()) == 62


def test_a_reader_that_was_overtaken_can_go_on_at_the_oldest_frame(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    subscription = Subscription(tmp_path / "log", 1024)
    assert subscription.oldest() is None
    fill(publication, 250)
    publication.clean_to(100 * 1024)
    assert subscription.oldest() == 100 * 1024
    subscription.position = 100 * 1024
    assert subscription.poll()[0].reserved_value == 100
    subscription.position = 128 * 1024
    assert subscription.oldest() == 128 * 1024


def test_a_reader_notices_that_its_file_was_replaced(tmp_path: Path) -> None:
    create(tmp_path / "log").close()
    subscription = Subscription(tmp_path / "log")
    assert not subscription.replaced
    (tmp_path / "log").rename(tmp_path / "aside")
    assert subscription.replaced
    create(tmp_path / "log").close()
    assert subscription.replaced


def frame(flags: int, data: bytes, place: int = 0) -> Frame:
    return Frame(memoryview(data), 32 * place, 32 * place + 32, 1, flags)


def test_an_unfinished_message_is_dropped_and_counted() -> None:
    assembler = FragmentAssembler()
    assert assembler.push([frame(0x80, b"a", 0), frame(0, b"b", 1)]) == []
    (whole,) = assembler.push([frame(0xC0, b"whole", 2)])
    assert (bytes(whole.data), assembler.unfinished) == (b"whole", 1)
    (joined,) = assembler.push([frame(0x80, b"x", 3), frame(0x40, b"y", 4)])
    assert (bytes(joined.data), joined.flags, joined.begin, joined.end) == (b"xy", 0xC0, 96, 160)


def test_the_rest_of_another_message_is_never_joined_to_one() -> None:
    """A reader that was overtaken goes on in the middle of a later message."""
    assembler = FragmentAssembler()
    assert assembler.push([frame(0x80, b"a", 0), frame(0, b"b", 1)]) == []
    assert assembler.push([frame(0, b"y", 3), frame(0x40, b"z", 4)]) == []
    assert assembler.unfinished == 1


def test_the_rest_of_a_message_from_before_our_position_is_ignored() -> None:
    assembler = FragmentAssembler()
    assert assembler.push([frame(0, b"b", 0), frame(0x40, b"c", 1)]) == []
    assert assembler.unfinished == 0


def test_fragments_are_kept_although_the_buffer_is_cleaned(tmp_path: Path) -> None:
    publication = Publication.create(
        tmp_path / "log", term_length=65536, mtu=1408, session_id=1, stream_id=1, initial_term_id=0
    )
    publication.consumed(0)
    publication.offer(b"f" * 2000)
    subscription, assembler = Subscription(tmp_path / "log"), FragmentAssembler()
    assert assembler.push(subscription.poll(limit_frames=1)) == []
    publication.clean_to(subscription.position)
    (whole,) = assembler.push(subscription.poll())
    assert bytes(whole.data) == b"f" * 2000
