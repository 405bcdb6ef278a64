"""Offers, limits, cleaning and the end of everything."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logbuffer import (
    AdminAction,
    BackPressured,
    Cleaning,
    Closed,
    FragmentAssembler,
    MaxPositionExceeded,
    MessageTooLarge,
    Publication,
    Subscription,
    UnsupportedProcessor,
)
from penstock.logbuffer.descriptor import Kind, max_position
from penstock.logbuffer.mapped import require_x86_64
from tests.logbuffer.logbuffer_made import TERM, create, offer


@pytest.mark.parametrize(
    "data",
    [
        b"some bytes",
        bytearray(b"some bytes"),
        pa.py_buffer(b"some bytes"),
        np.frombuffer(b"some bytes", np.int16),
        [b"some", b"", b" bytes"],
        [pa.py_buffer(b"some "), memoryview(b"bytes")],
    ],
    ids=["bytes", "bytearray", "arrow", "numpy", "list", "mixed list"],
)
def test_any_buffer_or_list_of_buffers_can_be_offered(data: Any, tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    assert publication.offer(data, -7) == 64
    (frame,) = Subscription(tmp_path / "log").poll()
    assert (bytes(frame.data), frame.begin, frame.end, frame.reserved_value) == (b"some bytes", 0, 64, -7)


def test_an_empty_message_is_a_message(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    assert publication.offer(b"") == 32
    assert publication.offer(np.empty(0)) == 64
    assert [len(frame.data) for frame in Subscription(tmp_path / "log").poll()] == [0, 0]


def test_a_message_that_can_never_fit_is_refused(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    with pytest.raises(MessageTooLarge, match="exceeds maxMessageLength of 8192, length=8193"):
        publication.offer(bytes(8193))
    assert publication.position == 0


def test_a_closed_publication_says_so(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.close()
    with pytest.raises(Closed):
        publication.offer(b"x")


def test_views_outlive_what_they_were_read_from(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.offer(b"still here")
    subscription = Subscription(tmp_path / "log")
    (frame,) = subscription.poll()
    last = publication.last_frame()
    subscription.close()
    publication.close()
    assert last is not None
    assert bytes(frame.data) == bytes(last.data) == b"still here"


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    create(tmp_path / "log")
    with pytest.raises(FileExistsError):
        create(tmp_path / "log")


def test_a_full_disk_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [("term_length", 65537), ("term_length", 32768), ("mtu", 1400), ("mtu", 32), ("page_size", 100), ("position", 7)],
)
def test_lengths_the_layout_does_not_allow_are_refused(setting: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(value)):
        create(tmp_path / "log", **{setting: value})


def test_other_processors_are_refused_with_one_line() -> None:
    require_x86_64("x86_64")
    with pytest.raises(UnsupportedProcessor, match="needs an x86-64 processor, this is aarch64"):
        require_x86_64("aarch64")


def filled_to_the_end(path: Path, kind: Kind) -> Publication:
    """To the last position that a stream can have, and 3 messages more were tried."""
    publication = create(path, position=max_position(TERM) - TERM, kind=kind)
    refused = 0
    while refused < 3:
        try:
            offer(publication, bytes(8192))
        except MaxPositionExceeded:
            refused += 1
    return publication


@pytest.mark.parametrize(("kind", "tries"), [(Kind.EXCLUSIVE, 1), (Kind.CONCURRENT, 3)])
def test_the_end_of_the_last_term_is_the_end_of_the_stream(kind: Kind, tries: int, tmp_path: Path) -> None:
    """A concurrent publication's tail grows with every try."""
    publication = filled_to_the_end(tmp_path / "log", kind)
    tail = (tmp_path / "log").read_bytes()[-4096 + 8 :][:4]
    assert int.from_bytes(tail, "little") == 7 * 8224 + tries * 8224
    publication.end_of_stream()
    subscription = Subscription(tmp_path / "log", max_position(TERM) - TERM)
    assert len(subscription.poll()) == 7
    assert subscription.end_of_stream


@pytest.mark.parametrize("kind", [Kind.EXCLUSIVE, Kind.CONCURRENT])
def test_a_stream_at_its_end_can_be_opened_and_takes_nothing_more(kind: Kind, tmp_path: Path) -> None:
    filled_to_the_end(tmp_path / "log", kind).close()
    publication = Publication.open(tmp_path / "log", readers=[max_position(TERM)])
    assert publication.position == max_position(TERM)
    for take in (lambda: publication.offer(b"x"), lambda: publication.offer_block(bytes(32))):
        publication.position_limit = 2 * max_position(TERM)
        with pytest.raises(MaxPositionExceeded):
            take()
    assert len(Subscription(tmp_path / "log", max_position(TERM) - TERM).poll()) == 7


def test_a_stream_may_begin_anywhere(tmp_path: Path) -> None:
    begin = 5 * TERM + 64
    publication = create(tmp_path / "log", position=begin)
    assert offer(publication, b"first") == begin + 64
    assert Subscription(tmp_path / "log", begin).poll()[0].begin == begin
    publication.close()
    assert Publication.open(tmp_path / "log").position == begin + 64


