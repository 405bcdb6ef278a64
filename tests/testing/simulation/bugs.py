"""Bugs that were mended in the past, or would be likely, put back one by one: the simulation must notice each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.counts import Counts
from penstock.handover import writer
from penstock.handover.buffer import HandlerPosition
from penstock.handover.drain.drain import Drain
from penstock.handover.missed_frames import MissedCounts, missed_counts
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.reader import FrameReader
from penstock.handover.writer import FrameWriter
from penstock.ledger.ledger import Ledger
from penstock.log import Topic
from penstock.log.commit.writer import Writer
from penstock.log.read.segment_view import SegmentView
from penstock.log.store import recovery
from penstock.log.store.producers import Producers
from penstock.log.store.recovery import Recovery
from penstock.log.store.segment import Segment
from penstock.logbuffer import Frame, Subscription
from penstock.server.reading.entry_pages import Page, page_of
from penstock.server.reading.query import Query
from penstock.testing import CrashingFileSystem
from penstock.testing.simulation import readers, run
from tests.testing.simulation.simulation_checks import Bug


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
    patch.setattr(recovery, "advance_positions", lambda positions, origin: None)


def skip_groups_of_dropping_listener(patch: pytest.MonkeyPatch) -> None:
    """Move past each third group of frames of the listener that drops, and neither store nor count them."""
    store = Drain._store
    groups = itertools.count(1)

    def store_others(self: Drain, group: Any, position: Any) -> None:
        if self.listener != "udp" or next(groups) % 3:
            store(self, group, position)

    patch.setattr(Drain, "_store", store_others)


def forget_dropped_frames(patch: pytest.MonkeyPatch) -> None:
    """Move the log past frames of the listener that drops, and count none of their messages."""

    def without_counts(frames: Sequence[Frame], handler: HandlerPosition, before: int, _: Any) -> Any:
        return MissedCounts(Counts(), missed_counts(frames, handler, before).mark, [])

    patch.setattr(writer, "missed_counts", without_counts)


def drop_first_batch_of_stream_page(patch: pytest.MonkeyPatch) -> None:
    """Leave the first batch out of each page that a stream takes from memory."""

    def page_without_first(batches: Sequence[pa.RecordBatch], offset: int, query: Query) -> Page:
        page = page_of(batches, offset, query)
        return replace(page, batches=page.batches[1:])

    patch.setattr(readers, "page_of", page_without_first)


def expire_early(patch: pytest.MonkeyPatch) -> None:
    """Drop rows that are half a second old, not only rows older than ``stale_after``."""
    patch.setitem(run.OVERRIDES, run.EXPIRING, replace(run.OVERRIDES[run.EXPIRING], stale_after=0.5))


def judge_posts_before_recovery(patch: pytest.MonkeyPatch) -> None:
    """Refuse posts about rows of a topic that is not recovered yet."""
    end = Ledger._end

    def end_without_recovery(self: Ledger, topic: str) -> int:
        with patch.context() as inner:
            inner.setattr(Topic, "recover", lambda self: None)
            return end(self, topic)

    patch.setattr(Ledger, "_end", end_without_recovery)


def leave_rows_of_killed_writer_unsynced(patch: pytest.MonkeyPatch) -> None:
    """Name rows in the index that a killed writer may not have synced."""
    patch.setattr(Recovery, "_rewrite_unsynced", lambda self, files, length: None)


def pass_saved_frames(patch: pytest.MonkeyPatch) -> None:
    """Read on behind frames that the receiver has saved since the drain looked for saved ones."""
    read_group = FrameReader._read_group

    def read_on(self: FrameReader, subscription: Subscription, position: ReaderPosition) -> bool | None:
        with patch.context() as inner:
            inner.setattr(Drain, "must_resume", lambda self, position: False)
            return read_group(self, subscription, position)

    patch.setattr(FrameReader, "_read_group", read_on)


def forget_floors_after_power_cut(patch: pytest.MonkeyPatch) -> None:
    """Store frames again that are counted as dropped, because a power cut took the floor."""
    patch.setattr(FrameWriter, "_restore_floors", lambda self, page: None)


def drop_frames_of_uncertain_position(patch: pytest.MonkeyPatch) -> None:
    """Drop frames that a power failure made uncertain, because it took the position of the log: they may be stored."""
    knows_its_frames = FrameWriter._knows_its_frames

    def knows_all_but_claimed(self: FrameWriter, reader: HandlerPosition) -> bool:
        with patch.context() as inner:
            inner.setattr(self, "_restarted_at", 0)
            return knows_its_frames(self, reader)

    patch.setattr(FrameWriter, "_knows_its_frames", knows_all_but_claimed)


def show_batches_behind_synced_length(patch: pytest.MonkeyPatch) -> None:
    """Show batches that the index names behind the synced length, after a power cut that tore the index."""
    load_records = SegmentView._load_records

    def load_all_records(self: SegmentView, length: int, synced: int | None) -> None:
        load_records(self, length, None)

    patch.setattr(SegmentView, "_load_records", load_all_records)


BUGS: dict[Bug, int] = {
    answer_before_sync: 3,
    no_folder_sync: 1,
    keep_refused_rows: 15,
    forget_late_recovery: 221,
    judge_posts_before_recovery: 100181,
    forget_producers: 1,
    move_position_first: 4,
    forget_frame_positions: 6,
    skip_groups_of_dropping_listener: 9,
    forget_dropped_frames: 9,
    drop_first_batch_of_stream_page: 1,
    expire_early: 2,
    leave_rows_of_killed_writer_unsynced: 161,
    pass_saved_frames: 40,
    forget_floors_after_power_cut: 9000037,
    drop_frames_of_uncertain_position: 244,
    show_batches_behind_synced_length: 797,
}
"""A seed that notices each bug."""
