"""Opening a listener's log buffer: as it was left, whatever happened to it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c

from penstock.config import ListenerConfig
from penstock.handover.frame import frame_receipt, is_whole
from penstock.handover.frame_size import frame_length
from penstock.handover.lost_position import Told, restore_lost, told_in, two_terms_before
from penstock.handover.paths import LOG, buffer_file, position_file, state_file
from penstock.handover.position import UNKNOWN, NotAReaderPosition, ReaderPosition
from penstock.handover.receipt import Receipt
from penstock.handover.state_page import EPOCH, STATISTICS, TOPIC_BY_POSITION, StatePage
from penstock.logbuffer import (
    Frame,
    Lapped,
    LogBufferError,
    NotALogBuffer,
    Parameters,
    Publication,
    Subscription,
    mtu_for,
)
from penstock.process.kernel import boot_id
from penstock.records import BadBatch

STREAM_ID = 1
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandlerPosition:
    """A handler as a reader of the log buffer. ``drop``: it may miss frames; ``routed``: it gets messages.

    The log daemon is always one: it enters the listener's counts, also where messages go elsewhere alone.
    """

    name: str
    drop: bool
    position: ReaderPosition
    routed: bool = True

    @property
    def reached(self) -> int:
        """Up to where it needs no frame of the buffer any more: it has a copy of those in its hands."""
        return max(self.position.position, self.position.claim)

    @property
    def mark(self) -> int:
        """The total of messages there; UNKNOWN where it cannot know."""
        return self.position.reached_mark


def open_buffer(folder: Path, listener: ListenerConfig, term_length: int) -> tuple[Publication, list[HandlerPosition]]:
    """The log buffer and its readers: the log daemon first, then the listener's other handlers.

    Positions never go back, also where the file has to be made anew: with another term length once all is
    read, or because nothing in it can be used (it is put aside then).
    """
    path = buffer_file(folder, listener.name)
    wanted = _wanted(listener)
    files = [position_file(folder, listener.name, name) for name, _, _ in wanted]
    _resolve_impossible(folder, listener.name, files)
    places = {file: place for file in files if file.exists() and (place := _position(file)) is not None}
    known = list(places.values())
    parameters = parameters_of(listener, term_length)
    publication = _reopen(path, known, parameters) if path.exists() else None
    told = told_in(folder, listener.name) if publication is None else Told()
    if publication and publication.parameters.term_length != term_length and _is_read(publication, known):
        known = [publication.position]
        publication.close()
        path.unlink()
        publication = None
    publication = publication or Publication.create(path, parameters, position=told.position, readers=known)
    page = StatePage(state_file(folder, listener.name))
    page.tell_damage()
    total = max(last_total(last_receipt(publication), page), told.total)
    topic = listener.log.topic if listener.log else None
    TopicByPosition(page).lead(topic, publication.position, places.get(files[0], 0))
    page.close()
    for name, _, _ in wanted:
        restore_lost(folder, listener.name, name, publication, total)
    positions = [_opened(file, publication, total) for file in files]
    positions[0].total = max(positions[0].total, told.total)
    return publication, [HandlerPosition(n, d, p, r) for (n, d, r), p in zip(wanted, positions, strict=True)]


def _wanted(listener: ListenerConfig) -> list[tuple[str, bool, bool]]:
    """The readers there are to be: name, whether it may miss frames, whether it gets messages."""
    log = listener.log
    first = (LOG, log is None or log.overflow == "drop", log is not None)
    return [first, *((handler.label, handler.overflow == "drop", True) for handler in listener.forwarded)]


def last_total(last: Receipt | None, page: StatePage, position: ReaderPosition | None = None) -> int:
    """The total of messages accepted into the log buffer: by its ``last_receipt``, or as was told of a later frame.

    ``position`` is that of the log daemon.
    """
    told = int((page.read(STATISTICS) or {}).get("total", 0)) if last is None else last.total
    return max(told, position.total if position else 0)


def last_receipt(publication: Publication) -> Receipt | None:
    """That of the last frame that is whole; None where there is none of the last terms."""
    last = publication.last_frame()
    if last is None or (receipt := whole_receipt(last)) is not None:
        return receipt if last else None
    begin = max(last.begin // publication.parameters.term_length - 1, 0) * publication.parameters.term_length
    with Subscription(publication.path, begin, in_order=True) as frames:
        while frames.position < last.begin:
            at = frames.position
            try:
                for frame in frames.poll():
                    receipt = whole_receipt(frame) or receipt
            except Lapped:
                frames.position = frames.oldest() or last.end
            if frames.position == at:
                break
    return receipt


def whole_receipt(frame: Frame) -> Receipt | None:
    """The receipt of a frame; None where the frame is damaged."""
    try:
        return frame_receipt(frame.data) if is_whole(frame.data) else None
    except BadBatch:
        return None


def newest_receipt(folder: Path, listener: str) -> Receipt | None:
    """That of the newest frame, also while it is written to; None where there is none, or none that can be read."""
    try:
        with ReaderPosition(position_file(folder, listener, LOG)) as position:
            newest = position.newest
        with Subscription(buffer_file(folder, listener), newest, in_order=True) as frames:
            return next((whole_receipt(frame) for frame in frames.poll(limit_frames=1)), None)
    except (OSError, LogBufferError):
        return None


class TopicByPosition:
    """Which topic frames are for, by position: a topic that is changed is for frames written from then on."""

    def __init__(self, page: StatePage) -> None:
        self._page = page
        self._routes: list[tuple[int, str | None]] = [(at, topic) for at, topic in page.read(TOPIC_BY_POSITION) or []]

    def __bool__(self) -> bool:
        return bool(self._routes)

    def topic(self, position: int) -> str | None:
        """The topic that the frame at ``position`` is for; None for none."""
        return next((topic for begin, topic in reversed(self._routes) if begin <= position), None)

    def lead(self, topic: str | None, begin: int, reached: int) -> None:
        """Frames from ``begin`` on are for ``topic``; what is said of those before ``reached`` may be forgotten."""
        if self._routes and self._routes[-1][1] == topic:
            return
        self._routes.append((begin if self._routes else 0, topic))
        passed = sum(at <= reached for at, _ in self._routes)
        self._routes = self._routes[max(passed - 1, 0) :]
        self._page.write(TOPIC_BY_POSITION, self._routes)


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


def _reopen(path: Path, readers: Sequence[int], parameters: Parameters) -> Publication | None:
    try:
        publication = Publication.open(path, readers=readers, expected=parameters)
    except NotALogBuffer as error:
        _LOGGER.error("%s; it is put aside as %s", error, _aside(path).name)
        return None
    for skipped in publication.recovered.skipped:
        place = (path.name, skipped.begin, skipped.end)
        _LOGGER.warning("%s: positions %d to %d hold nothing whole: %s", *place, skipped.reason)
    return publication


def _is_read(publication: Publication, readers: Sequence[int]) -> bool:
    return all(position >= publication.position for position in readers)


def _position(file: Path) -> int | None:
    """The position in a file; None for one that cannot be read, which is put aside."""
    try:
        with ReaderPosition(file) as position:
            return position.position
    except (NotAReaderPosition, ValueError) as error:
        _LOGGER.error("%s; it is put aside as %s", error, _aside(file).name)
        return None


def _resolve_impossible(folder: Path, listener: str, files: Sequence[Path]) -> None:
    """Positions behind the end of the buffer are wrong, unless the machine was started since: its end may be lost then.

    Their readers, which may be at work, go back.
    """
    page, path = StatePage(state_file(folder, listener)), buffer_file(folder, listener)
    epoch = page.read(EPOCH)
    page.close()
    if not path.exists() or not epoch or epoch["boot"] != boot_id():
        return
    with contextlib.suppress(NotALogBuffer), Subscription(path, in_order=True) as frames:
        for file in filter(Path.exists, files):
            with contextlib.suppress(NotAReaderPosition), ReaderPosition(file) as position, position.lock():
                if max(position.position, position.claim) > frames.end:
                    _LOGGER.error("%s: no frame can be at %d: its reader goes back", file, position.position)
                    back = two_terms_before(frames.end, frames.term_length)
                    position.mark, position.position, position.floor, position.claim = UNKNOWN, back, 0, back


def _opened(file: Path, publication: Publication, total: int) -> ReaderPosition:
    position = ReaderPosition(file, publication.position, total)
    position.mend()
    return position


def _aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(aside)
    return aside
