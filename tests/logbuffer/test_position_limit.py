"""How far offers go, and what is zeroed behind the readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import AdminAction, BackPressured, Cleaning, NotConnected, Publication
from tests.logbuffer.logbuffer_made import TERM, create, offer


def test_without_a_reader_an_offer_changes_nothing(tmp_path: Path) -> None:
    publication = Publication.create(
        tmp_path / "log", term_length=TERM, mtu=1408, session_id=1, stream_id=1, initial_term_id=1, connected=False
    )
    before = (tmp_path / "log").read_bytes()
    with pytest.raises(NotConnected):
        publication.offer(b"x")
    publication.connected = True
    with pytest.raises(BackPressured):
        publication.offer(b"x")
    publication.connected = False
    assert (tmp_path / "log").read_bytes() == before


def test_only_the_position_before_the_message_is_held_against_the_limit(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.position_limit = 100
    assert publication.offer(bytes(1000)) == 1056
    with pytest.raises(BackPressured):
        publication.offer(b"x")


def test_lagging_cleaning_keeps_the_last_term_and_zeroes_what_comes_before(tmp_path: Path) -> None:
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


def test_a_limit_set_by_hand_still_finds_clean_terms(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.position_limit = 1 << 40
    for number in range(200):
        try:
            publication.offer(bytes([255]) * 3000, number)
        except AdminAction:
            position = publication.position % (3 * TERM)
            assert not any((tmp_path / "log").read_bytes()[position : position + TERM])
            publication.offer(bytes([255]) * 3000, number)


def test_the_window_is_at_most_a_term(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.window = 10 * TERM
    publication.consumed(0)
    assert publication.position_limit == TERM


def test_the_limit_comes_before_the_length(tmp_path: Path) -> None:
    publication = create(tmp_path / "log")
    publication.disconnect()
    with pytest.raises(NotConnected):
        publication.offer(bytes(8193))


def test_when_the_last_reader_goes_the_limit_falls_back_to_where_it_was(tmp_path: Path) -> None:
    publication = create(tmp_path / "log", cleaning=Cleaning.CONSUMED)
    for _ in range(5):
        publication.offer(b"x" * 1000)
    publication.consumed(1056)  # too little to raise the limit
    publication.disconnect(2112)
    assert publication.position_limit == 2112
    data = (tmp_path / "log").read_bytes()
    assert not any(data[:2112])
    assert any(data[2112:2144])


def test_one_raise_of_the_limit_cleans_one_term_at_most(tmp_path: Path) -> None:
    publication = create(tmp_path / "log", cleaning=Cleaning.CONSUMED)
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
