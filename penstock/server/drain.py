"""From a listener's log buffer into its topic: frames in, synced batches out, then the position.

Counts go with their frame; those of a frame without messages go to the internal topic ``_receipts``. What is
stored already (a frame polled again after a crash) is skipped by the topics themselves.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name, Origin
from penstock.ingest.files import LOG, buffer_file, position_file
from penstock.ingest.frames import Receipt, decode_frame
from penstock.log import Log, LogError
from penstock.logbuffer.errors import Lapped
from penstock.logbuffer.mapped import Frame
from penstock.logbuffer.position import ReaderPosition
from penstock.logbuffer.subscription import Subscription
from penstock.records import EMPTY_BODY, BadBatch

RECEIPTS = "_receipts"
GROUP_BYTES = 8 << 20
"""Bytes of frames stored as one group."""
IDLE = 0.2
"""Seconds after which a reader looks even when nobody woke it."""
RETRY = 0.1
SAY_AGAIN = 60.0
"""Seconds until the same complaint is made again."""


class Drain(threading.Thread):
    """Empties one listener's log buffer. ``say`` gets a line for people when something is wrong."""

    def __init__(self, listener: ListenerConfig, folder: Path, log: Log, wake: int, say: Callable[[str], None]) -> None:
        super().__init__(name=f"drain-{listener.name}", daemon=True)
        self._listener, self._folder, self._log, self._wake, self._tell = listener, folder, log, wake, say
        self._told: dict[str, float] = {}
        self._topic = next(h.topic for h in listener.handlers if h.type == LOG)
        self._stopping = threading.Event()
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)

    def stop(self) -> None:
        """Take what is there, then end."""
        self._stopping.set()

    def run(self) -> None:
        """Until stopped, and then until the buffer is empty. Whatever goes wrong is said, and tried again."""
        while not self._finished():
            self._stopping.wait(RETRY)

    def _finished(self) -> bool:
        paths = buffer_file(self._folder, self._listener.name), position_file(self._folder, self._listener.name, LOG)
        if not all(path.exists() for path in paths):
            return self._stopping.is_set()
        try:
            with ReaderPosition(paths[1]) as position:
                return self._follow(paths[0], position)
        except Exception as error:  # the receiver may just be mending a file; nothing is lost by trying again
            self._say(f"{error}; its messages wait in the log buffer")
            return self._stopping.is_set()

    def _say(self, line: str) -> None:
        """Tell people, but not the same thing again and again."""
        now = time.monotonic()
        self._told = {told: at for told, at in self._told.items() if now - at < SAY_AGAIN}
        if line not in self._told:
            self._told[line] = now
            self._tell(f"listener {self._listener.name!r}: {line}")

    def _follow(self, path: Path, position: ReaderPosition) -> bool:
        """Read one log buffer file until it is empty and this is to stop (True), or another stands in its place."""
        with Subscription(path, position.position) as subscription:
            while True:
                last_look = self._stopping.is_set()
                if self._drain(subscription, position):
                    continue
                if last_look:
                    return True
                if subscription.replaced and path.exists():
                    return False
                self._wait()

    def _wait(self) -> None:
        if self._poll.poll(IDLE * 1000):
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:
                return

    def _drain(self, subscription: Subscription, position: ReaderPosition) -> bool:
        """Store one group of frames; whether there was one. While it lasts nobody moves this reader on."""
        with position.lock():
            if position.moved_on:  # the writer accounts for what is missed
                position.mark = 0
            before = subscription.position = position.position
            frames = self._poll_frames(subscription)
            position.claim = subscription.position
            try:
                self._store(frames, position)
            except LogError:
                position.claim = position.position  # what was not stored may be missed
                raise
            position.position = subscription.position
            return subscription.position > before

    def _poll_frames(self, subscription: Subscription) -> list[Frame]:
        try:
            return subscription.poll(GROUP_BYTES)
        except Lapped as error:
            self._say(f"{error}; the total says how many messages that were")
            subscription.position = subscription.oldest() or subscription.position
            return []

    def _store(self, frames: list[Frame], position: ReaderPosition) -> None:
        """Append the frames' batches, wait until they are synced, and move on behind each that is."""
        appended: list[tuple[int, int, Future[Any]]] = []
        mark = position.mark
        try:
            for frame in frames:
                try:
                    body, receipt = decode_frame(frame.data)
                except BadBatch as error:
                    self._say(f"a frame at {frame.begin} cannot be read: {error}")
                    continue
                origin = self._origin(frame, receipt, mark)
                mark = max(mark, receipt.total)
                appended.append((frame.end, mark, self._append(body, origin)))
        finally:
            wait([future for _, _, future in appended])  # the batches lie in the buffer: all, before anything moves
        for end, total, future in appended:
            future.result()
            position.mark, position.position = total, end

    def _origin(self, frame: Frame, receipt: Receipt, mark: int) -> Origin:
        """The batch's origin; messages of frames between the last one and this one were corrupt."""
        counts = Counts(receipt.origin.counts)
        lost = receipt.total - counts[Name.ACCEPTED] - mark if mark else 0
        if lost > 0:
            counts.absorb({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        buffer = f"{self._listener.name}.{receipt.epoch}"
        return replace(receipt.origin, counts=counts, buffer=buffer, begin=frame.begin, end=frame.end)

    def _append(self, body: pa.RecordBatch, origin: Origin) -> Future[Any]:
        body, counts = _without_large(body, self._log.settings(self._topic).message_size_limit, origin.counts)
        topic = self._log.topic(self._topic, create=True) if body.num_rows else None
        topic = topic or self._log.topic(RECEIPTS, create=True, internal=True)
        return topic.append(body if body.num_rows else EMPTY_BODY, replace(origin, counts=counts))


def _without_large(body: pa.RecordBatch, limit: int, counts: Any) -> tuple[pa.RecordBatch, Any]:
    """Leave out messages that the topic does not take, counted as failed."""
    if not body.num_rows or body.column("payload").nbytes <= limit:
        return body, counts
    fits = pc.less_equal(pc.fill_null(pc.binary_length(body.column("payload")), 0), limit)
    kept = body.filter(fits)
    failed = {f"{Name.HANDLER_FAILED}{LOG}": body.num_rows - kept.num_rows}
    summed = Counts(counts)
    summed.absorb(failed)
    return kept, summed
