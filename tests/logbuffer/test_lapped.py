"""A reader can tell what is not there yet from what is there no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import Lapped, Subscription
from penstock.logbuffer.lapped import MissingFrame
from penstock.logbuffer.mapped import LogFile
from tests.logbuffer.logbuffer_made import Clock, create_exclusive, fill


def test_a_frame_cleaned_in_the_term_being_written_is_told_at_once(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    publication.clean_to(4096)
    with pytest.raises(Lapped), Subscription(tmp_path / "log", 1024) as subscription:
        subscription.poll()
    assert len(Subscription(tmp_path / "log", 4096).poll()) == 6
    assert Subscription(tmp_path / "log", publication.position).poll() == []


def test_a_claim_is_waited_for_however_far_the_writer_goes(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    claim = publication.try_claim(100)
    fill(publication, 100)
    subscription = Subscription(tmp_path / "log")
    assert subscription.poll() == []
    claim.data[:] = b"x" * 100
    claim.commit()
    assert bytes(subscription.poll()[0].data) == b"x" * 100


def test_where_all_is_cleaned_up_to_the_tail_time_tells(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    publication.clean_to(publication.position)
    clock = Clock()
    gap = MissingFrame(LogFile(tmp_path / "log"), 20.0, clock)
    gap.check(1024, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(1024, 0)
