"""The limit follows the slowest reader that is not gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.handover.positions.position import ReaderPosition
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


def fill(publication: ExclusivePublication, registered: Readers) -> None:
    """Offer until the limit is reached; the fast reader keeps up."""
    while True:
        registered.follow(publication)
        try:
            publication.offer(bytes(992))
            if "fast" in registered:
                registered["fast"].position = publication.position
        except AdminAction:
            continue


@pytest.mark.parametrize("cleaning", Cleaning)
def test_slowest_reader_holds_the_writer_until_it_is_gone(cleaning: Cleaning, tmp_path: Path) -> None:
    publication, registered = create(tmp_path, cleaning), readers(tmp_path)
    with pytest.raises(BackPressured):
        fill(publication, registered)
    assert (publication.position, registered.slowest()) == (TERM // 2, "slow")
    assert registered.declare_gone("slow") == 0
    assert (list(registered), registered.slowest(), registered.positions()) == (["fast"], "fast", [TERM // 2])
    registered.follow(publication)
    assert publication.position_limit == TERM
    assert publication.offer(bytes(992)) == TERM // 2 + 1024


def test_position_of_a_gone_reader_does_not_move_the_limit(tmp_path: Path) -> None:
    publication, registered = create(tmp_path), readers(tmp_path)
    registered["fast"].position = 4096
    registered.declare_gone("slow")
    registered["slow"].position = 64
    registered.follow(publication)
    assert publication.position_limit == 4096 + TERM // 2


def test_gone_reader_stays_gone_after_a_restart_of_the_writer(tmp_path: Path) -> None:
    readers(tmp_path).declare_gone("slow")
    assert list(readers(tmp_path)) == ["fast"]


def test_gone_reader_is_lapped_and_can_be_admitted_again(tmp_path: Path) -> None:
    publication, registered = create(tmp_path), readers(tmp_path)
    registered.declare_gone("slow")
    for _ in range(200):
        registered["fast"].position = publication.position
        registered.follow(publication)
        try:
            publication.offer(bytes(992))
        except AdminAction:
            publication.offer(bytes(992))
    with pytest.raises(Lapped), Subscription(tmp_path / "log", registered["slow"].stored) as subscription:
        subscription.poll()
    registered.admit("slow", registered["slow"], publication.position)
    registered["fast"].position = publication.position
    assert sorted(registered) == ["fast", "slow"]
    with pytest.raises(BackPressured):
        fill(publication, registered)
    with Subscription(tmp_path / "log", registered["slow"].position) as subscription:
        assert len(subscription.poll(limit_frames=3)) == 3


def test_publication_without_readers_is_not_connected(tmp_path: Path) -> None:
    publication, registered = create(tmp_path), readers(tmp_path)
    registered.follow(publication)
    assert publication.connected
    publication.offer(b"x")
    for name in list(registered):
        registered.declare_gone(name)
    registered.follow(publication)
    assert not publication.connected
    with pytest.raises(NotConnected):
        publication.offer(b"x")
    registered.admit("new", ReaderPosition(tmp_path / "new"), publication.position)
    registered.follow(publication)
    assert publication.offer(b"x") == 128


def test_reopened_publication_ignores_the_gone_reader(tmp_path: Path) -> None:
    publication, registered = create(tmp_path), readers(tmp_path)
    registered.follow(publication)
    publication.offer(bytes(992))
    registered["fast"].position = 1024
    publication.close()
    registered.declare_gone("slow")
    reopened = ExclusivePublication.open(tmp_path / "log", readers=registered.positions())
    registered.follow(reopened)
    assert (reopened.position, reopened.position_limit) == (1024, 1024 + TERM // 2)
