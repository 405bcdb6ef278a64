"""Bugs that were mended in the past, or would be likely, put back one by one: the simulation must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.handover.drain import Drain
from penstock.ledger.ledger import Ledger
from penstock.log.commit.writer import Writer
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment import Segment
from penstock.testing import CrashingFileSystem

Bug = Callable[[pytest.MonkeyPatch], None]


def answer_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Answer appends whose data is not synced."""
    patch.setattr(Segment, "_sync_data", lambda self: None)


def no_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """Leave entries of folders unsynced."""
    patch.setattr(CrashingFileSystem, "sync_directory", lambda self, path: None)


def keep_refused_rows(patch: pytest.MonkeyPatch) -> None:
    """Keep rows whose sync failed: their senders send them again."""
    patch.setattr(Writer, "roll_back", lambda self, before: None)


def forget_late_recovery(patch: pytest.MonkeyPatch) -> None:
    """Leave rows out of the balance that a start on a full disk could not recover."""
    patch.setattr(Ledger, "_recovered", lambda self, topic, end: None)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """Forget all producers at a start."""
    patch.setattr(Producers, "enter_all", lambda self, entries: None)


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


BUGS: dict[Bug, int] = {
    answer_before_sync: 3,
    no_folder_sync: 1,
    keep_refused_rows: 6,
    forget_late_recovery: 11,
    forget_producers: 1,
    move_position_first: 2,
    forget_frame_positions: 3,
}
"""The first seed that notices each bug."""
