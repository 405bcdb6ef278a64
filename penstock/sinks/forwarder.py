"""The process of one handler of a listener: ``python -m penstock.sinks.forwarder``, its task on standard input.

It reads the listener's log buffer independently of the log daemon and keeps an account of each message's fate. Crash:
a kill at any moment makes it deliver a batch again, but each message is counted once.
"""

from __future__ import annotations

from penstock.process.tuning import freeze_loaded_objects, tune

tune("forwarder")  # first, see penstock.process.tuning

import contextlib
import faulthandler
import json
import logging
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.config.keys.handlers import forwarded_handler
from penstock.counts import Counts, Name, Origin, prefix_with_bucket
from penstock.handover.dropped_frames import dropped
from penstock.handover.frames.frame import decode_frame, is_intact, read_frame_metadata
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.paths import hung_file, state_file
from penstock.handover.positions.accounts import (
    CORRUPT,
    DELIVERED,
    DROPPED,
    FAILED,
    TAKEN,
    Account,
    Accounts,
    lock_account,
)
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.handover.reader import FrameGroup, FrameReader
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Subscription
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure, starting
from penstock.records import BadBatch, concatenated
from penstock.sinks.handler import Delivered, Handler
from penstock.sinks.handler_factory import make_handler

GROUP_BYTES = 4 << 20
GROUP_FRAMES = 256
"""Limit for the frames whose metadata is read while the writer cannot advance this reader."""
MAX_ATTEMPTS = 3
"""Limit for deliveries of a batch that raise, and for deliveries of a batch that end the process."""
FIRST_RETRY_DELAY_S = 0.1
"""Delay before the first retry; it doubles with each retry."""
STATISTICS_INTERVAL_S = 0.5
_LOGGER = logging.getLogger(__name__)


