"""Files with a wrong size, damaged metadata, or no valid content."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.logbuffer import Lapped, NotALogBuffer, Publication, Reason, Skipped, Subscription
from penstock.logbuffer.aeron import Cleaning
from tests.logbuffer.logbuffer_crash import EXPECTED, TERM, Stream, headers_in_order, offer_two, torn_payloads


@settings(max_examples=50, deadline=None)
@example(count=34, cut=31704, polled=0)  # between a header's term id and its reserved value
@given(count=st.integers(1, 60), cut=st.integers(0, 200_703), polled=st.integers(0, 30_000))
def test_truncated_file_is_rebuilt_from_its_frames(count: int, cut: int, polled: int) -> None:
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
        remaining = headers_in_order(path, stream.reader)
        assert torn_payloads(path, stream.reader) == 0
        assert remaining == [n for n, _ in stream.published[len(stream.read) :]][: len(remaining)]
        publication.window = TERM
        publication.consumed(stream.reader)
        offer_two(publication)
        assert headers_in_order(path, stream.reader) == [*remaining, 1000, 1001]


@pytest.mark.parametrize("size", [3 * TERM + 512, 3 * TERM + 4000, 3 * TERM + 5000, 9 * TERM])
def test_file_of_a_wrong_size_is_resized(size: int, tmp_path: Path) -> None:
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


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=6000), size=st.sampled_from([0, 4096, 200_704, 200_705, 204_800]))
def test_file_of_random_bytes_is_refused_with_one_line(data: bytes, size: int) -> None:
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
def test_damaged_metadata_and_frames_raise_no_other_error(
    flips: list[tuple[int, int]], junk: list[tuple[int, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        stream = Stream(path, Cleaning.LAGGING)
        for number in range(30):
            stream.offer(number, number * 100)
        stream.publication.close()
        data = bytearray(path.read_bytes())
        for offset, value in flips:
            data[3 * TERM + offset] ^= value
        for offset, value in junk:
            data[offset : offset + len(value)] = value
        path.write_bytes(data[: 3 * TERM + 4096])
        try:
            with Subscription(path) as subscription:
                subscription.poll()
            with Publication.open(path) as publication:
                publication.consumed(publication.position)
        except (NotALogBuffer, Lapped):
            pass


FIELDS = {
    "term length": (0x114, 4),
    "page size": (0x118, 4),
    "MTU": (0x110, 4),
    "initial term id": (0x108, 4),
    "window": (0x11C, 4),
    "header length": (0x10C, 4),
    "type": (0x1F1, 1),
    "session id": (0x14C, 4),
    "stream id": (0x150, 4),
    "default header": (0x140, 32),
    "part 3": (0x100, 0x40),
    "tails": (0, 28),
    "part 1 and 2": (0, 0x90),
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("filler", [b"\xa5", b"\xff", b"\x00"], ids=["garbage", "ones", "zeros"])
def test_stream_with_damaged_metadata_continues_after_the_last_complete_frame(
    field: str, filler: bytes, tmp_path: Path
) -> None:
    path, (field_offset, length) = tmp_path / "log", FIELDS[field]
    stream = Stream(path, Cleaning.LAGGING)
    for number in range(60):
        stream.offer(number, 2000)
        stream.poll(2000 * (number < 55))
    position, unread = stream.publication.position, headers_in_order(path, stream.reader)
    stream.publication.close()
    data = bytearray(path.read_bytes())
    data[3 * TERM + field_offset : 3 * TERM + field_offset + length] = filler * length
    path.write_bytes(data)
    publication = Publication.open(path, readers=[stream.reader])
    assert (publication.position, publication.recovered.skipped) == (position, ())
    assert headers_in_order(path, stream.reader) == unread
    assert len(unread) >= 5
    publication.window = TERM
    publication.consumed(stream.reader)
    offer_two(publication)
    assert headers_in_order(path, stream.reader) == [*unread, 1000, 1001]


def test_zeroed_metadata_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    stream = Stream(path, Cleaning.LAGGING)
    stream.offer(1, 1000)
    stream.publication.close()
    damaged = path.read_bytes()[: 3 * TERM] + bytes(4096)
    path.write_bytes(damaged)
    with pytest.raises(NotALogBuffer, match="is not a log buffer: "):
        Publication.open(path)
    assert path.read_bytes() == damaged
    assert Publication.open(path, expected=EXPECTED).position == 1056


def test_frames_of_another_stream_change_nothing(tmp_path: Path) -> None:
    """The frames are at offsets that no term of this stream would use."""
    path = tmp_path / "log"
    stream = Stream(path, Cleaning.LAGGING)
    stream.offer(1, 1000)
    stream.publication.close()
    data = bytearray(path.read_bytes())
    data[12:24] = struct.pack("<iii", 5, 6, EXPECTED.initial_term_id + 1)
    path.write_bytes(data)
    publication = Publication.open(path)
    assert publication.parameters.session_id == EXPECTED.session_id
    assert publication.recovered.skipped == (Skipped(0, 1056, Reason.TORN_HEADER),)
