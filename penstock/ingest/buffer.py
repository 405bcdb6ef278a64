"""Opening a listener's log buffer: as it was left, whatever happened to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c

from penstock.config import ListenerConfig
from penstock.ingest.files import buffer_file, position_file
from penstock.ingest.frames import frame_length
from penstock.ingest.sockets import boot_id
from penstock.ingest.statepage import EPOCH, StatePage
from penstock.logbuffer import Parameters, Publication, ReaderPosition, mtu_for
from penstock.logbuffer.errors import NotALogBuffer, NotAReaderPosition

STREAM_ID = 1
Say = Callable[[str], None]


def open_buffer(
    folder: Path, listener: ListenerConfig, term_length: int, say: Say
) -> tuple[Publication, list[ReaderPosition]]:
    """The log buffer and the positions of the listener's handlers in it.

    Positions never go back, also where the file has to be made anew: with another term length once all is
    read, or because nothing in it can be used (it is put aside then).
    """
    path = buffer_file(folder, listener.name)
    files = [position_file(folder, listener.name, handler.type) for handler in listener.handlers]
    known = [position for file in files if file.exists() and (position := _position(file, say)) is not None]
    parameters = parameters_of(listener, term_length)
    publication = _reopen(path, known, parameters, say) if path.exists() else None
    if publication and publication.parameters.term_length != term_length and _is_read(publication, known):
        known = [publication.position]
        publication.close()
        path.unlink()
        publication = None
    publication = publication or _create(path, parameters, known)
    return publication, [ReaderPosition(file, _start(file, publication)) for file in files]


def parameters_of(listener: ListenerConfig, term_length: int) -> Parameters:
    """What the listener's log buffer is made with: one frame carries one whole batch."""
    session_id = crc32c.crc32c(listener.name.encode()) & 0x7FFF_FFFF
    return Parameters(term_length, mtu_for(frame_length(term_length)), session_id, STREAM_ID, 0)


def epoch_of(page: StatePage, made: int) -> str:
    """Names the time since which positions go on without a break: since the file was made, and the machine started.

    After a power cut a buffer may go on at positions that were used before, for other frames. ``made``
    tells one file from another (its inode).
    """
    boot = boot_id()
    known = page.read(EPOCH)
    if not known or (known["boot"], known["made"]) != (boot, made):
        known = {"boot": boot, "made": made, "epoch": f"{time.time_ns():x}"}
        page.write(EPOCH, known)
    return str(known["epoch"])


def _reopen(path: Path, readers: Sequence[int], parameters: Parameters, say: Say) -> Publication | None:
    try:
        publication = Publication.open(path, readers=readers, expected=parameters)
    except NotALogBuffer as error:
        say(f"{error}; it is put aside as {_aside(path).name}")
        return None
    for skipped in publication.recovered.skipped:
        say(f"{path.name}: positions {skipped.begin} to {skipped.end} hold nothing whole: {skipped.reason}")
    return publication


def _create(path: Path, parameters: Parameters, readers: Sequence[int]) -> Publication:
    return Publication.create(
        path,
        term_length=parameters.term_length,
        mtu=parameters.mtu,
        session_id=parameters.session_id,
        stream_id=parameters.stream_id,
        initial_term_id=parameters.initial_term_id,
        readers=readers,
    )


def _is_read(publication: Publication, readers: Sequence[int]) -> bool:
    return all(position >= publication.position for position in readers)


def _position(file: Path, say: Say) -> int | None:
    """The position in a file; None for one that cannot be read, which is put aside."""
    try:
        with ReaderPosition(file) as position:
            return position.position
    except (NotAReaderPosition, ValueError) as error:
        say(f"{error}; it is put aside as {_aside(file).name}")
        return None


def _start(file: Path, publication: Publication) -> int:
    """Where a reader without a position begins: at the tail, or, where its position was lost, two terms before.

    What it reads again then, the log has stored and skips.
    """
    if not any(file.parent.glob(f"{file.name}.unusable-*")):
        return publication.position
    term = publication.parameters.term_length
    return max(publication.position // term - 2, 0) * term


def _aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(aside)
    return aside
