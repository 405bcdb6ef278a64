"""Polling: what, how much, and what happens to a reader that is too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import Lapped, Subscription
from tests.logbuffer.logbuffer_made import create_exclusive, fill


def test_a_poll_stops_when_it_has_enough_bytes(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 10)
    subscription = Subscription(tmp_path / "log")
    assert len(subscription.poll(1)) == 1
    assert len(subscription.poll(993)) == 2
    assert subscription.position == 3 * 1024
    assert [frame.reserved_value for frame in subscription.poll()] == [3, 4, 5, 6, 7, 8, 9]
    assert subscription.poll() == []


def test_frames_are_views_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 1)
    (frame,) = Subscription(tmp_path / "log").poll()
    assert frame.data.readonly


def test_a_poll_ends_with_its_term(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 70)
    subscription = Subscription(tmp_path / "log")
    assert [len(subscription.poll()) for _ in range(3)] == [64, 6, 0]


def test_reading_goes_on_where_the_position_is_set(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 5)
    subscription = Subscription(tmp_path / "log", 2048)
    assert [frame.reserved_value for frame in subscription.poll(1)] == [2]
    subscription.position = 0
    assert [frame.reserved_value for frame in subscription.poll(1)] == [0]
    with pytest.raises(ValueError, match="no frame can begin at position 5"):
        subscription.position = 5


def test_a_reader_that_was_overtaken_is_told(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    subscription = Subscription(tmp_path / "log", 1024)
    fill(publication, 250)
    with pytest.raises(Lapped) as raised:
        subscription.poll()
    assert raised.value.position == 1024


def test_a_reader_whose_frames_were_cleaned_is_told(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 70)
    publication.clean_to(2048)
    with pytest.raises(Lapped):
        Subscription(tmp_path / "log", 1024).poll()
    assert len(Subscription(tmp_path / "log", 2048).poll()) == 62


def test_a_reader_that_was_overtaken_can_go_on_at_the_oldest_frame(tmp_path: Path) -> None:
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


def test_a_reader_notices_that_its_file_was_replaced(tmp_path: Path) -> None:
    create_exclusive(tmp_path / "log").close()
    subscription = Subscription(tmp_path / "log")
    assert not subscription.replaced
    (tmp_path / "log").rename(tmp_path / "aside")
    assert subscription.replaced
    create_exclusive(tmp_path / "log").close()
    assert subscription.replaced
