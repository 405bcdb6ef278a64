"""Faults of the disk of the tables, which Arrow and delta-rs write themselves, and the end of a killed process.

A killed process unwinds its stack in the simulation: ``is_dead`` refuses what its handlers would do to files. No pages
are lost.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import CommitFailedError

from penstock.landing.storage import parquet_files
from penstock.testing.simulation.machine import Killed, another_process, replaced

_CHANGES = ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
"""Audit events of what a dead process cannot do. Arrow writes on into open files, which no commit names."""
_WRITING = os.O_WRONLY | os.O_RDWR


class TablesDisk:
    """The disk below ``folder``, as the one running pipeline sees it.

    ``full_for`` is the number of writes that fail for lack of space; ``lost_answers`` and ``lost_commits`` are the
    commits of tables that fail after and before they are written; ``interrupt`` is called in ``interrupted`` commits.
    """

    current: TablesDisk | None = None
    _has_hook = False

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.is_dead = self._is_another = False
        self.full_for = self.lost_answers = self.lost_commits = self.interrupted = 0
        self.interrupt: Callable[[], None] = lambda: None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inject the faults during the block."""
        if not TablesDisk._has_hook:
            # A hook cannot be removed: it does nothing between runs.
            sys.addaudithook(TablesDisk._check)
            TablesDisk._has_hook = True
        write, finish = deltalake.DeltaTable.create_write_transaction, parquet_files.NewParquet.finish
        with ExitStack() as stack:
            stack.enter_context(replaced(deltalake.DeltaTable, "create_write_transaction", self._committing(write)))
            stack.enter_context(replaced(parquet_files.NewParquet, "finish", self._finishing(finish)))
            TablesDisk.current = self
            try:
                yield
            finally:
                TablesDisk.current = None

    @contextmanager
    def another_process(self) -> Iterator[None]:
        """Run the block as a process that the faults do not hit."""
        self._is_another = True
        try:
            yield
        finally:
            self._is_another = False

    @staticmethod
    def _check(event: str, arguments: tuple[Any, ...]) -> None:
        disk = TablesDisk.current
        if disk is None or disk._is_another or not (disk.is_dead or disk.full_for) or event not in _CHANGES:
            return
        if disk.is_dead:
            raise Killed
        if event == "open" and str(arguments[0]).startswith(disk._folder):
            mode, flags = arguments[1:]
            # A lock file exists already, or needs no block.
            if (mode and mode[0] in "wax") or (mode is None and flags & _WRITING == os.O_WRONLY):
                disk.take_space()

    def take_space(self) -> None:
        """Raise OSError for a write on a full disk."""
        if self.full_for:
            self.full_for -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _committing(self, write: Callable[..., None]) -> Callable[..., None]:
        def create_write_transaction(table: deltalake.DeltaTable, *arguments: Any, **options: Any) -> None:
            if self._is_another:
                write(table, *arguments, **options)
                return
            if self.is_dead:
                raise Killed
            if self.full_for:
                self.full_for -= 1
                raise OSError("Generic LocalFileSystem error: No space left on device (os error 28)")
            if self.lost_commits:
                self.lost_commits -= 1
                raise CommitFailedError("the commit failed")
            if self.interrupted:
                self.interrupted -= 1
                with another_process(), self.another_process():
                    self.interrupt()
            write(table, *arguments, **options)
            if self.lost_answers:
                self.lost_answers -= 1
                raise CommitFailedError("the answer to the commit was lost")

        return create_write_transaction

    def _finishing(self, finish: Callable[[Any], int]) -> Callable[[Any], int]:
        def finish_file(file: Any) -> int:
            if self.is_dead:
                raise Killed
            self.take_space()
            return finish(file)

        return finish_file
