"""systemd's journal, followed into a topic: read by journalctl, each entry appended once by its cursor.

Order: the rows of an append are stored durably with the cursor behind them, then they are appended, and the state of
the next append says that it is done.
Crash: a kill of this process, of journalctl or of journald at any moment neither loses nor repeats an entry.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import IO

import numpy as np

from penstock.client.log.types import OutOfSequence
from penstock.client.tail.discovery import OnceLogger
from penstock.client.tail.journal_export import BadExport, ExportReader, JournalEntries, is_same_entry
from penstock.client.tail.journal_position import JournalPosition, JournalPositionFile
from penstock.client.tail.positions import new_id
from penstock.client.tail.tailer import Append
from penstock.process.kernel import boot_id
from penstock.records import body
from penstock.wire.datagrams import Ints

PROGRAM = "journalctl"
APPEND_BYTES = 1 << 20
"""About what one append holds."""
PIPE_BYTES = 1 << 16
FIRST_RESTART_S, MAX_RESTART_S = 1.0, 30.0
POLL_INTERVAL_S = 1.0
END_TIMEOUT_S = 5.0
CHECK_TIMEOUT_S = 60.0
"""Limit: time of a look at one entry; journalctl may hang in a damaged journal."""
PERSISTENT_FOLDER = "/var/log/journal"
NOW, BOOT, ALL = "now", "boot", "all"
READERS = ("systemd-journal", "adm", "wheel")
"""Groups that may read the entries of all users."""
_NO_ACCESS = "You are currently not seeing messages from"
"""Part of the line that journalctl writes to a user who may not read all of the journal."""
_LOGGER = logging.getLogger(__name__)


class JournalTailer:
    """Follows the journal. Owned by one thread.

    ``append`` stores a batch under a producer's id and number, and raises ClientError. ``since``: where the first start
    begins. ``units``: only entries of these. ``once``: ``turn`` waits until all existing entries are appended.
    ``missing`` counts entries that were removed before they were read, ``cut_fields`` fields that were too long.
    """

    def __init__(
        self,
        append: Append,
        state: JournalPositionFile,
        *,
        units: Sequence[str] = (),
        since: str = ALL,
        annotations: Mapping[str, str] | None = None,
        once: bool = False,
        program: str = PROGRAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._append, self._state, self._units, self._since = append, state, units, since
        self._annotations, self._once, self._program, self._clock = dict(annotations or {}), once, program, clock
        self._warnings = OnceLogger()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader, self._damage = ExportReader(), ""
        self._is_first_entry = self._has_unsaved = self._is_over = self._is_restricted = self._lacks_folder = False
        self._removed_cursor: str | None = None  # of the last read entry, if the journal no longer has it
        self._restart_at, self._restart_s = 0.0, FIRST_RESTART_S
        self.appended = self.missing = self._cut_before = 0
        stored = state.read()
        if stored is None:
            stored = JournalPosition(new_id())
            if since == NOW:
                stored.cursor = self._first_cursor("--lines=1", "--quiet")
            state.write(stored)
        self._position = stored

    @property
    def cut_fields(self) -> int:
        return self._cut_before + self._reader.cut_fields

    def turn(self, *, is_final: bool = False) -> bool:
        """Append what is there to be read, at most about ``APPEND_BYTES``; return whether there may be more.

        Raises ClientError and OSError; a later turn then makes the same append again.
        """
        if self._position.pending is not None:
            self._state.write(self._position)  # a failure to store it may be what interrupted the append
            self._make_append()
        if self._is_over:
            return False
        if self._process is None:
            if self._clock() < self._restart_at:
                if self._once:
                    time.sleep(POLL_INTERVAL_S)
                return self._once
            self._start()
        elif self._lacks_folder and os.path.isdir(PERSISTENT_FOLDER):
            # Workaround: journalctl 252 does not see a folder that is made after its start, to which journald moves.
            self._stop_process()
            self._start()
        has_ended = bool(self._damage) or self._read()
        self._report_errors()
        entries = None
        try:
            entries = self._reader.drain()
        except BadExport as error:
            self._damage = str(error)
        if entries is not None:
            self._store(entries)
        if has_ended or self._damage:
            self._reap()
        return entries is not None or (self._once and not self._is_over)

    def save(self) -> None:
        """Store the present position. Raises OSError."""
        self._state.write(self._position)
        self._has_unsaved = False

    def settle(self) -> None:
        """Store the position if it changed since."""
        if self._has_unsaved:
            self.save()

    def changes(self) -> Iterator[object]:
        """Return one item each time there may be entries, and at least one for each ``POLL_INTERVAL_S``."""
        while True:
            self._wait()
            yield None

    def report_unfinished(self) -> None:
        """Nothing is left unfinished: an entry is complete."""

    def close(self) -> None:
        self._stop_process()
        self._state.close()

    def _command(self, *options: str) -> list[str]:
        units = [f"--unit={unit}" for unit in self._units]
        return [self._program, "--output=export", "--no-pager", *units, *options]

    def _first_cursor(self, *options: str) -> str | None:
        """Return the cursor of the first entry that journalctl writes; None without one. Raises OSError."""
        command = self._command(*options)
        try:
            completed = subprocess.run(command, capture_output=True, check=False, timeout=CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise OSError(f"{PROGRAM} does not end within {CHECK_TIMEOUT_S:g} s") from None
        if completed.returncode:
            error = completed.stderr.decode("utf-8", "replace").strip().splitlines()
            raise OSError(f"{PROGRAM}: {error[-1] if error else f'status {completed.returncode}'}")
        reader = ExportReader()
        try:
            reader.feed(completed.stdout)
            entries = reader.drain()
        except BadExport as error:
            raise OSError(f"{PROGRAM}: {error}") from None
        return None if entries is None else str(entries.cursors[0].as_py())

    def _is_removed(self, cursor: str) -> bool:
        """Whether the journal no longer has the entry of ``cursor``."""
        try:
            # Limit: an entry may have 768 MiB in one field; those that are always written are enough.
            first = self._first_cursor(f"--cursor={cursor}", "--lines=1", "--quiet", "--output-fields=_BOOT_ID")
        except OSError:
            return False  # the process that reads meets the same trouble, and reports it
        return first is None or not is_same_entry(cursor, first)

    def _start(self) -> None:
        cursor = self._position.cursor
        # Without its entry, journalctl seeks the cursor's time of day, and skips all entries before it without a word:
        # after a clock that was ahead these are new ones. Then the journal is read from its beginning.
        self._removed_cursor = cursor if cursor is not None and self._is_removed(cursor) else None
        # The entry of the cursor is read too: it proves that nothing behind it was removed. ``--after-cursor`` skips an
        # entry whatever it is before systemd 254, and so loses one if that of the cursor was removed.
        begin = ["--boot"] if cursor is None and self._since == BOOT else []
        if cursor is not None and self._removed_cursor is None:
            begin = [f"--cursor={cursor}"]
        follow = [] if self._once else ["--follow", "--no-tail"]
        self._lacks_folder = not os.path.isdir(PERSISTENT_FOLDER)
        self._process = subprocess.Popen(
            self._command(*begin, *follow),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C in a terminal ends this process, which then ends journalctl
        )
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
        self._is_first_entry, self._is_restricted = cursor is not None, not may_read_all()

    def _pipes(self) -> list[IO[bytes]]:
        process = self._process
        return [pipe for pipe in (process.stdout, process.stderr) if pipe is not None] if process is not None else []

    def _wait(self) -> None:
        if pipes := self._pipes():
            # Workaround: not by select(), which refuses descriptors from 1024 on.
            wait([pipe.fileno() for pipe in pipes], POLL_INTERVAL_S)
        else:
            time.sleep(POLL_INTERVAL_S)

    def _read(self) -> bool:
        """Feed the reader with what the pipe holds; return whether journalctl has ended."""
        if self._once:
            self._wait()
        descriptor = self._pipes()[0].fileno()
        try:
            while self._reader.ready_bytes < APPEND_BYTES:
                piece = os.read(descriptor, PIPE_BYTES)
                if not piece:
                    return True
                self._reader.feed(piece)
        except BlockingIOError:
            return False
        except BadExport as error:
            self._damage = str(error)
            return True
        return False

    def _report_errors(self) -> None:
        """Pass on what journalctl writes to its standard error, each line once."""
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._pipes()[1].fileno(), PIPE_BYTES).decode("utf-8", "replace").splitlines():
                self._is_restricted |= _NO_ACCESS in line
                if line.strip():
                    self._warnings.report(line, f"{PROGRAM}: {line.strip()}")

    def _reap(self) -> None:
        """Take the status of journalctl, which has ended or is of no use any more, and plan its next start."""
        process, damage = self._process, self._damage
        assert process is not None
        if not damage:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
            self._report_errors()
        self._stop_process()
        status = process.returncode
        if self._once and not status and not damage:
            self._is_over = True
            return
        end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        cause = f"wrote what cannot be read ({damage})" if damage else end
        text = "%s %s; starting it again at the last entry in %.0f s"
        _LOGGER.warning(text, PROGRAM, cause, self._restart_s)
        self._restart_at = self._clock() + self._restart_s
        self._restart_s = min(2 * self._restart_s, MAX_RESTART_S)

    def _stop_process(self) -> None:
        """End journalctl; drop what was read of an incomplete entry, which is read again from the cursor."""
        process, pipes = self._process, self._pipes()
        self._cut_before, self._reader, self._process, self._damage = self.cut_fields, ExportReader(), None, ""
        if process is None:
            return
        for pipe in pipes:
            pipe.close()
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _store(self, entries: JournalEntries) -> None:
        position = self._position
        if self._removed_cursor is not None:
            entries = entries.select(entries.are_after(self._removed_cursor, boot_id().replace("-", "")))
            if not len(entries):
                return
        if self._is_first_entry:
            self._is_first_entry = False
            assert position.cursor is not None
            if is_same_entry(position.cursor, str(entries.cursors[0].as_py())):
                position.cursor = str(entries.cursors[0].as_py())  # moved from /run to /var, it has another number
                entries = entries.select(np.arange(len(entries)) > 0)
            else:
                self._warn_removed(entries)
        if not len(entries):
            return
        self._restart_s = FIRST_RESTART_S
        missing = self._count_missing(entries)
        annotations = entries.with_annotations(self._annotations, missing)
        position.pending = body(entries.payloads, annotations=annotations)
        position.cursor = str(entries.cursors[-1].as_py())
        self.save()
        self._make_append()

    def _count_missing(self, entries: JournalEntries) -> Ints:
        """Return how many entries are missing before each one, as far as the sequence numbers can tell."""
        # The numbers of entries that are not read, of other units or other users, look the same as removed ones.
        if self._units or self._is_restricted:
            return np.zeros(len(entries), np.int64)
        missing = entries.missing_before(self._position.cursor)
        if total := int(missing.sum()):
            self.missing += total
            _LOGGER.warning(
                "%d entries of the journal are missing before cursor %s: removed before they were read",
                total,
                entries.cursors[int(np.flatnonzero(missing)[-1])].as_py(),
            )
        return missing

    def _warn_removed(self, entries: JournalEntries) -> None:
        if self._units or self._is_restricted or not entries.missing_before(self._position.cursor)[0]:
            _LOGGER.warning(
                "the entry that was read last is no longer in the journal: entries before cursor %s may have been "
                "removed before they were read; they cannot be counted",
                entries.cursors[0].as_py(),
            )

    def _make_append(self) -> None:
        """Make the pending append. That it is made is stored with the next one."""
        position = self._position
        assert position.pending is not None
        rows = position.pending
        try:
            self._append(rows, (position.producer, position.sequence))
        except OutOfSequence:  # the log has forgotten this producer, as after a day without an entry
            position.renew()
            self.save()
            self._append(rows, (position.producer, position.sequence))
        position.sequence += 1
        position.pending = None
        self.appended += rows.num_rows
        self._has_unsaved = True


def may_read_all() -> bool:
    """Whether this user may read the entries of all users. journalctl does not always say so: not of /run."""
    groups = {os.getegid(), *os.getgroups()}
    for name in READERS:
        with contextlib.suppress(KeyError):
            if grp.getgrnam(name).gr_gid in groups:
                return True
    return os.geteuid() == 0
