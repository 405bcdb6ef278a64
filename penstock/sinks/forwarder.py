"""One handler of one listener as a process: ``python -m penstock.sinks.forwarder``, its task on standard input.

It reads the listener's log buffer as the log daemon does, at its own pace, and keeps an account of what became
of each message. Killed at any moment it gives the handler a batch again, and counts it once.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.config.keys.handlers import forwarded_handler
from penstock.counts import Counts, Name, Origin, elsewhere
from penstock.handover.accounts import CORRUPT, DELIVERED, DROPPED, FAILED, TAKEN, Account, Accounts, lock_account
from penstock.handover.dropped_frames import dropped
from penstock.handover.frame import decode_frame, is_intact, read_frame_metadata
from penstock.handover.frame_metadata import FrameMetadata
from penstock.handover.paths import hung_file, state_file
from penstock.handover.position import UNKNOWN, ReaderPosition
from penstock.handover.reader import FrameGroup, FrameReader
from penstock.handover.state_page import StatePage
from penstock.logbuffer import Frame, Lapped, Subscription
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure, starting
from penstock.records import BadBatch, concatenated
from penstock.sinks.handler import Delivered, Handler
from penstock.sinks.handler_factory import make

GROUP_BYTES = 4 << 20
GROUP_FRAMES = 256
"""Frames whose receipts are read while the writer cannot move this reader on."""
TRIES = 3
"""How often a batch is given to the handler while it raises, and how often after its process died of it."""
FIRST_PAUSE = 0.1
"""Seconds between two tries, doubled each time."""
STATISTICS_EVERY = 0.5
_LOGGER = logging.getLogger(__name__)


class Forwarder(FrameReader):
    """Gives ``handler`` what comes by ``listener``, under the name ``name``."""

    def __init__(
        self,
        folder: Path,
        listener: str,
        name: str,
        handler: Handler,
        wake: int | None,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(folder, listener, name, wake, GROUP_BYTES, GROUP_FRAMES)
        self._handler, self._timeout = handler, timeout
        self._accounts = Accounts(folder, listener, name)
        self._account = self._accounts.read()
        self._left_at = 0.0
        self._hung: IO[bytes] | None = None

    # Place and account

    def mark(self, position: ReaderPosition) -> int:
        account = self._account
        moved_on = position.floor > account.done and account.mark != UNKNOWN
        return max(account.mark, position.floor_mark) if moved_on else account.mark

    def before_claim(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Enter what is about to be in the handler's hands, before the writer can know of it."""
        counts, total, shift = Counts(), group.mark, 0
        for receipt in _receipts(group.frames):
            own = receipt.origin.counts.get(Name.ACCEPTED, 0)
            grown = receipt.total - own - total if total != UNKNOWN else 0
            shift += min(grown, 0)  # the listener's total begins anew
            counts.absorb(elsewhere(receipt.origin.bucket, {TAKEN: own, CORRUPT: max(grown, 0)}))
            total = receipt.total
        mark = total - sum(counts.values()) if total != UNKNOWN else UNKNOWN
        account, taken = self._account, counts.pruned()
        if account.base == UNKNOWN and mark != UNKNOWN:
            position.mark = mark
            account = account.start_route(position, self._missed(position))
        self._try(account.claim_frames(group.begin, group.end, (mark, total), taken, shift))
        position.mark = total

    def _try(self, account: Account) -> None:
        """Written twice, so that what is in the handler's hands is known also when one text is damaged."""
        self._account = self._accounts.write(self._accounts.write(account).retry())

    def resume(self, path: Path, position: ReaderPosition) -> None:
        """Bring the place up to the account, and give the handler again what was in its hands."""
        with position.lock():
            account = self._arrived(position)
            interrupted = account.in_hand and position.claim == account.end
            if account.in_hand and not interrupted:
                account = account.withdraw()
            if account != self._account:
                account = self._account = self._accounts.write(account)
            if not interrupted:
                position.claim = max(position.stored, account.done)
            if account.done > position.position:
                position.position = account.done
        if interrupted:
            self._again(path, position)

    def _arrived(self, position: ReaderPosition) -> Account:
        """The account, where the route begins, or begins again."""
        account = self._account
        if account.base == UNKNOWN:
            if position.claim > position.position:  # what is in its hands is said nowhere any more: it comes again
                position.mark = UNKNOWN
            return account.start_route(position, self._missed(position)) if position.mark != UNKNOWN else account
        return account.resume_route(position.mark, position.stored) if account.left else account

    def _missed(self, position: ReaderPosition) -> int:
        """Messages that the writer has dropped for this handler."""
        page = StatePage(state_file(self.folder, self.listener))
        try:
            return sum(dropped(page, self.reader, position.floor)[1].values())
        finally:
            page.close()

    def _again(self, path: Path, position: ReaderPosition) -> None:
        account = self._account
        group = _read_again(path, account)
        if group is None or account.attempts >= TRIES:
            why = "are no longer there" if group is None else "ended its process each time"
            _LOGGER.error("messages that the handler had not finished %s: they are counted as failed", why)
            self._finish(account.fail(), position)
            return
        _LOGGER.warning("the handler %s; it gets the batch again", self._end())
        self._try(account)
        self.handle(group, position)

    def _end(self) -> str:
        """How its process ended."""
        hung = hung_file(self.folder, self.listener, self.reader)
        if not hung.exists() or not hung.stat().st_size:
            return "ended over a batch"
        kept = hung.rename(hung.with_suffix(".hung.last"))
        return f"took longer than {self._timeout:g} s for a batch (where it stood is in {kept})"

    def _finish(self, account: Account, position: ReaderPosition) -> None:
        self._account = self._accounts.write(account)
        position.mark, position.position = account.mark, account.done

    # Delivery

    def handle(self, group: FrameGroup, position: ReaderPosition) -> None:
        """Have the handler take the group's batches; each message has a fate then."""
        fates = Counts({name: n for name, n in self._account.taken.items() if name.endswith(f"@{CORRUPT}")})
        for batch, origin in self._batches(group, fates):
            outcome = self._delivered(batch, origin)
            counts = {DELIVERED: outcome.delivered, FAILED: outcome.failed, DROPPED: outcome.dropped}
            fates.absorb(elsewhere(origin.bucket, counts))
        self._finish(self._account.finish(fates), position)
        self.leave_statistics()

    def _batches(self, group: FrameGroup, fates: Counts) -> Iterator[tuple[pa.RecordBatch, Origin]]:
        """The messages of the group, those of one minute together; those that cannot be read are entered."""
        waiting: list[tuple[pa.RecordBatch, Origin]] = []
        for frame in group.frames:
            try:
                body, receipt = decode_frame(frame.data)
            except BadBatch as error:
                _LOGGER.error("a frame at %d cannot be read: %s", frame.begin, error)
                for receipt in _receipts([frame]):  # it was taken by that, and only its body is no good
                    fates.absorb(elsewhere(receipt.origin.bucket, {CORRUPT: receipt.origin.counts[Name.ACCEPTED]}))
                continue
            if waiting and waiting[0][1].bucket != receipt.origin.bucket:
                yield _joined(waiting)
                waiting = []
            if body.num_rows:
                waiting.append((body, receipt.origin))
        if waiting:
            yield _joined(waiting)

    def _delivered(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """One batch to the handler, a few times if it raises; its process ends if it takes too long."""
        for attempt in range(TRIES):
            try:
                with self._limited():
                    return _whole(self._handler.deliver(batch, origin), batch.num_rows)
            except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
                _LOGGER.warning("the handler raised %s: %s", type(error).__name__, error)
                if attempt + 1 < TRIES:
                    time.sleep(FIRST_PAUSE * 2**attempt)
        return Delivered(0, failed=batch.num_rows)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        if self._hung is None:
            self._hung = hung_file(self.folder, self.listener, self.reader).open("wb")
        faulthandler.dump_traceback_later(self._timeout, exit=True, file=self._hung)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    # Statistics

    def idle(self) -> None:
        self.leave_statistics()

    def leave_statistics(self) -> None:
        """Leaves the handler's statistics, now and then."""
        now = time.monotonic()
        if now - self._left_at < STATISTICS_EVERY:
            return
        self._left_at = now
        stat = getattr(self._handler, "stat", dict)
        totals = Counts()
        for name, count in self._account.fates.items():
            totals[name.rpartition("@")[2]] += count
        self._accounts.write_statistics({**stat(), **totals.pruned()})


def _receipts(frames: Iterable[Frame]) -> Iterator[FrameMetadata]:
    """Those of frames that are as they were written: of others the next one's total says what they held."""
    for frame in frames:
        with contextlib.suppress(BadBatch):
            if is_intact(frame.data):
                yield read_frame_metadata(frame.data)


def _joined(parts: list[tuple[pa.RecordBatch, Origin]]) -> tuple[pa.RecordBatch, Origin]:
    bodies, origins = zip(*parts, strict=True)
    first, last = origins[0], origins[-1]
    batch = concatenated(bodies)
    counts = {str(Name.ACCEPTED): batch.num_rows}
    return batch, Origin(first.source, first.bucket, first.first, last.last, first.codec, counts)


def _whole(delivered: Delivered, rows: int) -> Delivered:
    """What a handler does not account for has failed."""
    known = delivered.delivered + delivered.failed + delivered.dropped
    if known > rows or min(delivered.delivered, delivered.failed, delivered.dropped) < 0:
        raise ValueError(f"it accounts for {known} messages of {rows}")
    return Delivered(delivered.delivered, delivered.failed + rows - known, delivered.dropped)


def _read_again(path: Path, account: Account) -> FrameGroup | None:
    """The group that was in the handler's hands, if all of it is still in the log buffer."""
    frames: list[Frame] = []
    try:
        with Subscription(path, account.done, in_order=True) as subscription:
            while subscription.position < account.end:
                before = subscription.position
                frames += [f._replace(data=memoryview(bytes(f.data))) for f in subscription.poll(limit_frames=1)]
                if subscription.position == before:
                    return None
            begin, end = account.done, subscription.position
    except Lapped:
        return None
    group = FrameGroup(frames, begin, end, account.mark)
    held = sum(receipt.origin.counts.get(Name.ACCEPTED, 0) for receipt in _receipts(frames))
    return group if end == account.end and held == account.messages else None


def main() -> None:
    """Run the task that stands on standard input."""
    die_with_parent()
    task: dict[str, Any] = json.load(sys.stdin)
    handler = forwarded_handler(task["handler"])
    configure(f"forwarder {task['listener']} {handler.label}")
    folder = Path(task["folder"])
    with starting(f"cannot start in {folder}"):
        owned = lock_account(folder, task["listener"], handler.label)
        made = make(task["listener"], handler)
        timeout = max(handler.timeout, getattr(made, "patience", 0.0))
        forwarder = Forwarder(folder, task["listener"], handler.label, made, task["wake"], timeout)
    signal.signal(signal.SIGTERM, lambda *_: forwarder.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    freeze_loaded_objects()
    forwarder.run()
    close = getattr(made, "close", None)
    if close:
        close()
    owned.close()


if __name__ == "__main__":
    main()
