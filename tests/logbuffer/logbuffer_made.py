"""Log buffers made in one line, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.logbuffer import AdminAction, Parameters, Publication, mtu_for
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication

TERM = 65536


def parameters(**settings: Any) -> Parameters:
    given: dict[str, Any] = {
        "term_length": TERM,
        "mtu": mtu_for(8192),
        "session_id": -5,
        "stream_id": 2,
        "initial_term_id": 2**31 - 1,
    }
    return Parameters(**(given | settings))


def create(path: Path, position: int = 0, **settings: Any) -> Publication:
    publication = Publication.create(path, parameters(**settings), position=position)
    publication.consumed(publication.position)
    return publication


def create_exclusive(
    path: Path, position: int = 0, cleaning: Cleaning = Cleaning.LAGGING, **settings: Any
) -> ExclusivePublication:
    """One with all that Aeron's can do."""
    publication = ExclusivePublication.create(path, parameters(**settings), position=position, cleaning=cleaning)
    publication.consumed(publication.position)
    return publication


def offer(publication: Publication, data: Any, reserved_value: int = 0) -> int:
    publication.consumed(publication.position)
    try:
        return publication.offer(data, reserved_value)
    except AdminAction:
        return publication.offer(data, reserved_value)


def fill(publication: Publication, count: int) -> None:
    """``count`` frames of 1,024 bytes, whoever reads them."""
    publication.position_limit = 1 << 40
    for number in range(count):
        try:
            publication.offer(bytes(992), number)
        except AdminAction:
            publication.offer(bytes(992), number)


class Clock:
    """Time as tests want it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
