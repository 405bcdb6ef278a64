"""Opens a listener's log buffer in any state that a crash or a damage may leave."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c

from penstock.config import ListenerConfig
from penstock.counts import SERIES_END, series_of
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.frames.frame_size import frame_length
from penstock.handover.paths import LOG, buffer_file, position_file, state_file
from penstock.handover.positions.lost_position import (
    LastKnown,
    frames_between,
    last_known_of_all,
    note_added,
    restore_lost,
    two_terms_before,
)
from penstock.handover.positions.position import UNKNOWN, NotAReaderPosition, ReaderPosition
from penstock.handover.state_page import EPOCH, STATISTICS, TOPIC_BY_POSITION, StatePage
from penstock.logbuffer import (
    LogBufferError,
    NotALogBuffer,
    Parameters,
    Publication,
    Subscription,
    mtu_for,
)
from penstock.process.kernel import boot_id

STREAM_ID = 1
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HandlerPosition:
    """A handler as a reader of the log buffer. ``drop``: it may miss frames; ``routed``: it receives messages.

    The log daemon is always a reader: it enters the listener's counts, even if all messages go to other handlers.
    """

    name: str
    drop: bool
    position: ReaderPosition
    routed: bool = True

    @property
    def reached(self) -> int:
        """The position before which it needs no frame: it has handled or copied them."""
        return max(self.position.position, self.position.claim)

    @property
    def mark(self) -> int:
        """The total of messages there; UNKNOWN if it cannot know."""
        return self.position.reached_mark


def open_buffer(folder: Path, listener: ListenerConfig, term_length: int) -> tuple[Publication, list[HandlerPosition]]:
    """Open or create the log buffer; return it with its readers, the log daemon first.

    Invariant: positions never decrease, even if the file is replaced: to change the term length once everything is
    read, or because its content is unusable (the file is then renamed).
    """
    path = buffer_file(folder, listener.name)
    readers = _configured_readers(listener)
    files = [position_file(folder, listener.name, name) for name, _, _ in readers]
    # Order: before any position is used, because a position behind the end would make readers skip new frames.
    _resolve_impossible(folder, listener.name, files)
    positions_before = {file: p for file in files if file.exists() and (p := _read_position(file)) is not None}
    progress = list(positions_before.values())
    parameters = parameters_of(listener, term_length)
    page = StatePage(state_file(folder, listener.name))
    page.log_damage()
    # Crash: a power failure may have taken positions and the end of the buffer, and spared moves or accounts.
    last_known = last_known_of_all(folder, listener.name) if was_restarted(page) else LastKnown()
    publication = _reopen(path, [*progress, last_known.position], parameters) if path.exists() else None
    if publication is None:
        last_known = last_known_of_all(folder, listener.name)
    if publication and publication.parameters.term_length != term_length and _all_read(publication, progress):
        # All readers have read everything, so a new file may start at this position without a gap.
        progress = [publication.position]
        publication.close()
        publication = None
    if publication is None:
        # Order: the old file's epoch ends before there is another file, which may get the same inode.
        end_epoch(page)
        path.unlink(missing_ok=True)
        publication = Publication.create(path, parameters, position=last_known.position, readers=progress)
    total = max(last_total(last_frame_metadata(publication), page), last_known.total)
    topic = listener.log.topic if listener.log else None
    TopicByPosition(page).route(topic, publication.position, positions_before.get(files[0], 0))
    page.close()
    # Order: lost positions are restored before the first write, because the writer may overwrite their frames.
    for name, _, _ in readers:
        restore_lost(folder, listener.name, name, publication, total)
        note_added(folder, listener.name, name, publication, total)
    positions = [_open_position(file, publication, total) for file in files]
    positions[0].total = max(positions[0].total, last_known.total)
    return publication, [HandlerPosition(n, d, p, r) for (n, d, r), p in zip(readers, positions, strict=True)]


def _configured_readers(listener: ListenerConfig) -> list[tuple[str, bool, bool]]:
    """Return the configured readers: name, whether it may miss frames, whether it receives messages."""
    log = listener.log
    first = (LOG, log is None or log.overflow == "drop", log is not None)
    return [first, *((handler.label, handler.overflow == "drop", True) for handler in listener.forwarded)]


def last_total(last: FrameMetadata | None, page: StatePage, position: ReaderPosition | None = None) -> int:
    """Return the total of messages accepted into the buffer, from its last frame or from a later report."""
    reported = int((page.read(STATISTICS) or {}).get("total", 0)) if last is None else last.total
    return max(reported, position.total if position else 0)


def last_frame_metadata(publication: Publication) -> FrameMetadata | None:
    """Return the metadata of the last intact frame of the last two terms, or None."""
    last = publication.last_frame()
    if last is None or (metadata := intact_metadata(last)) is not None:
        return metadata if last else None
    # Limit: an older term may be overwritten at any moment, so the search goes back one term only.
    begin = max(last.begin // publication.parameters.term_length - 1, 0) * publication.parameters.term_length
    for frame in frames_between(publication, begin, last.begin):
        metadata = intact_metadata(frame) or metadata
    return metadata


def newest_frame_metadata(folder: Path, listener: str) -> FrameMetadata | None:
    """Return the metadata of the newest frame, during writes too; None when there is none or it is unreadable."""
    path = position_file(folder, listener, LOG)
    if not path.exists():
        return None  # opening it would make it, at another place than its reader does
    try:
        with ReaderPosition(path) as position:
            newest = position.newest
        with Subscription(buffer_file(folder, listener), newest, in_order=True) as frames:
            return next((intact_metadata(frame) for frame in frames.poll(limit_frames=1)), None)
    except (OSError, LogBufferError):
        return None


class TopicByPosition:
    """The topic of frames by position: a changed topic applies to frames written afterwards."""

    def __init__(self, page: StatePage) -> None:
        self._page = page
        self._routes: list[tuple[int, str | None]] = [
            (start, topic) for start, topic in page.read(TOPIC_BY_POSITION) or []
        ]

    def __bool__(self) -> bool:
        return bool(self._routes)

    @property
    def topics(self) -> set[str]:
        """The topics of all frames in the log buffer."""
        return {topic for _, topic in self._routes if topic is not None}

    def topic(self, position: int) -> str | None:
        """Return the topic of the frame at ``position``; None for frames without one."""
        return next((topic for begin, topic in reversed(self._routes) if begin <= position), None)

    def route(self, topic: str | None, begin: int, reached: int) -> None:
        """Route frames from ``begin`` on to ``topic``; routes that end before ``reached`` are forgotten."""
        if self._routes and self._routes[-1][1] == topic:
            return
        self._routes.append((begin if self._routes else 0, topic))
        passed_count = sum(start <= reached for start, _ in self._routes)
        self._routes = self._routes[max(passed_count - 1, 0) :]
        self._page.write(TOPIC_BY_POSITION, self._routes)


def parameters_of(listener: ListenerConfig, term_length: int) -> Parameters:
    """Return the parameters of the listener's log buffer: one frame carries one complete batch."""
    session_id = crc32c.crc32c(listener.name.encode()) & 0x7FFF_FFFF
    return Parameters(term_length, mtu_for(frame_length(term_length)), session_id, STREAM_ID, 0)