def test_last_frame_passes_over_padding(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    assert publication.last_frame() is None
    publication.offer(b"the last", 12)
    publication.append_padding(100)
    frame = publication.last_frame()
    assert frame is not None
    assert (bytes(frame.data), frame.begin, frame.end) == (b"the last", 0, 64)
    publication.close()
    again = Publication.open(tmp_path / "log", readers=[publication.recovered.position + 192])
    frame = again.last_frame()
    assert frame is not None
    assert frame.reserved_value == 12


def test_last_frame_is_found_across_a_rotation(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    for _ in range(8):
        offer(publication, bytes(7900), 5)
    publication.position_limit = 1 << 40
    with pytest.raises(AdminAction):
        publication.offer(bytes(7900))
    publication.close()
    frame = Publication.open(tmp_path / "log", readers=[TERM]).last_frame()
    assert frame is not None
    assert frame.reserved_value == 5


def test_end_of_stream_is_told_and_taken_back(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    subscription = Subscription(tmp_path / "log")
    publication.offer(b"x")
    publication.end_of_stream()
    assert not subscription.end_of_stream
    subscription.poll()
    assert subscription.end_of_stream
    publication.close()
    Publication.open(tmp_path / "log").close()
    assert not subscription.end_of_stream


MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=80)


@settings(max_examples=80, deadline=None)
@given(messages=MESSAGES, equal=st.booleans(), filled=st.integers(0, 40))
def test_a_batch_leaves_the_bytes_that_single_offers_leave(messages: list[bytes], equal: bool, filled: int) -> None:
    messages = [messages[0]] * len(messages) if equal else messages
    offsets = np.cumsum([0, *map(len, messages)])
    values = np.arange(len(messages))
    with tempfile.TemporaryDirectory() as folder:
        one, many = create(Path(folder, "one")), create(Path(folder, "many"))
        one.window = many.window = TERM
        one.consumed(0)
        many.consumed(0)
        for publication in (one, many):
            for _ in range(filled):
                publication.offer(bytes(1568))
        for number, message in enumerate(messages):
            try:
                one.offer(message, number)
            except AdminAction:
                one.offer(message, number)
        taken = 0
        while taken < len(messages):
            try:
                taken += many.offer_batch(b"".join(messages), offsets[taken:], values[taken:])
            except AdminAction:
                continue
        assert one.position == many.position
        assert Path(folder, "one").read_bytes() == Path(folder, "many").read_bytes()
        assert many.last_frame() == one.last_frame()


def test_a_batch_goes_as_far_as_the_limit(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.position_limit = 200
    assert publication.offer_batch(bytes(1000), np.arange(0, 1001, 100)) == 2
    with pytest.raises(BackPressured):
        publication.offer_batch(bytes(1000), np.arange(0, 1001, 100))
    with pytest.raises(MessageTooLarge):
        publication.offer_batch(bytes(20_000), np.array([0, 10, 20_000]))
    assert publication.offer_batch(b"", np.zeros(1, np.int64)) == 0


def test_a_block_leaves_a_full_term_by_itself(tmp_path: Path) -> None:
    source, copy = create(tmp_path / "source", position=TERM), create(tmp_path / "copy", position=TERM - 32)
    source.offer(b"m" * 100)
    copy.offer(b"")
    assert copy.offer_block((tmp_path / "source").read_bytes()[TERM : TERM + 160]) == TERM + 160
    copy.close()
    with pytest.raises(Closed):
        copy.offer_block(bytes(32))


def test_padding_may_be_as_long_as_the_longest_message_with_its_headers(tmp_path: Path) -> None:
    publication = create(tmp_path / "log", mtu=1408)
    longest = 5 * 1408 + 1344
    assert publication.append_padding(longest) == longest + 32
    with pytest.raises(MessageTooLarge, match=f"exceeds maxFramedLength of {longest}, length={longest + 1}"):
        publication.append_padding(longest + 1)


def test_a_prepared_block_of_frames_is_taken_as_it_is(tmp_path: Path) -> None:
    source, copy = create(tmp_path / "source"), create(tmp_path / "copy")
    for number in range(5):
        source.offer(b"m" * 10 * number, number)
    block = (tmp_path / "source").read_bytes()[: source.position]
    with pytest.raises(ValueError, match="not for this place"):
        copy.offer_block(block[32:])
    with pytest.raises(ValueError, match="no run of whole frames"):
        copy.offer_block(block[:33])
    assert copy.offer_block(block) == source.position
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()
    assert copy.last_frame() == source.last_frame()


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 8192), min_size=1, max_size=40), cleaning=st.sampled_from(Cleaning))
def test_fragmented_messages_come_out_whole(lengths: list[int], cleaning: Cleaning) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        publication = create(path, mtu=1408, cleaning=cleaning)
        subscription, assembler = Subscription(path), FragmentAssembler()
        for number, length in enumerate(lengths):
            while subscription.position < publication.position:
                subscription.poll()
            offer(publication, [bytes([number]) * (length // 3), bytes([number]) * (length - length // 3)])
            whole = []
            while subscription.position < publication.position:
                whole += assembler.push(subscription.poll(limit_frames=2))
            assert [bytes(frame.data) for frame in whole] == [bytes([number]) * length]


def test_pages_that_are_let_go_of_keep_what_was_written(tmp_path: Path) -> None:
    publication = Publication.create(
        tmp_path / "log", term_length=1 << 20, mtu=8224, session_id=1, stream_id=1, initial_term_id=0
    )
    publication.consumed(0)
    for number in range(60):
        publication.offer(b"%d" % number * 2000)
        publication.release()
    resident = Path("/proc/self/smaps").read_text().partition(str(tmp_path / "log"))[2]
    assert int(resident.partition("Rss:")[2].split()[0]) < 64
    with Subscription(tmp_path / "log", 0) as frames:
        assert [bytes(frame.data[:2]).strip() for frame in frames.poll()][:3] == [b"00", b"11", b"22"]
