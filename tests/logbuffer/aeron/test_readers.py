"""The limit follows the slowest reader that is not gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.handover.position import ReaderPosition
from penstock.logbuffer import (
    AdminAction,
    BackPressured,
    Lapped,
    NotConnected,
    Parameters,
    Subscription,
)
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication, Readers

TERM = 65536


def create(folder: Path, cleaning: Cleaning = Cleaning.LAGGING) -> ExclusivePublication:
    parameters = Parameters(TERM, mtu=8192, session_id=1, stream_id=1, initial_term_id=0)
    return ExclusivePublication.create(folder / "log", parameters, cleaning=cleaning, connected=False)


def readers(folder: Path) -> Readers:
    return Readers({name: ReaderPosition(folder / name) for name in ("fast", "slow")})


def fill(publication: ExclusivePublication, known: Readers) -> None:
    """Offers until the limit is reached; the fast reader keeps up."""
    while True:
        known.follow(publication)
        try:
            publication.offer(bytes(992))
            if "fast" in known:
                known["fast"].position = publication.position
        except AdminAction:
            continue


@pytest.mark.parametrize("cleaning", Cleaning)
def test_the_slowest_reader_holds_the_writer_up_until_it_is_gone(cleaning: Cleaning, tmp_path: Path) -> None:
    publication, known = create(tmp_path, cleaning), readers(tmp_path)
    with pytest.raises(BackPressured):
        fill(publication, known)
    assert (publication.position, known.slowest()) == (TERM // 2, "slow")
    assert known.declare_gone("slow") == 0
    assert (list(known), known.slowest(), known.positions()) == (["fast"], "fast", [TERM // 2])
    known.follow(publication)
    assert publication.position_limit == TERM
    assert publication.offer(bytes(992)) == TERM // 2 + 1024


def test_what_a_reader_that_is_gone_does_moves_nothing(tmp_path: Path) -> None:
    publication, known = create(tmp_path), readers(tmp_path)
    known["fast"].position = 4096
    known.declare_gone("slow")
    known["slow"].position = 64
    known.follow(publication)
    assert publication.position_limit == 4096 + TERM // 2


def test_it_stays_gone_when_the_writer_starts_again(tmp_path: Path) -> None:
    readers(tmp_path).declare_gone("slow")
    assert list(readers(tmp_path)) == ["fast"]


def test_a_reader_that_was_gone_is_lapped_and_can_be_admitted_again(tmp_path: Path) -> None:
    publication, known = create(tmp_path), readers(tmp_path)
    known.declare_gone("slow")
    for _ in range(200):
        known["fast"].position = publication.position
        known.follow(publication)
        try:
            publication.offer(bytes(992))
        except AdminAction:
            publication.offer(bytes(992))
    with pytest.raises(Lapped), Subscription(tmp_path / "log", known["slow"].stored) as subscription:
        subscription.poll()
    known.admit("slow", known["slow"], publication.position)
    known["fast"].position = publication.position
    assert sorted(known) == ["fast", "slow"]
    with pytest.raises(BackPressured):
        fill(publication, known)
    with Subscription(tmp_path / "log", known["slow"].position) as subscription:
        assert len(subscription.poll(limit_frames=3)) == 3


def test_with_no_reader_left_the_publication_is_not_connected(tmp_path: Path) -> None:
    publication, known = create(tmp_path), readers(tmp_path)
    known.follow(publication)
    assert publication.connected
    publication.offer(b"x")
    for name in list(known):
        known.declare_gone(name)
    known.follow(publication)
    assert not publication.connected
    with pytest.raises(NotConnected):
        publication.offer(b"x")
    known.admit("new", ReaderPosition(tmp_path / "new"), publication.position)
    known.follow(publication)
    assert publication.offer(b"x") == 128


def test_a_publication_goes_on_without_the_reader_that_is_gone(tmp_path: Path) -> None:
    publication, known = create(tmp_path), readers(tmp_path)
    known.follow(publication)
    publication.offer(bytes(992))
    known["fast"].position = 1024
    publication.close()
    known.declare_gone("slow")
    again = ExclusivePublication.open(tmp_path / "log", readers=known.positions())
    known.follow(again)
    assert (again.position, again.position_limit) == (1024, 1024 + TERM // 2)