def epoch_of(page: StatePage, inode: int, position: int, total: int) -> tuple[str, int]:
    """Return the name of the period in which positions are unique, and the position at which the machine was restarted.

    The period starts with the file or with the machine; ``inode`` distinguishes files. ``position`` and ``total`` are
    before the next frame. The name begins with that of the listener's first one, which names the series of totals
    (``series_of``): a page that was lost begins another. Crash: after a power failure a buffer may continue at
    positions and totals that were already used for other frames.
    """
    boot = boot_id()
    epoch = page.read(EPOCH)
    if not epoch or (epoch["boot"], epoch["made"]) != (boot, inode):
        is_first, begin = not epoch, 0 if epoch and epoch["boot"] == boot else position
        series = f"{series_of(str(epoch['epoch']))}{SERIES_END}" if epoch else ""
        epoch = {"boot": boot, "made": inode, "epoch": f"{series}{time.time_ns():x}", "begin": begin, "total": total}
        page.write(EPOCH, epoch)
        if is_first:
            # Order: the first text is on the disk before the first frame. Without any text a power failure looks like
            # none: readers would not wait for the floors, and stored frames could be dropped.
            page.sync()
    return str(epoch["epoch"]), int(epoch.get("begin", 0))


def end_epoch(page: StatePage) -> None:
    """Let the next ``epoch_of`` begin an epoch, also for a file with the same inode."""
    if epoch := page.read(EPOCH):
        page.write(EPOCH, {**epoch, "made": 0})


def was_restarted(page: StatePage) -> bool:
    """Report whether the machine was restarted since the listener's receiver last opened its log buffer."""
    epoch = page.read(EPOCH)
    return bool(epoch) and epoch["boot"] != boot_id()


def _reopen(path: Path, readers: Sequence[int], parameters: Parameters) -> Publication | None:
    try:
        publication = Publication.open(path, readers=readers, expected=parameters)
    except NotALogBuffer as error:
        _LOGGER.error("%s; renamed to %s", error, _set_aside(path).name)
        return None
    for skipped in publication.recovered.skipped:
        damage = (path.name, skipped.begin, skipped.end)
        _LOGGER.warning("%s: positions %d to %d contain no intact frame: %s", *damage, skipped.reason)
    return publication


def _all_read(publication: Publication, readers: Sequence[int]) -> bool:
    return all(position >= publication.position for position in readers)


def _read_position(file: Path) -> int | None:
    """Return the position in a file; None for an unreadable file, which is renamed."""
    try:
        with ReaderPosition(file) as position:
            return position.position
    except (NotAReaderPosition, ValueError) as error:
        _LOGGER.error("%s; renamed to %s", error, _set_aside(file).name)
        return None


def _resolve_impossible(folder: Path, listener: str, files: Sequence[Path]) -> None:
    """Reset positions behind the end of the buffer, unless the machine was restarted since: it may have lost its end.

    The readers may be running.
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
                    _LOGGER.error("%s: no frame can be at %d; the reader is reset", file, position.position)
                    oldest = two_terms_before(frames.end, frames.term_length)
                    position.mark, position.position, position.floor, position.claim = (
                        UNKNOWN,
                        oldest,
                        0,
                        oldest,
                    )


def _open_position(file: Path, publication: Publication, total: int) -> ReaderPosition:
    position = ReaderPosition(file, publication.position, total)
    position.repair()
    return position


def _set_aside(path: Path) -> Path:
    unusable = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(unusable)
    return unusable
