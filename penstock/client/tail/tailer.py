"""Files that match patterns, followed into a topic: found, read in turn, appended, their places kept.

The order of an append: what it will hold is entered in the positions, durably; it is made; the next one's entry says
that it is done. A kill at any moment leaves an append that is made again with the same number, and is stored once.
"""

from __future__ import annotations

import glob
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from penstock.client.log.types import OutOfSequence
from penstock.client.tail.followed_file import FollowedFile, Stretch
from penstock.client.tail.positions import FileIdentity, PendingAppend, Place, Positions, PositionsFile, new_id
from penstock.records import annotation_maps, body, from_numpy

FILE = "file"
"""The annotation with the path of the file that a line came from."""
GRACE = 60.0
"""Seconds for which a file that was renamed or removed is read on after its last line: its writer may not know yet."""
Append = Callable[[pa.RecordBatch, tuple[str, int]], Any]
_LOGGER = logging.getLogger(__name__)


class Tailer:
    """Follows the files that match ``patterns``.

    ``append`` stores a batch under a producer's id and number, and raises ClientError. ``from_end``: of files that are
    there at the first start, only what is appended from then on.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        append: Append,
        kept: PositionsFile,
        *,
        annotations: Mapping[str, str] | None = None,
        from_end: bool = False,
        grace: float = GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patterns, self._append, self._kept = patterns, append, kept
        self._annotations, self._grace, self._clock = dict(annotations or {}), grace, clock
        self._files: dict[FileIdentity, FollowedFile] = {}
        self._dirty = False
        found = kept.read()
        self._positions = found or Positions(new_id())
        self.appended = 0
        if found is not None:
            self._open_known()
            self._append_pending()
        self._look()
        if found is None and from_end:
            for file in self._files.values():
                file.skip_to_end()
        self.keep()

    def turn(self) -> bool:
        """Look for files, and append what one read of each finds; whether there was anything."""
        leaving = self._look()
        busy = False
        for identity, file in list(self._files.items()):
            now = self._clock()
            is_over = identity in leaving and now - file.heard >= self._grace
            stretch = file.next(now, is_last=is_over)
            if stretch is not None:
                self._store(file, stretch)
                busy = True
            elif is_over:
                self._forget(identity)
        return busy

    def keep(self) -> None:
        """Keep the positions as they are now. Raises OSError."""
        self._kept.write(self._positions)
        self._dirty = False

    def settle(self) -> None:
        """Keep the positions if anything was appended since."""
        if self._dirty:
            self.keep()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._kept.close()

    def _look(self) -> set[FileIdentity]:
        """Open the files that are new; those that no pattern finds any more."""
        seen = set()
        for path, status in _matching(self._patterns):
            identity = status.st_dev, status.st_ino
            seen.add(identity)
            if identity in self._files:
                self._files[identity].place.path = path
            else:
                self._open(path)
        return self._files.keys() - seen

    def _open(self, path: str, place: Place | None = None) -> None:
        try:
            file = FollowedFile(path, self._clock(), place)
        except OSError as error:
            _LOGGER.warning("%s cannot be read: %s", path, error.strerror)
            return
        self._files[file.place.identity] = file
        self._positions.places[file.place.identity] = file.place

    def _forget(self, identity: FileIdentity) -> None:
        self._files.pop(identity).close()
        self._positions.places.pop(identity, None)
        self._dirty = True

    def _open_known(self) -> None:
        """Open what was followed before, by whatever name it is in its folder now."""
        for place in list(self._positions.places.values()):
            path = _path_of(place)
            if path is None:
                _LOGGER.warning("%s is gone: what was not read of it cannot be", place.path)
                del self._positions.places[place.identity]
            else:
                self._open(path, place)

    def _append_pending(self) -> None:
        """Make the append that a kill may have cut short, once more with the same number."""
        pending = self._positions.pending
        if pending is None:
            return
        file = self._files.get((pending.device, pending.inode))
        data = file.bytes_at(pending.begin, pending.end) if file else b""
        if file is None or crc32c(data) != pending.checksum:
            _LOGGER.warning("%s was cut: nobody can say whether its last lines are in the topic", pending.path)
            self._positions.pending = None
            self._positions.renew(new_id)
            return
        self._make(file, Stretch(pending.begin, pending.end, data), pending.path)

    def _store(self, file: FollowedFile, stretch: Stretch) -> None:
        place = file.place
        span = (stretch.begin, stretch.end, crc32c(stretch.data))
        self._positions.pending = PendingAppend(place.path, *place.identity, *span)
        self.keep()
        self._make(file, stretch, place.path)

    def _make(self, file: FollowedFile, stretch: Stretch, path: str) -> None:
        """The pending append, which is done then; the file's place is kept with what comes next."""
        lines, positions = stretch.lines(), self._positions
        batch = body(lines, annotations=self._annotated(path, len(lines)))
        try:
            self._append(batch, (positions.producer, positions.sequence))
        except OutOfSequence:  # the log has forgotten this producer, as after a day without a line
            positions.renew(new_id)
            self.keep()
            self._append(batch, (positions.producer, positions.sequence))
        positions.sequence += 1
        positions.pending = None
        file.moved_to(stretch.end)
        self.appended += len(lines)
        self._dirty = True

    def _annotated(self, path: str, rows: int) -> pa.Array[Any]:
        texts = {**self._annotations, FILE: os.fsencode(path).decode("utf-8", "replace")}
        at = from_numpy(np.tile(np.arange(len(texts)), rows))
        offsets = np.arange(rows + 1) * len(texts)
        return annotation_maps(offsets, pa.array(list(texts)).take(at), pa.array(list(texts.values())).take(at))


def _matching(patterns: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """The files that match, by their real names and in order, each once."""
    paths = {os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)}
    for path in sorted(paths):
        try:
            status = os.stat(path)
        except OSError:  # renamed a moment ago
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status


def _path_of(place: Place) -> str | None:
    """What a file is called now."""
    try:
        with os.scandir(os.path.dirname(place.path)) as found:
            for entry in found:
                if entry.inode() == place.inode and entry.stat().st_dev == place.device:
                    return entry.path
    except OSError:
        return None
    return None
