"""Offers, limits, cleaning and the end of a stream."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.files.memory_order import explain_unsupported
from penstock.logbuffer import (
    AdminAction,
    BackPressured,
    Closed,
    MessageTooLarge,
    Publication,
    Subscription,
    UnsupportedProcessor,
    mapped,
)
from penstock.logbuffer.mapped import require_ordered_memory
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
def test_buffer_or_list_of_buffers_can_be_offered(data: Any, tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    assert publication.offer(data, -7) == 64
    (frame,) = Subscription(tmp_path / "log").poll()
    assert (bytes(frame.data), frame.begin, frame.end, frame.reserved_value) == (b"some bytes", 0, 64, -7)


def test_empty_message_is_a_message(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    assert publication.offer(b"") == 32
    assert publication.offer(np.empty(0)) == 64
    assert [len(frame.data) for frame in Subscription(tmp_path / "log").poll()] == [0, 0]


def test_message_that_can_never_fit_is_refused(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    with pytest.raises(MessageTooLarge, match="exceeds maxMessageLength of 8192, length=8193"):
        publication.offer(bytes(8193))
    assert publication.position == 0


def test_closed_publication_refuses_offers(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.close()
    with pytest.raises(Closed):
        publication.offer(b"x")


def test_views_outlive_their_subscription(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.offer(b"still here")
    subscription = Subscription(tmp_path / "log")
    (frame,) = subscription.poll()
    last = publication.last_frame()
    subscription.close()
    publication.close()
    assert last is not None
    assert bytes(frame.data) == bytes(last.data) == b"still here"


def test_existing_file_is_not_created_again(tmp_path: Path) -> None:
    create(tmp_path / "log")
    with pytest.raises(FileExistsError):
        create(tmp_path / "log")


@pytest.mark.survives("log buffer", "full disk")
def test_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_invalid_lengths_are_refused(setting: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(value)):
        create(tmp_path / "log", **{setting: value})


def test_unsupported_processor_is_refused_with_one_line() -> None:
    require_ordered_memory()
    with pytest.raises(UnsupportedProcessor, match="log buffers need an x86-64 or arm64 processor, not riscv64"):
        require_ordered_memory(explain_unsupported("riscv64", has_barrier=True))


def test_stream_can_begin_at_any_position(tmp_path: Path) -> None:
    begin = 5 * TERM + 64
    publication = create(tmp_path / "log", position=begin)
    assert offer(publication, b"first") == begin + 64
    assert Subscription(tmp_path / "log", begin).poll()[0].begin == begin
    publication.close()
    assert Publication.open(tmp_path / "log").position == begin + 64


def test_last_frame_is_read_across_a_rotation(tmp_path: Path) -> None:
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


def resident(path: Path) -> int:
    """Return the resident KiB of the file in all mappings of this process."""
    maps = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return sum(int(each.partition("Rss:")[2].split()[0]) for each in maps)


def test_released_pages_preserve_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "RELEASE_INTERVAL_S", 0.0)
    publication = create(tmp_path / "log", term_length=1 << 20)
    for number in range(60):
        publication.offer(b"%d" % number * 2000)
        publication.release()
    assert resident(tmp_path / "log") < 64
    with Subscription(tmp_path / "log", 0) as frames:
        assert [bytes(frame.data[:2]).strip() for frame in frames.poll()][:3] == [b"00", b"11", b"22"]
        assert resident(tmp_path / "log") > 64
        frames.release()
        assert resident(tmp_path / "log") < 64


def test_pages_in_use_are_retained_until_the_stream_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "RELEASE_INTERVAL_S", 0.0)
    path = tmp_path / "log"
    publication = create(path)
    publication.offer(bytes(1000))
    publication.release()
    small = resident(path)
    for _ in range(2 * TERM // 7000):
        publication.consumed(publication.position)
        with contextlib.suppress(AdminAction):
            publication.offer(bytes(7000))
    publication.release()  # more than a term has passed
    assert resident(path) > small + TERM // 1024
    publication.release()
    assert resident(path) <= small
    publication.last_frame()
    touched = resident(path)
    publication.release()  # nothing has come: it is not looked at again
    assert resident(path) == touched > 0


def test_pages_are_released_after_the_interval(tmp_path: Path) -> None:
    publication = create(tmp_path / "log", term_length=1 << 20)
    publication.release()
    for _ in range(12):
        publication.offer(bytes(8000))
        publication.release()
    assert resident(tmp_path / "log") > 90


def test_limit_applies_to_the_position_before_the_message(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.position_limit = 100
    assert publication.offer(bytes(1000)) == 1056
    with pytest.raises(BackPressured):
        publication.offer(b"x")


def test_lagging_cleaning_preserves_the_last_term_and_zeroes_earlier_terms(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    for number in range(100):
        offer(publication, bytes([number + 1]) * 4000, number)
    publication.consumed(publication.position)
    behind = publication.position - TERM
    last = publication.last_frame()
    assert last is not None
    assert last.reserved_value == 99
    data = (tmp_path / "log").read_bytes()[: 3 * TERM]
    end, begin = publication.position % (3 * TERM), behind % (3 * TERM)
    free = data[end:begin] if end <= begin else data[end:] + data[:begin]
    assert len(free) == 2 * TERM
    assert not any(free)
    assert data[begin + 4096]


def test_manual_limit_finds_clean_terms(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.position_limit = 1 << 40
    for number in range(200):
        try:
            publication.offer(bytes([255]) * 3000, number)
        except AdminAction:
            position = publication.position % (3 * TERM)
            assert not any((tmp_path / "log").read_bytes()[position : position + TERM])
            publication.offer(bytes([255]) * 3000, number)


def test_window_is_at_most_a_term(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.window = 10 * TERM
    publication.consumed(0)
    assert publication.position_limit == TERM
