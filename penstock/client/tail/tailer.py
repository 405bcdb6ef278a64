"""Files that match patterns, followed into a topic: found, read in turn, appended, their positions stored.

Order: what an append will hold is stored durably, then it is made, and the entry of the next one says that it is done.
Crash: a kill at any moment leaves at most one append that is made again under the same number, and is stored once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.client.log.types import OutOfSequence
from penstock.client.tail import container_logs
from penstock.client.tail.discovery import (
    Discovery,
    OnceLogger,
    find_by_inode,
    is_mounted,
    name_before_rotation,
)
from penstock.client.tail.file_content import SIGNATURE_BYTES, compression_of, read_beginning, write_decompressed
from penstock.client.tail.followed_file import FollowedFile, Span
from penstock.client.tail.positions import (
    COPIED,
    FileIdentity,
    FilePosition,
    InterruptedAppend,
    PendingAppend,
    Positions,
    PositionsFile,
    new_id,
)
from penstock.records import annotation_maps, body, from_numpy

FILE = "file"
"""The annotation with the path of the file that a line came from."""
GRACE_S = 60.0
"""Time for which a renamed or removed file is read on after its last line: its writer may not know yet.

Measured by the monotonic clock, as all ages here: nothing depends on the time of day, which may be wrong.
"""
COPY_WAIT_S = 5.0
"""Time for which a new file waits, after it grew last, that begins as another one: copytruncate cuts that one then."""
MIN_UNIQUE_BYTES = 1024
"""A shorter beginning may be the same in two files by chance; then a copy must also be named after its original."""
KNOWN_BYTES = 256
"""Bytes by which a compressed file is known again: its header alone is often that of others."""
Append = Callable[[pa.RecordBatch, tuple[str, int]], Any]
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _CompressedFile:
    """A file that is not followed. ``changed_ns`` is its last change, ``counted_ns`` the last one that is counted.

    ``beginning`` are its first bytes: a new file often has the inode of one that was removed.
    """

    changed_ns: int
    beginning: bytes
    counted_ns: int = 0
    counts: int = 0
    unread_lines: int = 0
    rests_since: float = 0.0

    def is_due(self, changed_ns: int, now: float, grace_s: float) -> bool:
        """Report whether its lines need another count.

        Limit: a file that still grows is decompressed from its beginning, up to a second each time. It must rest first,
        twice as long after each count.
        """
        if changed_ns == self.counted_ns:
            return False
        if changed_ns != self.changed_ns:
            self.changed_ns, self.rests_since = changed_ns, now
        return now - self.rests_since >= grace_s * (1 << min(max(self.counts - 1, 0), 16))


class Tailer:
    """Follows the files that match ``patterns``. Owned by one thread.

    ``append`` stores a batch under a producer's id and number, and raises ClientError. ``from_end``: of the files that
    exist at the first start, append only what is written from then on. ``containers``: the files are logs of
    containers' runtimes.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        append: Append,
        state: PositionsFile,
        *,
        annotations: Mapping[str, str] | None = None,
        from_end: bool = False,
        containers: bool = False,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warnings = OnceLogger()
        self._discovery, self._append, self._state = Discovery(patterns, self._warnings), append, state
        self._annotations, self._grace_s, self._clock = dict(annotations or {}), grace_s, clock
        self._containers = containers
        self._files: dict[FileIdentity, FollowedFile] = {}
        self._compressed: dict[FileIdentity, _CompressedFile] = {}
        self._has_unsaved = False
        stored = state.read()
        self._positions = stored or Positions(new_id())
        self._cut_at = dict.fromkeys((position.identity for position in self._positions.cut), clock())
        self.appended = self.skipped_nuls = self.unread_lines = 0
        # Files that are there at the start may have been read, and compressed, long ago.
        self._initial_files: set[FileIdentity] = set()
        self._initial_files |= self._discover().keys()
        if stored is None:
            for file in self._files.values() if from_end else ():
                file.skip_to_end()
            self.save()

    def turn(self, *, is_final: bool = False) -> bool:
        """Look for files, and append what one read of each returns; whether there was anything.

        ``is_final``: no further turn follows once nothing is left, so nothing is waited for. Raises ClientError and
        OSError; a later turn then makes the same append again.
        """
        names = self._discover()
        unmatched = self._files.keys() - names.keys()
        now = self._clock()
        # Order: cuts are detected before copies of the cut files are recognised, and these before an interrupted append
        # is made again, as its bytes may be in a copy by now.
        self._detect_cuts(now)
        for identity, file in list(self._files.items()):
            with self._guarded(identity):
                if not file.position.offset and not file.is_own:
                    self._settle_origin(file, unmatched, now, is_final)
                elif file.position.renamed == COPIED and file.unread_bytes:
                    self._settle_grown_copy(file, now, is_final)
        self._drop_missing_files()
        self._retry_pending()
        self._retry_interrupted()
        current_paths = {path for paths in names.values() for path in paths}
        is_busy = False
        for identity, file in list(self._files.items()):
            is_quiet = is_final or self._clock() - file.grown_at >= self._grace_s
            is_over = is_quiet and (identity in unmatched or self._is_rotated(file, current_paths))
            if file.is_held and (file.is_copy or not is_over):
                if is_over and identity in unmatched:
                    self._forget(identity)
                continue
            span = None
            with self._guarded(identity):
                span = file.next(self._clock(), is_last=is_over)
                self._warnings.clear(("open", file.position.path))
            if span is not None:
                self._store(file, span)
                is_busy = True
            elif is_over and identity in unmatched and identity in self._files:
                self._forget(identity)
        return is_busy

    def save(self) -> None:
        """Store the present positions. Raises OSError."""
        self._state.write(self._positions)
        self._has_unsaved = False

    def settle(self) -> None:
        """Store the positions if they changed since."""
        if self._has_unsaved:
            self.save()

    def report_unfinished(self) -> None:
        """Warn about lines that have no end yet, which the next start appends."""
        for file in self._files.values():
            if file.unread_bytes:
                _LOGGER.warning("%s: the last %d bytes have no line end yet", file.position.path, file.unread_bytes)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._state.close()

    def _discover(self) -> dict[FileIdentity, list[str]]:
        """Open new files, and known files under their present names; return the matching names of each file."""
        names = self._discovery.find_files()
        for identity, paths in names.items():
            file = self._files.get(identity)
            if file is None:
                stored = self._positions.files.get(identity)
                self._open(stored.path if stored is not None and stored.path in paths else paths[0], identity)
            elif file.position.path not in paths:
                file.position.path, file.position.renamed = paths[0], 1
                self._has_unsaved = True
        for identity, position in list(self._positions.files.items()):
            if identity not in self._files and identity not in names and (path := find_by_inode(position)):
                self._open(path, identity)
        self._compressed = {identity: file for identity, file in self._compressed.items() if identity in names}
        self._initial_files &= names.keys()
        return names

    def _open(self, path: str, identity: FileIdentity) -> None:
        try:
            if self._is_known_archive(path, identity):
                return
            complete_bytes = container_logs.complete_bytes if self._containers else len
            file = FollowedFile(path, self._clock(), self._positions.files, complete_bytes)
        except OSError as error:
            self._warn_unreadable(path, error)
            return
        position = file.position
        if position.identity in self._files:  # renamed since it was listed
            file.close()
            return
        # A renamed file is none: two files of equal lines may have been rotated before the present one was read.
        if position.path == path and not position.renamed and not position.offset:
            self._name_original(file)
        if position.path != path:
            position.path, position.renamed = path, 1
        self._files[position.identity] = file
        self._positions.files[position.identity] = position

    def _is_known_archive(self, path: str, identity: FileIdentity) -> bool:
        """Return whether a file is compressed, and its lines need no count now. Raises OSError."""
        compressed = self._compressed.get(identity)
        if compressed is None:
            return False
        changed_ns = os.stat(path).st_mtime_ns
        if (
            changed_ns != compressed.changed_ns
            and read_beginning(path, len(compressed.beginning)) != compressed.beginning
        ):
            # Another file with the same inode: it would not be read before it rests, which a busy log never does.
            del self._compressed[identity]
            self._initial_files.discard(identity)
            return False
        return not compressed.is_due(changed_ns, self._clock(), self._grace_s)

    def _name_original(self, file: FollowedFile) -> None:
        """Note the file that ``file`` may be a copy of, as logrotate's ``copy`` makes them: by its name.

        Names such as ``app.1.log`` or ``app-2026-01-01.log`` may be other runs' and programs', and so may be the file
        to which a link points.
        """
        path, file.original = file.position.path, None
        original = name_before_rotation(path)
        if original == path or not path.startswith(original) or os.path.islink(original):
            return
        try:
            status = os.stat(original)
        except OSError:
            return
        position = self._positions.files.get((status.st_dev, status.st_ino))
        if position is not None and position.offset:
            file.original = position.identity

    def _warn_unreadable(self, path: str, error: OSError) -> None:
        self._warnings.report(("open", path), f"{path} cannot be read: {error.strerror}; trying again")

    @contextlib.contextmanager
    def _guarded(self, identity: FileIdentity) -> Iterator[None]:
        """Close a file that cannot be read, without harm to the others: the next turn opens it again."""
        try:
            yield
        except OSError as error:
            file = self._files.pop(identity)
            self._warn_unreadable(file.position.path, error)
            file.close()

    def _detect_cuts(self, now: float) -> None:
        for identity, file in list(self._files.items()):
            with self._guarded(identity):
                self._detect_cut(identity, file, now)
        expired = {identity for identity, since in self._cut_at.items() if now - since >= self._grace_s}
        if expired:
            self._drop_cuts(expired)

    def _detect_cut(self, identity: FileIdentity, file: FollowedFile, now: float) -> None:
        before = file.detect_cut(now)
        if before is None:
            return
        _LOGGER.warning("%s was cut after %d bytes: reading it from its beginning", before.path, before.offset)
        self._drop_cuts({identity})
        self._name_original(file)  # an older copy may be overwritten by the next one
        self._positions.cut.append(before)
        self._cut_at[identity] = now

    def _drop_cuts(self, identities: set[FileIdentity]) -> None:
        self._positions.cut = [each for each in self._positions.cut if each.identity not in identities]
        for identity in identities:
            self._cut_at.pop(identity, None)
        self._has_unsaved = True

    def _settle_origin(self, file: FollowedFile, unmatched: Set[FileIdentity], now: float, is_final: bool) -> None:
        """Decide where an unread file begins to be read: it may be a copy, or replace a file that was read."""
        beginning = file.beginning()
        if compression := compression_of(beginning):
            self._leave_out(file, compression)
            return
        if predecessor := self._predecessor(file, unmatched):
            _LOGGER.info("%s continues where %s was read to", file.position.path, predecessor.path)
            file.position.continue_from(predecessor)
            if predecessor in self._positions.cut:
                self._drop_cuts({predecessor.identity})
            elif predecessor.identity not in self._files:
                del self._positions.files[predecessor.identity]
            self._has_unsaved = file.is_own = True
            file.is_held = file.is_copy = False
            return
        if self._settle_copy(file, now, is_final):
            return
        is_undecided = (len(beginning) < SIGNATURE_BYTES and b"\n" not in beginning) or self._may_be_copy(file)
        may_wait = not is_final and now - file.grown_at < COPY_WAIT_S
        file.is_held = not beginning or (may_wait and is_undecided)
        file.is_own = not file.is_held

    def _settle_copy(self, file: FollowedFile, now: float, is_final: bool) -> bool:
        """Return whether ``file`` is a copy of a read file; leave it out when its lines have been read there.

        Crash: until then its offset is 0. If the original is cut, the copy continues where the original was read to.
        """
        original = self._files.get(file.original) if file.original is not None else None
        file.is_copy = original is not None and file.unread_bytes > 0 and file.is_beginning_of(original)
        if original is None or not file.is_copy:
            return False
        is_complete = is_final or now - file.grown_at >= COPY_WAIT_S
        if is_complete and not file.equals_beginning_of(original):
            file.original, file.is_copy = None, False
            return False
        file.is_held = not (is_complete and file.skip_copied(original))
        if not file.is_held:
            _LOGGER.info("%s is a copy of %s: not read again", file.position.path, original.position.path)
            self._has_unsaved, file.is_own, file.is_copy = True, True, False
        return True

    def _settle_grown_copy(self, file: FollowedFile, now: float, is_final: bool) -> None:
        """Decide what the growth of a copy is: a later copy into the same file, or lines of its own."""
        self._name_original(file)
        if not self._settle_copy(file, now, is_final):
            file.is_held, file.position.renamed = False, 1

    def _leave_out(self, file: FollowedFile, compression: str) -> None:
        """Do not follow a compressed file: its lines were read before it was compressed, or are counted as unread."""
        position = file.position
        self._warnings.report(("compressed", position.path), f"{position.path} is compressed ({compression}): not read")
        changed_ns = os.stat(position.path).st_mtime_ns
        new = _CompressedFile(changed_ns, file.bytes_at(0, KNOWN_BYTES))
        compressed = self._compressed.setdefault(position.identity, new)
        unread = 0
        with contextlib.suppress(OSError):  # no room for the content: it is not compared
            unread = self._count_unread(file, compression)
        if unread > compressed.unread_lines:
            _LOGGER.warning("%s: %d of its lines were not read before it was compressed", position.path, unread)
        self.unread_lines += max(unread - compressed.unread_lines, 0)
        compressed.counted_ns, compressed.unread_lines = changed_ns, max(unread, compressed.unread_lines)
        compressed.counts += 1
        file.close()
        del self._files[position.identity], self._positions.files[position.identity]

    def _count_unread(self, file: FollowedFile, compression: str) -> int:
        """Return the number of lines in a compressed file that were not read before; 0 if that cannot be known."""
        base = _rotated_name(os.path.splitext(file.position.path)[0])
        positions = [
            position
            for position in (*self._positions.files.values(), *self._positions.cut)
            if position.offset and _rotated_name(position.path) == base
        ]
        is_initial = file.position.identity in self._initial_files
        if is_initial and not positions:
            return 0
        with tempfile.NamedTemporaryFile() as content, contextlib.ExitStack() as stack:
            if not write_decompressed(file.position.path, compression, content):
                return 0
            unpacked = FollowedFile(content.name, 0.0, {})
            stack.callback(unpacked.close)
            for original in self._files.values():
                # A file that is open is read to its end, also if it has been removed.
                if original is not file and unpacked.unread_bytes and unpacked.is_beginning_of(original):
                    return 0
            offsets = [position.offset for position in positions if unpacked.begins_with(position)]
            return 0 if is_initial and not offsets else unpacked.count_lines(max(offsets, default=0))

    def _predecessor(self, file: FollowedFile, unmatched: Set[FileIdentity]) -> FilePosition | None:
        """Return the position of a file that was cut or removed, and whose content ``file`` begins with."""
        path, identity = file.position.path, file.position.identity
        for position in self._positions.cut:
            is_named_after = _rotated_name(position.path) == _rotated_name(path)
            is_unique = position.offset >= MIN_UNIQUE_BYTES or is_named_after
            if position.identity != identity and is_unique and file.begins_with(position):
                return position
        for position in self._positions.files.values():
            # Only the device number differs if a file system was mounted again.
            is_same_name = position.path == path or position.inode == file.position.inode
            if position.identity == identity or not position.offset or not is_same_name:
                continue
            old_file = self._files.get(position.identity)
            is_removed = old_file is None or (position.identity in unmatched and old_file.is_deleted)
            if is_removed and file.begins_with(position):
                return position
        return None

    def _may_be_copy(self, file: FollowedFile) -> bool:
        """Whether another file begins as this one, and might be cut as soon as its copy is complete."""
        originals = [original for original in self._files.values() if original is not file and original.position.offset]
        return any(file.begins_with(original.position) or file.is_beginning_of(original) for original in originals)

    def _is_rotated(self, file: FollowedFile, current_paths: Set[str]) -> bool:
        """Whether a file has a name that is no longer written to."""
        path = file.position.path
        original = name_before_rotation(path)
        return bool(file.position.renamed) or (original != path and original in current_paths)

    def _forget(self, identity: FileIdentity) -> None:
        position = self._positions.files[identity]
        self._files.pop(identity).close()
        if is_mounted(position):
            del self._positions.files[identity]
            self._has_unsaved = True
        else:
            self._warnings.report(("mount", position.path), f"the file system of {position.path} is not mounted")

    def _retry_pending(self) -> None:
        """Make the append that a kill or a failure interrupted, again under the same number."""
        pending, positions = self._positions.pending, self._positions
        if pending is None:
            return
        self.save()  # a failure to store it may be what interrupted the append
        if match := self._find_content(pending):
            self._make_append(*match, pending.path)
            return
        if pending.identity in positions.files and pending.identity not in self._files:
            positions.interrupted.append(InterruptedAppend(positions.producer, positions.sequence, pending))
        else:
            self._warn_unknown(pending)
        positions.pending = None
        positions.renew(new_id)
        self.save()

    def _retry_interrupted(self) -> None:
        """Make appends whose files could not be read, once the files are back and before more of them is read."""
        for interrupted in list(self._positions.interrupted):
            pending = interrupted.append
            if pending.identity not in self._files and pending.identity in self._positions.files:
                continue
            if match := self._find_content(pending):
                try:
                    self._append_lines(*match, pending.path, (interrupted.producer, interrupted.sequence))
                except OutOfSequence:  # the log has forgotten this producer: the lines are read as new ones
                    self._warn_unknown(pending)
            else:
                self._warn_unknown(pending)
            self._positions.interrupted.remove(interrupted)
            self.save()

    def _find_content(self, pending: PendingAppend) -> tuple[FollowedFile, Span] | None:
        """Return the span that an append holds: of its file, of a copy, or of the file that replaced it."""
        for identity, file in list(self._files.items()):
            hole_bytes = pending.begin - file.position.offset
            if hole_bytes and not (identity == pending.identity and hole_bytes > 0):
                continue
            with self._guarded(identity):
                span = file.span(pending.begin, pending.end)
                if span.checksum == pending.checksum:
                    return file, span
        return None

    def _warn_unknown(self, pending: PendingAppend) -> None:
        text = "%s was cut: its last lines before a kill may be missing from the topic, or occur twice"
        _LOGGER.warning(text, pending.path)

    def _drop_missing_files(self) -> None:
        """Drop positions of files that no longer exist."""
        for identity, position in list(self._positions.files.items()):
            if identity in self._files:
                continue
            if not is_mounted(position):
                self._warnings.report(("mount", position.path), f"the file system of {position.path} is not mounted")
            elif find_by_inode(position) is None:
                _LOGGER.warning("%s is gone: what was not read of it cannot be", position.path)
                del self._positions.files[identity]
                self._has_unsaved = True

    def _store(self, file: FollowedFile, span: Span) -> None:
        position = file.position
        self._positions.pending = PendingAppend(position.path, *position.identity, span.begin, span.end, span.checksum)
        self.save()
        self._make_append(file, span, position.path)

    def _make_append(self, file: FollowedFile, span: Span, path: str) -> None:
        """Make the pending append. The file's position is stored with the next one."""
        positions = self._positions
        try:
            self._append_lines(file, span, path, (positions.producer, positions.sequence))
        except OutOfSequence:  # the log has forgotten this producer, as after a day without a line
            positions.renew(new_id)
            self.save()
            self._append_lines(file, span, path, (positions.producer, positions.sequence))
        positions.sequence += 1
        positions.pending = None

    def _append_lines(self, file: FollowedFile, span: Span, path: str, number: tuple[str, int]) -> None:
        content = span.lines()
        lines, constants = content.lines, self._annotations | {FILE: os.fsencode(path).decode("utf-8", "replace")}
        if self._containers:
            entries = container_logs.read_entries(lines)
            lines = entries.texts
            annotations = entries.with_annotations(constants | container_logs.describe_path(path))
        else:
            annotations = _repeat_annotations(constants, len(lines))
        self._append(body(lines, annotations=annotations), number)
        skipped_nuls = content.skipped_nuls + max(span.begin - file.position.offset, 0)
        if skipped_nuls:
            _LOGGER.warning("%s: left out %d NUL bytes, a hole before a line", path, skipped_nuls)
        file.advance(span.end)
        self.appended += len(lines)
        self.skipped_nuls += skipped_nuls
        self._has_unsaved = True


def _repeat_annotations(texts: Mapping[str, str], rows: int) -> pa.Array[Any]:
    index = from_numpy(np.tile(np.arange(len(texts)), rows))
    offsets = np.arange(rows + 1) * len(texts)
    return annotation_maps(offsets, pa.array(list(texts)).take(index), pa.array(list(texts.values())).take(index))


def _rotated_name(path: str) -> str:
    return os.path.basename(name_before_rotation(path))
