"""Functions of Aeron's publications only: claims, blocks, batches, fragments, padding, and the driver's cleaning."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logbuffer import (
    AdminAction,
    BackPressured,
    Closed,
    MaxPositionExceeded,
    MessageTooLarge,
    NotConnected,
)
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication, FragmentAssembler, Image
from penstock.logbuffer.descriptor import Kind, max_position
from tests.logbuffer.logbuffer_made import TERM, create_exclusive, offer, parameters


def test_offer_without_a_reader_changes_nothing(tmp_path: Path) -> None:
    publication = ExclusivePublication.create(tmp_path / "log", parameters(), connected=False)
    before = (tmp_path / "log").read_bytes()
    with pytest.raises(NotConnected):
        publication.offer(b"x")
    publication.connected = True
    with pytest.raises(BackPressured):
        publication.offer(b"x")
    publication.connected = False
    assert (tmp_path / "log").read_bytes() == before


def test_limit_is_checked_before_the_length(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    publication.disconnect()
    with pytest.raises(NotConnected):
        publication.offer(bytes(8193))


def test_limit_falls_back_when_the_last_reader_leaves(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", cleaning=Cleaning.CONSUMED)
    for _ in range(5):
        publication.offer(b"x" * 1000)
    publication.consumed(1056)  # too little to raise the limit
    publication.disconnect(2112)
    assert publication.position_limit == 2112
    data = (tmp_path / "log").read_bytes()
    assert not any(data[:2112])
    assert any(data[2112:2144])


def test_one_raise_of_the_limit_cleans_at_most_one_term(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", cleaning=Cleaning.CONSUMED)
    publication.position_limit = 2 * TERM
    while publication.position < TERM + 9000:
        try:
            publication.offer(b"x" * 4000)
        except AdminAction:
            continue
    publication.consumed(publication.position)
    data = (tmp_path / "log").read_bytes()
    assert not any(data[:TERM])
    assert any(data[TERM : TERM + 4032])
    publication.consumed(publication.position + TERM // 8)
    assert not any((tmp_path / "log").read_bytes()[: 2 * TERM])


def filled_to_the_end(path: Path, kind: Kind) -> ExclusivePublication:
    """Fill a stream to its last possible position, and try 3 more messages."""
    publication = create_exclusive(path, position=max_position(TERM) - TERM, kind=kind)
    refused = 0
    while refused < 3:
        try:
            offer(publication, bytes(8192))
        except MaxPositionExceeded:
            refused += 1
    return publication


@pytest.mark.parametrize(("kind", "tries"), [(Kind.EXCLUSIVE, 1), (Kind.CONCURRENT, 3)])
def test_end_of_the_last_term_is_the_end_of_the_stream(kind: Kind, tries: int, tmp_path: Path) -> None:
    """The tail of a concurrent publication grows with every try."""
    publication = filled_to_the_end(tmp_path / "log", kind)
    tail = (tmp_path / "log").read_bytes()[-4096 + 8 :][:4]
    assert int.from_bytes(tail, "little") == 7 * 8224 + tries * 8224
    publication.end_of_stream()
    subscription = Image(tmp_path / "log", max_position(TERM) - TERM)
    assert len(subscription.poll()) == 7
    assert subscription.end_of_stream


@pytest.mark.parametrize("kind", [Kind.EXCLUSIVE, Kind.CONCURRENT])
def test_stream_at_its_end_can_be_opened_but_accepts_no_message(kind: Kind, tmp_path: Path) -> None:
    filled_to_the_end(tmp_path / "log", kind).close()
    publication = ExclusivePublication.open(tmp_path / "log", readers=[max_position(TERM)])
    assert publication.position == max_position(TERM)
    for take in (lambda: publication.offer(b"x"), lambda: publication.offer_block(bytes(32))):
        publication.position_limit = 2 * max_position(TERM)
        with pytest.raises(MaxPositionExceeded):
            take()
    assert len(Image(tmp_path / "log", max_position(TERM) - TERM).poll()) == 7


def test_last_frame_skips_padding(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    assert publication.last_frame() is None
    publication.offer(b"the last", 12)
    publication.append_padding(100)
    frame = publication.last_frame()
    assert frame is not None
    assert (bytes(frame.data), frame.begin, frame.end) == (b"the last", 0, 64)
    publication.close()
    reopened = ExclusivePublication.open(tmp_path / "log", readers=[publication.recovered.position + 192])
    frame = reopened.last_frame()
    assert frame is not None
    assert frame.reserved_value == 12


def test_end_of_stream_is_signalled_and_revoked(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    subscription = Image(tmp_path / "log")
    publication.offer(b"x")
    publication.end_of_stream()
    assert not subscription.end_of_stream
    subscription.poll()
    assert subscription.end_of_stream
    publication.close()
    ExclusivePublication.open(tmp_path / "log").close()
    assert not subscription.end_of_stream


MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=80)


@settings(max_examples=80, deadline=None)
@given(messages=MESSAGES, equal=st.booleans(), filled=st.integers(0, 40))
def test_batch_writes_the_bytes_of_single_offers(messages: list[bytes], equal: bool, filled: int) -> None:
    messages = [messages[0]] * len(messages) if equal else messages
    offsets = np.cumsum([0, *map(len, messages)])
    values = np.arange(len(messages))
    with tempfile.TemporaryDirectory() as folder:
        single, batched = create_exclusive(Path(folder, "one")), create_exclusive(Path(folder, "many"))
        single.window = batched.window = TERM
        single.consumed(0)
        batched.consumed(0)
        for publication in (single, batched):
            for _ in range(filled):
                publication.offer(bytes(1568))
        for number, message in enumerate(messages):
            try:
                single.offer(message, number)
            except AdminAction:
                single.offer(message, number)
        accepted = 0
        while accepted < len(messages):
            try:
                accepted += batched.offer_batch(b"".join(messages), offsets[accepted:], values[accepted:])
            except AdminAction:
                continue
        assert single.position == batched.position
        assert Path(folder, "one").read_bytes() == Path(folder, "many").read_bytes()
        assert batched.last_frame() == single.last_frame()


def test_batch_is_accepted_up_to_the_limit(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    publication.position_limit = 200
    assert publication.offer_batch(bytes(1000), np.arange(0, 1001, 100)) == 2
    with pytest.raises(BackPressured):
        publication.offer_batch(bytes(1000), np.arange(0, 1001, 100))
    with pytest.raises(MessageTooLarge):
        publication.offer_batch(bytes(20_000), np.array([0, 10, 20_000]))
    assert publication.offer_batch(b"", np.zeros(1, np.int64)) == 0


def test_block_rotates_a_full_term(tmp_path: Path) -> None:
    source, copy = (
        create_exclusive(tmp_path / "source", position=TERM),
        create_exclusive(tmp_path / "copy", position=TERM - 32),
    )
    source.offer(b"m" * 100)
    copy.offer(b"")
    assert copy.offer_block((tmp_path / "source").read_bytes()[TERM : TERM + 160]) == TERM + 160
    copy.close()
    with pytest.raises(Closed):
        copy.offer_block(bytes(32))


def test_padding_can_be_as_long_as_the_longest_message_with_its_headers(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", mtu=1408)
    longest = 5 * 1408 + 1344
    assert publication.append_padding(longest) == longest + 32
    with pytest.raises(MessageTooLarge, match=f"exceeds maxFramedLength of {longest}, length={longest + 1}"):
        publication.append_padding(longest + 1)


def test_prepared_block_of_frames_is_appended_unchanged(tmp_path: Path) -> None:
    source, copy = create_exclusive(tmp_path / "source"), create_exclusive(tmp_path / "copy")
    for number in range(5):
        source.offer(b"m" * 10 * number, number)
    block = (tmp_path / "source").read_bytes()[: source.position]
    with pytest.raises(ValueError, match="not for this position"):
        copy.offer_block(block[32:])
    with pytest.raises(ValueError, match="not a run of whole frames"):
        copy.offer_block(block[:33])
    assert copy.offer_block(block) == source.position
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()
    assert copy.last_frame() == source.last_frame()


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 8192), min_size=1, max_size=40), cleaning=st.sampled_from(Cleaning))
def test_fragmented_messages_are_assembled(lengths: list[int], cleaning: Cleaning) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        publication = create_exclusive(path, mtu=1408, cleaning=cleaning)
        subscription, assembler = Image(path), FragmentAssembler()
        for number, length in enumerate(lengths):
            while subscription.position < publication.position:
                subscription.poll()
            offer(publication, [bytes([number]) * (length // 3), bytes([number]) * (length - length // 3)])
            complete = []
            while subscription.position < publication.position:
                complete += assembler.push(subscription.poll(limit_frames=2))
            assert [bytes(frame.data) for frame in complete] == [bytes([number]) * length]