class Forwarder(FrameReader):
    """The reader of ``listener`` that delivers to ``handler``, under the name ``name``. Owns the account's file."""

    def __init__(
        self,
        folder: Path,
        listener: str,
        name: str,
        handler: Handler,
        wake: int | None,
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(folder, listener, name, wake, GROUP_BYTES, GROUP_FRAMES)
        self._handler, self._timeout_s = handler, timeout_s
        self._accounts = Accounts(folder, listener, name, claim=True)
        self._account = self._accounts.read()
        self._statistics_written_at = 0.0
        self._heartbeat = Heartbeat()
        self._traceback_file: IO[bytes] | None = None
        if hasattr(handler, "on_wait"):
            # A slow broker is not a hung handler: the process beats while the handler waits within its own limit.
            handler.on_wait = self.write_statistics_if_due

    def close(self) -> None:
        """Close the account's file and the file for the stack of a hung handler. Call it after `run` has returned."""
        # The handler refers to this forwarder: without a close, both files stay open until a garbage collection.
        if hasattr(self._handler, "on_wait"):
            self._handler.on_wait = _do_nothing
        self._accounts.close()
        if self._traceback_file is not None:
            self._traceback_file.close()
            self._traceback_file = None

    def mark(self, position: ReaderPosition) -> int:
        account = self._account
        if position.floor <= account.done:  # fast path: the writer's counts are not read for each group
            return account.mark
        return account.reached_mark(position.floor, self._dropped(position)[0])

    def before_claim(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Enter the group into the account.

        Order: before the claim, after which the writer no longer counts these frames.
        """
        counts, total, shift = Counts(), group.mark, 0
        for metadata in _read_metadata(group.frames):
            accepted = metadata.origin.counts.get(Name.ACCEPTED, 0)
            unexplained = metadata.total - accepted - total if total != UNKNOWN else 0
            shift += min(unexplained, 0)  # a smaller total: the listener counts from 0 again
            counts.absorb(prefix_with_bucket(metadata.origin.bucket, {TAKEN: accepted, CORRUPT: max(unexplained, 0)}))
            total = metadata.total
        mark = total - sum(counts.values()) if total != UNKNOWN else UNKNOWN
        account, contents = self._account, counts.pruned()
        if account.base is None and mark != UNKNOWN:
            position.mark = mark
            account = account.start_route(position, self._dropped(position))
        self._begin_attempt(account.claim_frames(group.begin, group.end, (mark, total), contents, shift))
        position.mark = total

    def _begin_attempt(self, account: Account) -> None:
        """Write the account of a delivery that begins."""
        # Both copies in the file get the frames in progress, so that one damaged copy does not lose them.
        self._account = self._accounts.write(self._accounts.write(account).retry())

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """Bring the position up to the account, and deliver the batch that was interrupted again."""
        with position.lock():
            # The lock keeps the writer from advancing this reader while position, claim and account are compared.
            drops = self._dropped(position)
            route = self._current_route(position, drops)
            account = route.resume(position, drops)
            interrupted = account.in_flight
            if lost := sum(account.fates.values()) - sum(route.fates.values()):
                text = "listener %r: the fates of %d messages are lost: they count as corrupt"
                _LOGGER.error(text, self.listener, lost)
            if account != self._account:
                account = self._account = self._accounts.write(account)
            if not interrupted:
                position.claim = max(position.stored, account.done)
            if account.done > position.position:
                position.position = account.done
        if interrupted:
            self._retry_interrupted(path, position)

    def _current_route(self, position: ReaderPosition, drops: tuple[int, Mapping[str, int]]) -> Account:
        """Return the account with its route.

        A new route is started; the route of a handler that was removed and is configured again is resumed.
        """
        account = self._account
        if account.base is None:
            if position.claim > position.position:  # the account of claimed frames is lost: deliver them again
                position.mark = UNKNOWN
            return account.start_route(position, drops) if position.mark != UNKNOWN else account
        return account.resume_route(position.mark, position.stored) if account.left else account

    def _dropped(self, position: ReaderPosition) -> tuple[int, Mapping[str, int]]:
        """Return the total at the floor, and counts of the messages that the writer dropped for this handler."""
        with contextlib.closing(StatePage(state_file(self.folder, self.listener))) as page:
            return dropped(page, self.reader, position.floor)

    def _retry_interrupted(self, path: Path, position: ReaderPosition) -> None:
        account = self._account
        group = _reread_group(path, account)
        if group is None or account.attempts >= MAX_ATTEMPTS:
            reason = "have left the log buffer" if group is None else f"ended its process {account.attempts} times"
            _LOGGER.error("messages that the handler had not finished %s: they are counted as failed", reason)
            self._finish(account.fail(), position)
            return
        _LOGGER.warning("the handler %s; it gets the batch again", self._describe_end())
        self._begin_attempt(account)
        self.handle(group, position)

    def _describe_end(self) -> str:
        """Describe how the process ended."""
        path = hung_file(self.folder, self.listener, self.reader)
        if not path.exists() or not path.stat().st_size:
            return "ended over a batch"
        renamed = path.rename(path.with_suffix(".hung.last"))
        return f"took longer than {self._timeout_s:g} s for a batch (its stack is in {renamed})"

    def _finish(self, account: Account, position: ReaderPosition) -> None:
        self._account = self._accounts.write(account)
        # Order: the account before the position. Crash: in between, `resume` moves the position up to the account.
        position.mark, position.position = account.mark, account.done

    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Deliver the group's batches, and count a fate for each message."""
        fates = Counts({name: n for name, n in self._account.taken.items() if name.endswith(f"@{CORRUPT}")})
        for batch, origin in self._batches(group, fates):
            outcome = self._deliver(batch, origin)
            counts = {DELIVERED: outcome.delivered, FAILED: outcome.failed, DROPPED: outcome.dropped}
            fates.absorb(prefix_with_bucket(origin.bucket, counts))
        self._finish(self._account.finish(fates), position)
        self.write_statistics_if_due()

    def _batches(self, group: FrameGroup, fates: Counts) -> Iterator[tuple[pa.RecordBatch, Origin]]:
        """Yield the messages of the group, joined by minute; count damaged frames in ``fates``."""
        parts: list[tuple[pa.RecordBatch, Origin]] = []
        for frame in group.frames:
            try:
                body, metadata = decode_frame(frame.data)
            except BadBatch as error:
                _LOGGER.error("the frame at position %d cannot be read: %s", frame.begin, error)
                # Only the body is damaged: the metadata was counted in before_claim. If it is damaged too, the totals
                # of the next frame cover these messages.
                for metadata in _read_metadata([frame]):
                    fates.absorb(
                        prefix_with_bucket(metadata.origin.bucket, {CORRUPT: metadata.origin.counts[Name.ACCEPTED]})
                    )
                continue
            if parts and parts[0][1].bucket != metadata.origin.bucket:
                yield _join(parts)
                parts = []
            if body.num_rows:
                parts.append((body, metadata.origin))
        if parts:
            yield _join(parts)

    def _deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Deliver a batch, with retries if the handler raises.

        The process ends if the handler exceeds the time limit.
        """
        for attempt in range(MAX_ATTEMPTS):
            try:
                with self._limit_time():
                    return _account_for_all(self._handler.deliver(batch, origin), batch.num_rows)
            except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
                _LOGGER.warning("the handler raised %s: %s", type(error).__name__, error)
                if attempt + 1 < MAX_ATTEMPTS:
                    time.sleep(FIRST_RETRY_DELAY_S * 2**attempt)
        return Delivered(0, failed=batch.num_rows)

    @contextlib.contextmanager
    def _limit_time(self) -> Iterator[None]:
        if self._traceback_file is None:
            self._traceback_file = hung_file(self.folder, self.listener, self.reader).open("wb")
        # A handler may hang in C code, where no Python signal handler runs; faulthandler's thread can still end the
        # process.
        faulthandler.dump_traceback_later(self._timeout_s, exit=True, file=self._traceback_file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def idle(self) -> None:
        self.write_statistics_if_due()

    def write_statistics_if_due(self) -> None:
        """Write the handler's statistics at most every ``STATISTICS_INTERVAL_S``."""
        now = time.monotonic()
        if now - self._statistics_written_at < STATISTICS_INTERVAL_S:
            return
        self._statistics_written_at = now
        stat = getattr(self._handler, "stat", dict)
        totals = Counts()
        for name, count in self._account.fates.items():
            totals[name.rpartition("@")[2]] += count
        self._accounts.write_statistics({**stat(), **totals.pruned(), **self._heartbeat.beat()})


def _do_nothing() -> None:
    """Take the place of a closed forwarder's callback."""


def _read_metadata(frames: Iterable[Frame]) -> Iterator[FrameMetadata]:
    """Yield the metadata of intact frames. The total in the next intact frame covers the messages of damaged frames."""
    for frame in frames:
        with contextlib.suppress(BadBatch):
            if is_intact(frame.data):
                yield read_frame_metadata(frame.data)


def _join(parts: list[tuple[pa.RecordBatch, Origin]]) -> tuple[pa.RecordBatch, Origin]:
    bodies, origins = zip(*parts, strict=True)
    first, last = origins[0], origins[-1]
    batch = concatenated(bodies)
    counts = {str(Name.ACCEPTED): batch.num_rows}
    return batch, Origin(first.source, first.bucket, first.first, last.last, first.codec, counts)


def _account_for_all(delivered: Delivered, rows: int) -> Delivered:
    """Count messages that the handler did not report as failed. Raises ValueError for impossible counts."""
    reported = delivered.delivered + delivered.failed + delivered.dropped
    if reported > rows or min(delivered.delivered, delivered.failed, delivered.dropped) < 0:
        raise ValueError(f"it reports {reported} messages of {rows}")
    return Delivered(delivered.delivered, delivered.failed + rows - reported, delivered.dropped)


def _reread_group(path: Path, account: Account) -> FrameGroup | None:
    """Read the interrupted group again; None if a part of it has left the log buffer."""
    frames: list[Frame] = []
    try:
        with Subscription(path, account.done, in_order=True) as subscription:
            while subscription.position < account.end:
                previous = subscription.position
                # The frames are copied: the writer may reuse their term during the delivery.
                frames += [f._replace(data=memoryview(bytes(f.data))) for f in subscription.poll(limit_frames=1)]
                if subscription.position == previous:
                    return None
            begin, end = account.done, subscription.position
    except Lapped:
        return None
    group = FrameGroup(frames, begin, end, account.mark)
    accepted = sum(metadata.origin.counts.get(Name.ACCEPTED, 0) for metadata in _read_metadata(frames))
    return group if end == account.end and accepted == account.messages else None


def main() -> None:
    """Run the task on standard input."""
    die_with_parent()
    task: dict[str, Any] = json.load(sys.stdin)
    handler = forwarded_handler(task["handler"])
    configure(f"forwarder {task['listener']} {handler.label}")
    folder = Path(task["folder"])
    with starting(f"cannot start in {folder}"):
        # Order: the lock before the account is read, because a predecessor may still be ending.
        lock = lock_account(folder, task["listener"], handler.label)
        instance = make_handler(task["listener"], handler)
        timeout_s = max(handler.timeout, getattr(instance, "patience", 0.0))
        forwarder = Forwarder(folder, task["listener"], handler.label, instance, task["wake"], timeout_s)
    signal.signal(signal.SIGTERM, lambda *_: forwarder.stop())
    freeze_loaded_objects()
    forwarder.run()
    close = getattr(instance, "close", None)
    if close:
        close()
    # Order: after the handler, which writes statistics while it waits for its last deliveries.
    forwarder.close()
    lock.close()


if __name__ == "__main__":
    main()
