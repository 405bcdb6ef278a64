"""Whatever ends a writer: what was published is read once and in order, and the rest is reported."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from logbuffer_crash import EXPECTED, SETTINGS, TERM, Killed, Stream, content, killed_at_store, reopen

from penstock.logbuffer import (
    AdminAction,
    Cleaning,
    Lapped,
    NotALogBuffer,
    Publication,
    Reason,
    Skipped,
    Subscription,
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


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, kill=st.integers(1, 400), again=st.integers(1, 20), cleaning=st.sampled_from(Cleaning))
def test_a_writer_killed_in_any_store_loses_and_doubles_nothing(
    steps: list[tuple[str, int]], kill: int, again: int, cleaning: Cleaning
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, remains = Path(folder, "log"), Path(folder, "remains")
        stream = Stream(path, cleaning)
        dying: tuple[int, int] | None = None
        try:
            with killed_at_store(kill, path, remains):
                for number, (what, value) in enumerate(steps):
                    dying = (number, value) if what == "offer" else None
                    stream.offer(number, value) if what == "offer" else stream.poll(value)
                dying = None
        except Killed:
            pass
        if not remains.exists():
            shutil.copyfile(path, remains)
        survivor = recovered_twice(remains, Path(folder, "rest"), stream, again, cleaning)
        survivor.drain()
        survivor.offer(1000, 5000)
        survivor.drain()
        wanted = [*stream.published[:-1], (1000, 5000)]
        whole = [*stream.published[:-1], dying, (1000, 5000)]
        assert survivor.read in (wanted, whole)


def recovered_twice(path: Path, rest: Path, stream: Stream, kill: int, cleaning: Cleaning) -> Stream:
    """The recovery itself is killed once, if it makes so many stores."""
    try:
        with killed_at_store(kill, path, rest):
            return reopen(path, stream, cleaning)
    except Killed:
        return reopen(rest, stream, cleaning)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, pages=st.sets(st.integers(0, 48), max_size=12), old=st.integers(0, 60), ahead=st.booleans())
def test_after_a_power_cut_it_goes_on_whatever_pages_are_old(
    steps: list[tuple[str, int]], pages: set[int], old: int, ahead: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder, "log"), Path(folder, "before")
        stream = Stream(path, Cleaning.LAGGING)
        shutil.copyfile(path, before)
        for number, (what, value) in enumerate(steps):
            if number == old:
                shutil.copyfile(path, before)
            stream.offer(number, value) if what == "offer" else stream.poll(value)
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


def headers_in_order(path: Path, position: int) -> list[int]:
    """The numbers of the messages that begin, which must rise: a payload may be torn, an order may not."""
    numbers: list[int] = []
    with Subscription(path, position) as subscription:
        for _ in range(20):
            numbers += [frame.reserved_value for frame in subscription.poll() if frame.flags & 0x80]
    assert numbers == sorted(set(numbers))
    return numbers


def torn_payloads(path: Path, position: int) -> int:
    with Subscription(path, position) as subscription:
        frames = [frame for _ in range(20) for frame in subscription.poll()]
        return sum(bytes(frame.data) != content(frame.reserved_value, len(frame.data)) for frame in frames)


def offer_two(publication: Publication) -> None:
    for number in (1000, 1001):
        try:
            publication.offer(b"x" * 500, number)
        except AdminAction:
            publication.offer(b"x" * 500, number)


@settings(max_examples=50, deadline=None)
@example(count=34, cut=31704, polled=0)  # between a header's term id and its reserved value
@given(count=st.integers(1, 60), cut=st.integers(0, 200_703), polled=st.integers(0, 30_000))
def test_a_file_cut_short_is_rebuilt_from_its_frames(count: int, cut: int, polled: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        stream = Stream(path, Cleaning.LAGGING)
        for number in range(count):
            stream.offer(number, 900)
            stream.poll(polled)
        stream.publication.close()
        with open(path, "r+b") as file:
            file.truncate(cut)
        if cut < 3 * TERM + 512:  # the metadata are cut as well
            with pytest.raises(NotALogBuffer):
                Publication.open(path, readers=[stream.reader])
        if cut < 32:
            with pytest.raises(NotALogBuffer):
                Publication.open(path, readers=[stream.reader], expected=EXPECTED)
            return
        publication = Publication.open(path, readers=[stream.reader], expected=EXPECTED)
        assert path.stat().st_size == EXPECTED.file_length
        assert publication.recovered.notes
        left = headers_in_order(path, stream.reader)
        assert torn_payloads(path, stream.reader) == 0
        assert left == [n for n, _ in stream.published[len(stream.read) :]][: len(left)]
        publication.window = TERM
        publication.consumed(stream.reader)
        offer_two(publication)
        assert headers_in_order(path, stream.reader) == [*left, 1000, 1001]


@pytest.mark.parametrize("size", [3 * TERM + 512, 3 * TERM + 4000, 3 * TERM + 5000, 9 * TERM])
def test_a_file_of_the_wrong_size_gets_the_right_one(size: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    stream = Stream(path, Cleaning.LAGGING)
    for number in range(60):
        stream.offer(number, 2000)
        stream.poll(2000)
    position, size_before = stream.publication.position, path.stat().st_size
    stream.publication.close()
    with open(path, "r+b") as file:
        file.truncate(size)
    with pytest.raises(NotALogBuffer, match=r"^\S+ is not a log buffer: .*$"):
        Subscription(path)
    publication = Publication.open(path, readers=[stream.reader])
    assert path.stat().st_size == size_before
    assert publication.position == position
    assert publication.recovered.skipped == ()
    assert [note.partition(": ")[0] for note in publication.recovered.notes] == [f"{path} is not a log buffer"]


def test_a_block_that_was_not_published_is_not_there_in_part(tmp_path: Path) -> None:
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


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=6000), size=st.sampled_from([0, 4096, 200_704, 200_705, 204_800]))
def test_a_file_of_garbage_is_refused_with_one_line(data: bytes, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "garbage")
        path.write_bytes(data[:3000] + bytes(max(0, size - len(data))) + data[3000:])
        for opened in (Publication.open, Subscription):
            with pytest.raises(NotALogBuffer) as raised:
                opened(path)
            assert "\n" not in str(raised.value)


@settings(max_examples=80, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 0x1F8), st.integers(1, 255)), min_size=1, max_size=4),
    junk=st.lists(st.tuples(st.integers(0, 3 * TERM - 8), st.binary(min_size=1, max_size=40)), max_size=4),
)
def test_garbage_in_the_metadata_and_frames_raises_nothing_else(
    flips: list[tuple[int, int]], junk: list[tuple[int, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        stream = Stream(path, Cleaning.LAGGING)
        for number in range(30):
            stream.offer(number, number * 100)
        stream.publication.close()
        data = bytearray(path.read_bytes())
        for at, value in flips:
            data[3 * TERM + at] ^= value
        for at, value in junk:
            data[at : at + len(value)] = value
        path.write_bytes(data[: 3 * TERM + 4096])
        try:
            with Subscription(path) as subscription:
                subscription.poll()
            with Publication.open(path) as publication:
                publication.consumed(publication.position)
        except (NotALogBuffer, Lapped):
            pass


# What is reported


def damaged(tmp_path: Path, change: Callable[[bytearray], None]) -> Publication:
    """Ten messages of 100 bytes (160 bytes a frame), then a change to the file."""
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


def test_an_intact_file_has_nothing_skipped(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: None)
    assert publication.recovered.skipped == ()
    assert publication.position == 1600
    frame = publication.last_frame()
    assert frame is not None
    assert (frame.begin, frame.end, frame.reserved_value, bytes(frame.data)) == (1440, 1600, 9, content(9, 100))


def test_room_taken_and_nothing_written_is_reported_as_zero_length(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: tail(data, 1760))
    assert publication.recovered.skipped == (Skipped(1600, 1760, Reason.ZERO_LENGTH),)
    assert publication.position == 1760


def test_a_frame_being_written_is_reported_as_negative_length(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        tail(data, 1760)
        struct.pack_into("<i", data, 1600, -132)

    assert damaged(tmp_path, change).recovered.skipped == (Skipped(1600, 1760, Reason.NEGATIVE_LENGTH),)


def test_a_torn_header_costs_its_frame_alone(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[328:344] = bytes(16)

    publication = damaged(tmp_path, change)
    assert publication.recovered.skipped == (Skipped(320, 480, Reason.TORN_HEADER),)
    assert headers_in_order(publication.path, 0) == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_bytes_beyond_the_tail_are_reported_and_zeroed(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[2000:2010] = b"0123456789"

    publication = damaged(tmp_path, change)
    assert publication.recovered.skipped == (Skipped(1600, 2016, Reason.BEYOND_TAIL),)
    assert not any(publication.path.read_bytes()[1600:TERM])


def test_whole_frames_beyond_an_old_tail_are_kept(tmp_path: Path) -> None:
    publication = damaged(tmp_path, lambda data: tail(data, 320))
    assert publication.recovered.skipped == ()
    assert publication.position == 1600


def test_garbage_in_the_tails_is_told_and_the_frames_decide(tmp_path: Path) -> None:
    def change(data: bytearray) -> None:
        data[3 * TERM : 3 * TERM + 28] = b"\xaa" * 28

    publication = damaged(tmp_path, change)
    assert publication.recovered.notes == ("the tail counters contradict each other",)
    assert publication.position == 1600
    publication.consumed(0)
    assert publication.offer(b"on it goes") == 1664


def test_a_message_whose_last_frames_are_missing_is_reported(tmp_path: Path) -> None:
    path, remains = tmp_path / "log", tmp_path / "remains"
    stream = Stream(path, Cleaning.LAGGING)
    with pytest.raises(Killed), killed_at_store(10, path, remains):  # in the second of three frames
        stream.offer(1, 6000)
    publication = Publication.open(remains, readers=[0])
    assert [s.reason for s in publication.recovered.skipped] == [Reason.UNFINISHED_MESSAGE, Reason.NEGATIVE_LENGTH]
    assert [(s.begin, s.end) for s in publication.recovered.skipped] == [(0, 2048), (2048, 6112)]
    publication.close()
    assert Publication.open(remains, readers=[0]).recovered.skipped == ()  # told once


def test_nothing_is_written_before_what_a_reader_has_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Publication.create(path, **SETTINGS).close()
    publication = Publication.open(path, readers=[3200, 6400])
    assert publication.position == 6400
    assert publication.recovered.skipped == (Skipped(3200, 6400, Reason.ZERO_LENGTH),)


def test_padding_leaves_a_frame_where_each_reader_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    readers = [3200, 6400, 6432, 70_016, 3 * TERM // 2]
    Publication.create(path, **SETTINGS).close()
    publication = Publication.open(path, readers=readers)
    assert [polled_to(path, reader) for reader in readers] == [publication.position] * 5


def test_a_file_made_anew_leads_every_reader_to_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    readers = [5 * TERM + 640, 6 * TERM + 32, 6 * TERM + 64]
    publication = Publication.create(path, readers=readers, **SETTINGS)
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


def test_an_offer_interrupted_by_a_signal_leaves_no_hole(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "log", Cleaning.LAGGING)
    for store in range(1, 30):
        with pytest.raises(Killed), killed_at_store(store, stream.path, tmp_path / "remains"):
            stream.offer_for_ever(2 * store, 6000)
        stream.drain()
        stream.offer(2 * store + 1, 10)
        stream.drain()
        assert stream.read[-1] == (2 * store + 1, 10)


def test_an_images_buffer_cannot_be_published_in(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Publication.create(path, kind=2, **SETTINGS).close()
    with pytest.raises(NotALogBuffer, match="of an image"):
        Publication.open(path)
