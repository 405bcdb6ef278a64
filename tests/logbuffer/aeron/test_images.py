"""A reader unknown to the writer distinguishes frames that are not written yet from cleaned frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.logbuffer import Lapped
from penstock.logbuffer.aeron import Image
from penstock.logbuffer.aeron.images import AnyGap
from penstock.logbuffer.descriptor import Kind
from penstock.logbuffer.mapped import LogFile
from tests.logbuffer.logbuffer_golden import MANIFEST, unpacked
from tests.logbuffer.logbuffer_made import TERM, Clock, create_exclusive, fill


def gap_at(path: Path, position: int) -> None:
    """Reserve space at a position without writing, as a writer that has not continued yet."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(bytes(1024))


def image(path: Path, publication: Path) -> None:
    """Create an image's buffer: the same frames without tails and term count."""
    data = bytearray(publication.read_bytes())
    data[3 * TERM : 3 * TERM + 28] = bytes(28)
    data[3 * TERM + 0x1F1] = Kind.IMAGE
    path.write_bytes(data)


def test_gap_of_several_writers_can_close_later(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log", kind=Kind.CONCURRENT), 70)
    gap_at(tmp_path / "log", 60 * 1024)
    clock, log = Clock(), LogFile(tmp_path / "log")
    gap = AnyGap(log, 20.0, clock)
    gap.check(60 * 1024, 1)
    clock.now += 19
    gap.check(60 * 1024, 1)
    clock.now += 2
    with pytest.raises(Lapped):
        gap.check(60 * 1024, 1)


def test_writer_is_never_two_terms_ahead_of_a_gap(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log", kind=Kind.CONCURRENT), 140)
    gap_at(tmp_path / "log", 60 * 1024)
    with pytest.raises(Lapped):
        Image(tmp_path / "log", 60 * 1024).poll()


def test_timeout_does_not_run_while_nothing_is_written(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", kind=Kind.CONCURRENT)
    clock = Clock()
    gap = AnyGap(LogFile(tmp_path / "log"), 20.0, clock)
    gap.check(0, 0)
    clock.now += 1000
    gap.check(0, 0)
    fill(publication, 3)
    gap_at(tmp_path / "log", 0)
    gap.check(0, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(0, 0)


def test_reader_of_a_cleaned_buffer_with_several_writers_is_lapped_after_a_timeout(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log", kind=Kind.CONCURRENT)
    fill(publication, 10)
    publication.clean_to(publication.position)
    clock = Clock()
    gap = AnyGap(LogFile(tmp_path / "log"), 20.0, clock)
    gap.check(1024, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(1024, 0)


def test_image_waits_for_a_lost_datagram(tmp_path: Path) -> None:
    fill(create_exclusive(tmp_path / "log"), 70)
    image(tmp_path / "image", tmp_path / "log")
    gap_at(tmp_path / "image", 60 * 1024)
    clock = Clock()
    gap = AnyGap(LogFile(tmp_path / "image"), 20.0, clock)
    for _ in range(3):
        gap.check(60 * 1024, 0)
        clock.now += 21


def test_datagram_is_lost_once_the_image_is_a_term_ahead(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 100)
    image(tmp_path / "image", tmp_path / "log")
    gap_at(tmp_path / "image", 10 * 1024)
    clock = Clock()
    gap = AnyGap(LogFile(tmp_path / "image"), 20.0, clock)
    gap.check(10 * 1024, 0)
    clock.now += 21
    with pytest.raises(Lapped):
        gap.check(10 * 1024, 0)
    fill(publication, 60)
    image(tmp_path / "later", tmp_path / "log")
    gap_at(tmp_path / "later", 10 * 1024)
    with pytest.raises(Lapped):
        Image(tmp_path / "later", 10 * 1024).poll()


def test_stream_in_progress_is_joined_at_either_end(tmp_path: Path) -> None:
    publication = create_exclusive(tmp_path / "log")
    fill(publication, 150)
    image(tmp_path / "image", tmp_path / "log")
    for path in (tmp_path / "log", tmp_path / "image"):
        with Image.follow(path, from_oldest=True) as subscription:
            assert subscription.position == 0
            assert len(subscription.poll()) == 64
        with Image.follow(path) as subscription:
            assert subscription.position == publication.position
            assert subscription.poll() == []


RECORDED = [entry for entry in MANIFEST["files"] if "_images_" in entry["file"]]


@pytest.mark.parametrize("entry", RECORDED, ids=[entry["file"] for entry in RECORDED])
def test_recorded_image_is_detected_and_read_to_its_end(entry: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(unpacked(entry["file"]))
    with Image.follow(tmp_path / "image") as subscription:
        assert subscription.position == entry["pub_position"]
    with Image.follow(tmp_path / "image", from_oldest=True) as subscription:
        while subscription.poll():
            pass
        assert subscription.position == entry["pub_position"]
