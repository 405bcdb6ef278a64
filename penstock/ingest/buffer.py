"""Opening a listener's log buffer: as it was left, whatever happened to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.config import ListenerConfig
from penstock.ingest.files import buffer_file, position_file
from penstock.ingest.frames import frame_length
from penstock.logbuffer.descriptor import HEADER_LENGTH
from penstock.logbuffer.errors import NotALogBuffer
from penstock.logbuffer.position import ReaderPosition
from penstock.logbuffer.publication import Publication

STREAM_ID = 1


def open_buffer(
    folder: Path, listener: ListenerConfig, term_length: int, say: Callable[[str], None]
) -> tuple[Publication, list[ReaderPosition]]:
    """The log buffer and the positions of the listener's handlers in it.

    Positions never go back, also where the file has to be made anew: with another term length once all is
    read, or because nothing in it can be used (it is put aside then).
    """
    path = buffer_file(folder, listener.name)
    files = [position_file(folder, listener.name, handler.type) for handler in listener.handlers]
    known = [_position(file) for file in files if file.exists()]
    publication = _reopen(path, known, say) if path.exists() else None
    if publication and publication.parameters.term_length != term_length and _is_read(publication, known):
        start = publication.position
        publication.close()
        path.unlink()
        publication = _create(path, term_length, [start])
    publication = publication or _create(path, term_length, known)
    return publication, [ReaderPosition(file, publication.position) for file in files]


def _reopen(path: Path, readers: Sequence[int], say: Callable[[str], None]) -> Publication | None:
    try:
        publication = Publication.open(path, readers=readers)
    except NotALogBuffer as error:
        aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
        path.rename(aside)
        say(f"{error}; it is put aside as {aside.name}")
        return None
    if publication.recovered.skipped:
        say(f"{path.name}: went on at position {publication.position}: {publication.recovered}")
    return publication


def _create(path: Path, term_length: int, readers: Sequence[int]) -> Publication:
    return Publication.create(
        path,
        term_length=term_length,
        mtu=frame_length(term_length) + HEADER_LENGTH,
        session_id=os.getpid(),
        stream_id=STREAM_ID,
        initial_term_id=0,
        position=max(readers, default=0),
    )


def _is_read(publication: Publication, readers: Sequence[int]) -> bool:
    return all(position >= publication.position for position in readers)


def _position(file: Path) -> int:
    with ReaderPosition(file) as position:
        return position.position
