"""After any end of a writer, published messages are read once and in order, and the rest is reported."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logbuffer import (
    AdminAction,
    NotALogBuffer,
    Publication,
    Reason,
    Skipped,
    Subscription,
)
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication
from penstock.logbuffer.descriptor import Kind
from tests.logbuffer.logbuffer_crash import (
    EXPECTED,
    TERM,
    Killed,
    Stream,
    content,
    headers_in_order,
    killed_at_store,
    offer_two,
    reopen,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 8192)),
        st.tuples(st.just("offer"), st.sampled_from([0, 2016, 2017, 8000, 8192])),
        st.tuples(st.just("poll"), st.integers(1, 40_000)),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.survives("log buffer", "SIGKILL")
@settings(max_examples=80, deadline=None)
@given(steps=STEPS, kill=st.integers(1, 400), recovery_store=st.integers(1, 20), cleaning=st.sampled_from(Cleaning))
def test_writer_killed_in_any_store_neither_loses_nor_repeats_messages(
    steps: list[tuple[str, int]], kill: int, recovery_store: int, cleaning: Cleaning
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, remains = Path(folder, "log"), Path(folder, "remains")
        stream = Stream(path, cleaning)
        dying: tuple[int, int] | None = None
        try:
            with killed_at_store(kill, path, remains):
                for number, (operation, value) in enumerate(steps):
                    dying = (number, value) if operation == "offer" else None
                    stream.offer(number, value) if operation == "offer" else stream.poll(value)
                dying = None
        except Killed:
            pass
        if not remains.exists():
            shutil.copyfile(path, remains)
        survivor = recovered_twice(remains, Path(folder, "rest"), stream, recovery_store, cleaning)
        survivor.drain()
        survivor.offer(1000, 5000)
        survivor.drain()
        published = [*stream.published[:-1], (1000, 5000)]
        published_with_last = [*stream.published[:-1], dying, (1000, 5000)]
        assert survivor.read in (published, published_with_last)


def recovered_twice(path: Path, rest: Path, stream: Stream, kill: int, cleaning: Cleaning) -> Stream:
    """Recover, and kill the recovery once if it reaches store ``kill``."""
    try:
        with killed_at_store(kill, path, rest):
            return reopen(path, stream, cleaning)
    except Killed:
        return reopen(rest, stream, cleaning)


@pytest.mark.survives("log buffer", "power cut")
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, pages=st.sets(st.integers(0, 48), max_size=12), old=st.integers(0, 60), ahead=st.booleans())
def test_writer_continues_after_a_power_cut_with_any_old_pages(
    steps: list[tuple[str, int]], pages: set[int], old: int, ahead: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder, "log"), Path(folder, "before")
        stream = Stream(path, Cleaning.LAGGING)
        shutil.copyfile(path, before)
        for number, (operation, value) in enumerate(steps):
            if number == old:
                shutil.copyfile(path, before)
            stream.offer(number, value) if operation == "offer" else stream.poll(value)
        stream.publication.close()
        revert(path, before, pages)
        if not ahead:
            stream.reader = 0 if len(stream.published) < 8 else stream.reader
        position = stream.reader
        publication = Publication.open(path, readers=[position])
        assert publication.position >= position
        publication.consumed(position)
        survivors = headers_in_order(path, position)
        publication.consumed(publication.position)
        offer_two(publication)
        assert headers_in_order(path, position)[-2:] == [1000, 1001]
        assert headers_in_order(path, position)[: len(survivors)] == survivors


def revert(path: Path, before: Path, pages: set[int]) -> None:
    with open(path, "r+b") as file, open(before, "rb") as source:
        for page in pages:
            source.seek(page * 4096)
            file.seek(page * 4096)
            file.write(source.read(4096))


def test_unpublished_block_is_not_read_in_part(tmp_path: Path) -> None:
    path, remains = tmp_path / "log", tmp_path / "remains"
    stream = Stream(path, Cleaning.LAGGING)
    stream.offer(7, 100)
    offsets = np.arange(0, 2001, 100)
    with pytest.raises(Killed), killed_at_store(3, path, remains):  # half of the headers are written
        stream.publication.offer_batch(bytes(2000), offsets, 500)
    publication = Publication.open(remains, readers=[0])
    assert publication.recovered.skipped == (Skipped(160, 160 + 20 * 160, Reason.NEGATIVE_LENGTH),)
    assert headers_in_order(remains, 0) == [7]
    last = publication.last_frame()
    assert last is not None
    assert last.reserved_value == 7


def test_unpublished_block_after_an_old_payload_is_not_read(tmp_path: Path) -> None:
    """The file was cut inside a frame whose payload is still stored before the hole, and the reader was further."""
    path, remains = tmp_path / "log", tmp_path / "remains"
    stream = Stream(path, Cleaning.LAGGING)
    stream.offer(7, 1000)
    stream.publication.close()
    with open(path, "r+b") as file:
        file.truncate(512)
    publication = ExclusivePublication.open(path, readers=[4096], expected=EXPECTED)
    publication.consumed(4096)
    with pytest.raises(Killed), killed_at_store(5, path, remains):  # all but the first length
        publication.offer_batch(bytes(2), np.arange(3), 500)
    publication = Publication.open(remains, readers=[4096])
    assert publication.recovered.skipped == (Skipped(4096, 4224, Reason.NEGATIVE_LENGTH),)
    assert headers_in_order(remains, 4096) == []


def damaged(tmp_path: Path, change: Callable[[bytearray], None]) -> Publication:
    """Return a publication of ten messages of 100 bytes (160 bytes per frame) after a change to the file."""
    path = tmp_path / "log"
    stream = Stream(path, Cleaning.LAGGING)
    for number in range(10):
        stream.offer(number, 100)
    stream.publication.close()
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return Publication.open(path, readers=[0])


def tail(data: bytearray, offset: int) -> None:
    struct.pack_into("<i", data, 3 * TERM, offset)


def test_intact_file_has_no_skipped_range(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: None)
    assert publication.recovered.skipped == ()
    assert publication.position == 1600
    frame = publication.last_frame()
    assert frame is not None
    assert (frame.begin, frame.end, frame.reserved_value, bytes(frame.data)) == (1440, 1600, 9, content(9, 100))


def test_reserved_space_without_a_write_is_reported_as_zero_length(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: tail(data, 1760))
    assert publication.recovered.skipped == (Skipped(1600, 1760, Reason.ZERO_LENGTH),)
    assert publication.position == 1760


def test_frame_in_writing_is_reported_as_negative_length(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        tail(data, 1760)
        struct.pack_into("<i", data, 1600, -132)

    assert damaged(tmp_path, change).recovered.skipped == (Skipped(1600, 1760, Reason.NEGATIVE_LENGTH),)


def test_torn_header_loses_only_its_frame(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[328:344] = bytes(16)

    publication = damaged(tmp_path, change)
    assert publication.recovered.skipped == (Skipped(320, 480, Reason.TORN_HEADER),)
    assert headers_in_order(publication.path, 0) == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_bytes_after_the_tail_are_reported_and_zeroed(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[2000:2010] = b"0123456789"

    publication = damaged(tmp_path, change)
    assert publication.recovered.skipped == (Skipped(1600, 2016, Reason.BEYOND_TAIL),)
    assert not any(publication.path.read_bytes()[1600:TERM])


def test_complete_frames_after_an_old_tail_are_recovered(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: tail(data, 320))
    assert publication.recovered.skipped == ()
    assert publication.position == 1600


def test_damaged_tails_are_reported_and_rebuilt_from_the_frames(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[3 * TERM : 3 * TERM + 28] = b"\xaa" * 28

    publication = damaged(tmp_path, change)
    assert publication.recovered.notes == ("the tail counters are contradictory",)
    assert publication.position == 1600
    publication.consumed(0)
    assert publication.offer(b"on it goes") == 1664


def test_message_without_its_last_frames_is_reported(tmp_path: Path) -> None:
    path, remains = tmp_path / "log", tmp_path / "remains"
    stream = Stream(path, Cleaning.LAGGING)
    with pytest.raises(Killed), killed_at_store(10, path, remains):  # in the second of three frames
        stream.offer(1, 6000)
    publication = Publication.open(remains, readers=[0])
    assert [s.reason for s in publication.recovered.skipped] == [Reason.UNFINISHED_MESSAGE, Reason.NEGATIVE_LENGTH]
    assert [(s.begin, s.end) for s in publication.recovered.skipped] == [(0, 2048), (2048, 6112)]
    publication.close()
    assert Publication.open(remains, readers=[0]).recovered.skipped == ()  # told once


def test_nothing_is_written_before_the_position_of_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Publication.create(path, EXPECTED).close()
    publication = Publication.open(path, readers=[3200, 6400])
    assert publication.position == 6400
    assert publication.recovered.skipped == (Skipped(3200, 6400, Reason.ZERO_LENGTH),)


def test_padding_leaves_a_frame_at_each_reader_position(tmp_path: Path) -> None:
    path = tmp_path / "log"
    readers = [3200, 6400, 6432, 70_016, 3 * TERM // 2]
    Publication.create(path, EXPECTED).close()
    publication = Publication.open(path, readers=readers)
    assert [polled_to(path, reader) for reader in readers] == [publication.position] * 5


def test_recreated_file_leads_every_reader_to_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    readers = [5 * TERM + 640, 6 * TERM + 32, 6 * TERM + 64]
    publication = Publication.create(path, EXPECTED, readers=readers)
    assert publication.position == readers[2]
    assert [polled_to(path, reader) for reader in readers] == [readers[2]] * 3
    publication.close()
    publication = Publication.open(path, readers=readers)
    assert publication.recovered.skipped == ()
    publication.window = TERM
    publication.consumed(readers[0])
    publication.consumed(readers[2])
    for number in range(100):
        try:
            publication.offer(bytes(2000), number)
        except AdminAction:
            publication.offer(bytes(2000), number)
        publication.consumed(publication.position)


def polled_to(path: Path, position: int) -> int:
    with Subscription(path, position) as subscription:
        for _ in range(5):
            assert subscription.poll() == []
        return subscription.position


def test_offer_interrupted_by_a_signal_leaves_no_hole(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "log", Cleaning.LAGGING)
    for store in range(1, 30):
        with pytest.raises(Killed), killed_at_store(store, stream.path, tmp_path / "remains"):
            stream.offer_for_ever(2 * store, 6000)
        stream.drain()
        stream.offer(2 * store + 1, 10)
        stream.drain()
        assert stream.read[-1] == (2 * store + 1, 10)


def test_buffer_of_an_image_cannot_be_published_into(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Publication.create(path, replace(EXPECTED, kind=Kind.IMAGE)).close()
    with pytest.raises(NotALogBuffer, match="of an image"):
        Publication.open(path)
