"""Bugs that were mended in the past, or would be likely, put back one by one: the simulation must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.files import file_system
from penstock.handover.drain import Drain
from penstock.ledger.ledger import Ledger
from penstock.log.commit.deduplication import Deduplicator
from penstock.log.commit.writer import Writer
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment import Segment
from penstock.log.transactions import atomic_commit
from penstock.testing import CrashingFileSystem

Bug = Callable[[pytest.MonkeyPatch], None]


def answer_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Answer appends whose data is not synced."""
    patch.setattr(Segment, "_sync_data", lambda self: None)


def rename_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Replace a file by one whose content is not synced."""
    write = file_system._write
    patch.setattr(file_system, "_write", lambda fs, path, content, synced: write(fs, path, content, False))


def no_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """Leave entries of folders unsynced."""
    patch.setattr(CrashingFileSystem, "sync_directory", lambda self, path: None)


def keep_refused_rows(patch: pytest.MonkeyPatch) -> None:
    """Keep rows whose sync failed: their senders send them again."""
    patch.setattr(Writer, "roll_back", lambda self, before: None)


def forget_late_recovery(patch: pytest.MonkeyPatch) -> None:
    """Leave rows out of the balance that a start on a full disk could not recover."""
    patch.setattr(Ledger, "_recovered", lambda self, topic, end: None)


def forget_doubtful_producers(patch: pytest.MonkeyPatch) -> None:
    """Forget all producers where one batch is damaged: a retry of a whole batch is stored again."""
    patch.setattr(Producers, "doubt", Producers.clear)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """Forget all producers at a start."""
    patch.setattr(Producers, "enter_all", lambda self, entries: None)


def pass_failed_frame(patch: pytest.MonkeyPatch) -> None:
    """Store later frames after a failed one, whose retry is then skipped as stored."""
    patch.setattr(Deduplicator, "_admits", lambda self, append: True)


def move_position_first(patch: pytest.MonkeyPatch) -> None:
    """Move the position of the log past frames before they are synced."""
    store = Drain._store

    def move_and_store(self: Drain, group: Any, position: Any) -> None:
        position.position = group.end
        store(self, group, position)

    patch.setattr(Drain, "_store", move_and_store)


def forget_frame_positions(patch: pytest.MonkeyPatch) -> None:
    """Forget at a start which frames are stored: they are stored again."""
    patch.setattr(Recovery, "_advance_position", lambda self, origin: None)


def keep_half_transactions(patch: pytest.MonkeyPatch) -> None:
    """Keep the rows of a transaction that was not decided when the writer died."""
    patch.setattr(atomic_commit, "_cut", lambda fs, path, length: None)


BUGS: dict[Bug, int] = {
    answer_before_sync: 0,
    rename_before_sync: 0,
    no_folder_sync: 0,
    keep_refused_rows: 0,
    forget_late_recovery: 0,
    forget_doubtful_producers: 0,
    forget_producers: 0,
    pass_failed_frame: 0,
    move_position_first: 0,
    forget_frame_positions: 0,
    keep_half_transactions: 0,
}
"""The first seed that notices each bug."""
