"""Runs of complete frames, by the rules of Aeron's TermBlockScanner."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logbuffer import AdminAction, Lapped, Parameters
from penstock.logbuffer.aeron import Block, ExclusivePublication, Image
from tests.logbuffer.logbuffer_golden import unpacked

TERM = 65536


def create(path: Path, **more: Any) -> ExclusivePublication:
    defaults: dict[str, Any] = {
        "term_length": TERM,
        "mtu": 8224,
        "session_id": -1,
        "stream_id": -2,
        "initial_term_id": -1,
    }
    publication = ExclusivePublication.create(path, Parameters(**(defaults | more)))
    publication.position_limit = 1 << 40
    return publication


def offer(publication: ExclusivePublication, data: bytes, reserved_value: int = 0) -> None:
    try:
        publication.offer(data, reserved_value)
    except AdminAction:
        publication.offer(data, reserved_value)


def scanned(term: bytes, offset: int, limit: int) -> int:
    """Return the result of TermBlockScanner's loop, frame by frame."""
    start, limit = offset, min(offset + limit, TERM)
    while offset < limit:
        length = int.from_bytes(term[offset : offset + 4], "little", signed=True)
        if length <= 0:
            break
        aligned = (length + 31) & -32
        if term[offset + 6] == 0:
            return offset + aligned if offset == start else offset
        if offset + aligned > limit:
            break
        offset += aligned
    return offset


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.one_of(st.integers(0, 400), st.integers(0, 8192)), min_size=1, max_size=60),
    pads=st.sets(st.integers(0, 59), max_size=4),
    limit=st.one_of(st.integers(32, 5000), st.integers(5000, 100_000)),
)
def test_block_ends_at_the_end_of_aerons_scanner(lengths: list[int], pads: set[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        publication = create(path)
        for number, length in enumerate(lengths):
            if number in pads:
                offer(publication, bytes([number]) * (length % 100), number)
                if publication.position % TERM + 200 < TERM:
                    publication.append_padding(length % 100)
            else:
                offer(publication, bytes([number]) * length, number)
        data = path.read_bytes()
        first = max(0, publication.position // TERM - 2) * TERM
        with Image(path, first) as subscription:
            while subscription.position < publication.position:
                begin = subscription.position
                term = data[begin // TERM % 3 * TERM :][:TERM]
                end = begin - begin % TERM + scanned(term, begin % TERM, limit)
                block = subscription.block_poll(limit)
                assert (block.end if block else begin) == end == subscription.position
                if block is None:
                    block = subscription.block_poll()
                assert block is not None
                check_frames(block, path)
                del block


def check_frames(block: Block, path: Path) -> None:
    """Check that the block has the frames of a poll."""
    with Image(path, block.begin) as subscription:
        frames = subscription.poll(limit_frames=len(block.lengths)) if not block.padding else []
        if not block.padding:
            assert [frame.begin - block.begin for frame in frames] == list(block.starts[:-1])
            assert [bytes(frame.data) for frame in frames] == block.payloads().to_pylist()
            assert [frame.reserved_value for frame in frames] == list(block.headers()["reserved_value"])
        del frames


def test_batch_is_read_as_one_block_without_a_copy(tmp_path: Path) -> None:
    publication = create(tmp_path / "log", term_length=1 << 20)
    data = np.random.default_rng(1).integers(0, 256, 2560 * 256, dtype=np.uint8)
    assert publication.offer_batch(data, np.arange(2561) * 256, np.arange(2560)) == 2560
    block = Image(tmp_path / "log").block_poll()
    assert block is not None
    assert block.data.readonly
    assert (block.begin, block.end, len(block.data)) == (0, 2560 * 288, 2560 * 288)
    rows = np.frombuffer(block.data, np.uint8).reshape(2560, 288)
    assert (rows[:, 32:].reshape(-1) == data).all()
    assert (block.headers()["reserved_value"] == np.arange(2560)).all()


def test_block_can_be_offered_to_another_buffer_unchanged(tmp_path: Path) -> None:
    publication, copy = create(tmp_path / "log"), create(tmp_path / "copy")
    for number in range(100):
        offer(publication, bytes([number]) * 700, number)
    subscription = Image(tmp_path / "log")
    while (block := subscription.block_poll()) is not None:
        if block.padding:
            with pytest.raises(AdminAction):
                copy.append_padding(8000)
            continue
        copy.offer_block(block.data)
    assert copy.position == publication.position
    assert (tmp_path / "copy").read_bytes()[: 2 * TERM] == (tmp_path / "log").read_bytes()[: 2 * TERM]


def test_payload_that_looks_like_frames_is_not_split(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    offer(publication, b"a" * 100)
    offer(publication, b"")
    forged = bytearray((tmp_path / "log").read_bytes()[160:192])
    publication.close()
    publication = create(tmp_path / "other")
    offer(publication, b"a" * 96)
    forged[8:12] = (160).to_bytes(4, "little")
    offer(publication, bytes(forged) * 3)
    offer(publication, b"c" * 10)
    block = Image(tmp_path / "other").block_poll()
    assert block is not None
    assert block.payloads().to_pylist() == [b"a" * 96, bytes(forged) * 3, b"c" * 10]


def test_missing_block_differs_from_a_cleaned_block(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    subscription = Image(tmp_path / "log")
    assert subscription.block_poll() is None
    for _ in range(100):
        offer(publication, bytes(1000))
    publication.clean_to(50_000)
    with pytest.raises(Lapped):
        subscription.block_poll()


def test_frames_of_a_recorded_buffer_are_read_as_blocks(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(unpacked("excl_sizes__01_maxlen.logbuffer"))
    subscription = Image(tmp_path / "log")
    block = subscription.block_poll()
    assert block is not None
    with Image(tmp_path / "log") as second_image:
        frames = second_image.poll()
        assert [zlib.crc32(frame.data) for frame in frames] == [
            zlib.crc32(payload) for payload in block.payloads().to_pylist()
        ]
        del frames
