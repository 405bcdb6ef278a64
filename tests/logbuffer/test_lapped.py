"""A reader distinguishes frames that are not written yet from cleaned frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.logbuffer import Lapped, Subscription, lapped
from penstock.logbuffer.lapped import MissingFrame
from penstock.logbuffer.mapped import LogFile
from tests.logbuffer.logbuffer_made import Clock, create_exclusive, fill


def test_frame_cleaned_in_the_current_term_is_detected_immediately(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    publication.clean_to(4096)
    with pytest.raises(Lapped), Subscription(tmp_path / "log", 1024) as subscription:
        subscription.poll()
    assert len(Subscription(tmp_path / "log", 4096).poll()) == 6
    assert Subscription(tmp_path / "log", publication.position).poll() == []


def test_reader_waits_for_a_claim_at_any_distance_of_the_writer(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    claim = publication.try_claim(100)
    fill(publication, 100)
    subscription = Subscription(tmp_path / "log")
    assert subscription.poll() == []
    claim.data[:] = b"x" * 100
    claim.commit()
    assert bytes(subscription.poll()[0].data) == b"x" * 100


def test_reader_waits_for_a_frame_in_writing_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 3)
    claim = publication.try_claim(100)
    subscription = Subscription(tmp_path / "log", in_order=True)
    assert len(subscription.poll()) == 3
    monkeypatch.delattr(lapped, "next_frame")
    assert subscription.poll() == []
    claim.data[:] = b"x" * 100
    claim.commit()
    assert bytes(subscription.poll()[0].data) == b"x" * 100


def test_stale_length_is_detected_after_a_timeout(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    data = bytearray((tmp_path / "log").read_bytes())
    data[1024:1028] = (1024 - publication.position).to_bytes(4, "little", signed=True)
    (tmp_path / "log").write_bytes(data)
    clock = Clock()
    gap = MissingFrame(LogFile(tmp_path / "log"), 20.0, clock, in_order=True)
    gap.check(1024, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(1024, 0)


def test_search_ends_at_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    publication.clean_to(4096)
    searched = []
    monkeypatch.setattr(lapped, "next_frame", lambda _, begin, end: searched.append((begin, end)))
    assert Subscription(tmp_path / "log", 1024, in_order=True).poll() == []
    assert searched == [(1024 + 32, publication.position)]


def test_reader_of_a_cleaned_buffer_is_lapped_after_a_timeout(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    publication.clean_to(publication.position)
    clock = Clock()
    gap = MissingFrame(LogFile(tmp_path / "log"), 20.0, clock)
    gap.check(1024, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(1024, 0)


@pytest.mark.parametrize("bit", range(32))
def test_damaged_length_is_detected_immediately_with_a_single_writer(tmp_path: Path, bit: int) -> None:
    fill(create_exclusive(tmp_path / "log"), 10)
    data = bytearray((tmp_path / "log").read_bytes())
    data[3 * 1024 + bit // 8] ^= 1 << bit % 8
    (tmp_path / "log").write_bytes(data)
    subscription = Subscription(tmp_path / "log", in_order=True)
    numbers = []
    while subscription.position < 10 * 1024:
        try:
            numbers += [frame.reserved_value for frame in subscription.poll()]
        except Lapped:
            subscription.position = subscription.oldest() or 1 << 20
    hidden = {3, *range(4, 4 + (1 << bit) // 1024 + 1)} if bit < 13 and not 1024 >> bit & 1 else {3}
    assert [number for number in numbers if number not in hidden] == [n for n in range(10) if n not in hidden]


@pytest.mark.parametrize("bit", range(10, 32))
def test_last_frame_leads_no_reader_past_the_tail(tmp_path: Path, bit: int) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 10)
    data = bytearray((tmp_path / "log").read_bytes())
    data[9 * 1024 + bit // 8] ^= 1 << bit % 8
    (tmp_path / "log").write_bytes(data)
    subscription = Subscription(tmp_path / "log", in_order=True)
    subscription.poll()
    assert subscription.position <= subscription.end == publication.position
