"""Log buffers made in one line, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.logbuffer import AdminAction, Publication, mtu_for

TERM = 65536


def create(path: Path, **settings: Any) -> Publication:
    given: dict[str, Any] = {
        "term_length": TERM,
        "mtu": mtu_for(8192),
        "session_id": -5,
        "stream_id": 2,
        "initial_term_id": 2**31 - 1,
    }
    publication = Publication.create(path, **(given | settings))
    publication.consumed(publication.position)
    return publication


def offer(publication: Publication, data: Any, reserved_value: int = 0) -> int:
    publication.consumed(publication.position)
    try:
        return publication.offer(data, reserved_value)
    except AdminAction:
        return publication.offer(data, reserved_value)
