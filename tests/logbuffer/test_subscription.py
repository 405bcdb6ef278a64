"""Polls: frames, limits, and readers that were overtaken."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import Lapped, Subscription
from tests.logbuffer.logbuffer_made import create_exclusive, fill


def test_poll_stops_at_its_byte_limit(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 10)
    subscription = Subscription(tmp_path / "log")
    assert len(subscription.poll(1)) == 1
    assert len(subscription.poll(993)) == 2
    assert subscription.position == 3 * 1024
    assert [frame.reserved_value for frame in subscription.poll()] == [3, 4, 5, 6, 7, 8, 9]
    assert subscription.poll() == []


def test_frames_are_read_only_views_of_the_file(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 1)
    (frame,) = Subscription(tmp_path / "log").poll()
    assert frame.data.readonly


def test_poll_ends_at_the_end_of_the_term(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 70)
    subscription = Subscription(tmp_path / "log")
    assert [len(subscription.poll()) for _ in range(3)] == [64, 6, 0]


def test_reading_continues_at_a_set_position(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 5)
    subscription = Subscription(tmp_path / "log", 2048)
    assert [frame.reserved_value for frame in subscription.poll(1)] == [2]
    subscription.position = 0
    assert [frame.reserved_value for frame in subscription.poll(1)] == [0]
    with pytest.raises(ValueError, match="no frame can begin at position 5"):
        subscription.position = 5


def test_overtaken_reader_is_lapped(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    subscription = Subscription(tmp_path / "log", 1024)
    fill(publication, 250)
    with pytest.raises(Lapped) as raised:
        subscription.poll()
    assert raised.value.position == 1024


def test_reader_of_cleaned_frames_is_lapped(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 70)
    publication.clean_to(2048)
    with pytest.raises(Lapped):
        Subscription(tmp_path / "log", 1024).poll()
    assert len(Subscription(tmp_path / "log", 2048).poll()) == 62


def test_overtaken_reader_can_continue_at_the_oldest_frame(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    subscription = Subscription(tmp_path / "log", 1024)
    assert subscription.oldest() is None
    fill(publication, 250)
    publication.clean_to(100 * 1024)
    assert subscription.oldest() == 100 * 1024
    subscription.position = 100 * 1024
    assert subscription.poll()[0].reserved_value == 100
    subscription.position = 128 * 1024
    assert subscription.oldest() == 128 * 1024


def test_reader_detects_a_replaced_file(tmp_path: Path) -> None:
    create_exclusive(tmp_path / "log").close()
    subscription = Subscription(tmp_path / "log")
    assert not subscription.replaced
    (tmp_path / "log").rename(tmp_path / "aside")
    assert subscription.replaced
    create_exclusive(tmp_path / "log").close()
    assert subscription.replaced
