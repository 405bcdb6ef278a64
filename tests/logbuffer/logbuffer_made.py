"""Log buffers for tests, created in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.logbuffer import AdminAction, Parameters, Publication, mtu_for
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication

TERM = 65536


def parameters(**settings: Any) -> Parameters:
    defaults: dict[str, Any] = {
        "term_length": TERM,
        "mtu": mtu_for(8192),
        "session_id": -5,
        "stream_id": 2,
        "initial_term_id": 2**31 - 1,
    }
    return Parameters(**(defaults | settings))


def create(path: Path, position: int = 0, **settings: Any) -> Publication:
    publication = Publication.create(path, parameters(**settings), position=position)
    publication.consumed(publication.position)
    return publication


def create_exclusive(
    path: Path, position: int = 0, cleaning: Cleaning = Cleaning.LAGGING, **settings: Any
) -> ExclusivePublication:
    """Create a publication with all functions of Aeron's."""
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
    """Offer ``count`` frames of 1,024 bytes; readers are not awaited."""
    publication.position_limit = 1 << 40
    for number in range(count):
        try:
            publication.offer(bytes(992), number)
        except AdminAction:
            publication.offer(bytes(992), number)


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
