"""Commands on the entries of the log: produce, consume."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from queue import Empty, Queue
from typing import Annotated

import typer

from penstock.cli.common import fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon
from penstock.cli.progress import Progress
from penstock.client import AtCursor, ClientError, Entry, Log, Page, Start, Unsupported
from penstock.client.log.connection import RETRY_FOR
from penstock.config import parse_time
from penstock.log.read.filters import BadFilter, Filter
from penstock.process.terminal import visible_bytes
from penstock.slogd.columns.entries import Row
from penstock.slogd.json.entry_documents import dumps, row_document

BATCH = 100
"""Lines that are sent as one request."""
BATCH_SECONDS = 1.0
"""A line waits no longer than this for others."""
COMMIT_EVERY = 1.0
"""Seconds between two commits of a cursor, and at the end."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d)")


class Format(StrEnum):
    """How an entry is printed: a line for people, JSON as the HTTP API has it, or the bare payload."""

    TEXT = "text"
    JSON = "json"
    PAYLOAD = "payload"


def produce(
    where: Daemon,
    topic: Annotated[str, typer.Argument(help="Topic to append to.", autocompletion=topic_names)],
    annotate: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Annotate every message.")] = None,
) -> None:
    """Append the lines of standard input, in batches of 100 lines or one second."""
    annotations = parse_annotations(annotate or ())
    lines = Lines(_standard_input())
    count, interrupted = 0, False

    def stop(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the second time at once
        lines.stop()

    with where.opened() as log, Progress(f"appending to {topic}", shown=not sys.stdin.isatty()) as progress:
        signal.signal(signal.SIGINT, stop)
        try:
            for batch in lines.batches():
                count += len(log.append(topic, batch, annotations))
                progress.tell(f"{count:,} messages")
        finally:
            print(f"{count} messages appended to {topic}", file=sys.stderr)
    if interrupted:
        sys.exit(130)


def consume(
    where: Daemon,
    topic: Annotated[str, typer.Argument(help="Topic to read.", autocompletion=topic_names)],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="earliest, latest, an offset, a time, or how long ago (10m).",
            show_default="the cursor, else earliest",
        ),
    ] = None,
    match: Annotated[
        str | None, typer.Option("--filter", help="Only messages with such annotations: k:userid v:vip.*")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is appended.")] = False,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after so many; with latest, the last.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TEXT,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Go on where this cursor stands, and set it to what was printed.")
    ] = None,
) -> None:
    """Print the messages of a topic."""
    terminal = sys.stdout.isatty()
    begin = parse_start(start) if start else AtCursor(cursor) if cursor else "earliest"
    if match is not None:
        check_filter(match)
    with where.opened(math.inf if follow else RETRY_FOR) as log, _quiet_pipe():
        _check_end(log, topic, begin, follow)
        pages = consume_pages(log, topic, begin, count, follow, match)
        with _Place(log, topic, cursor) as place, Progress("reading", shown=not terminal) as progress:
            for page in pages:
                for entry in page.entries:
                    line = format_entry(entry, form)
                    sys.stdout.buffer.write((visible_bytes(line) if terminal else line) + b"\n")
                if follow or cursor:
                    sys.stdout.buffer.flush()
                place.reached(page.next)
                progress.tell(f"offset {page.next:,}")
        sys.stdout.buffer.flush()


def _check_end(log: Log, topic: str, start: Start, follow: bool) -> None:
    """Say so where an offset is beyond the end, and end unless it is waited for."""
    with contextlib.suppress(Unsupported):
        if isinstance(start, int) and start > (end := log.describe(topic)[0].end):
            beyond = f"offset {start} is beyond the end of {topic}, which is {end}"
            if not follow:
                fail(beyond)
            print(f"{beyond}: waiting for it", file=sys.stderr)


def _standard_input() -> Iterable[bytes]:
    """A reader of its own: Python dies at its end when a thread still waits in ``sys.stdin``."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer
    return open(descriptor, "rb", closefd=False)


class _Place:
    """Commits a cursor, where there is a name, behind what was printed: every second, and at the end in any case."""

    def __init__(self, log: Log, topic: str, name: str | None) -> None:
        self._log, self._topic, self._name = log, topic, name
        self._offset: int | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._failure: ClientError | None = None

    def reached(self, offset: int) -> None:
        """All before ``offset`` is printed. Raises ClientError where the cursor could not be committed."""
        self._offset = offset
        if self._failure is not None:
            raise self._failure

    def _commit(self) -> None:
        with self._lock:
            offset, self._offset = self._offset, None
            if self._name and offset is not None:
                self._log.commit_cursor(self._topic, self._name, offset)

    def _commit_from_time_to_time(self) -> None:
        try:
            while not self._ended.wait(COMMIT_EVERY):
                self._commit()
        except ClientError as error:
            self._failure = error

    def __enter__(self) -> _Place:
        if self._name:
            threading.Thread(target=self._commit_from_time_to_time, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        if not isinstance(error, ClientError):
            self._commit()


def parse_annotations(pairs: Sequence[str]) -> dict[str, str]:
    """``k=v`` pairs as a mapping. Raises typer.BadParameter."""
    parted = [pair.partition("=") for pair in pairs]
    if any(not name or not equals for name, equals, _ in parted):
        raise typer.BadParameter("write it as K=V", param_hint="--annotate")
    return {name: value for name, _, value in parted}


def parse_start(text: str) -> Start:
    """``earliest``, ``latest``, an offset, a time (ISO 8601, local where it names no zone) or a time span ago."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if _AGO.fullmatch(text):
            return datetime.now(UTC) - timedelta(seconds=float(str(parse_time(text))))
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        wrong = f"{text!r} is not earliest, latest, an offset, a time or how long ago (10m)"
        raise typer.BadParameter(wrong, param_hint="--from") from None


def check_filter(text: str) -> None:
    """End with what is wrong with a filter, and where."""
    try:
        Filter.parse(text)
    except BadFilter as error:
        fail(f"{error}\n{error.pointed}", 2)


class Lines:
    """Lines in batches, read by a thread of its own."""

    def __init__(self, lines: Iterable[bytes], size: int = BATCH, seconds: float = BATCH_SECONDS) -> None:
        self._size, self._seconds = size, seconds
        self._queue: Queue[bytes | None] = Queue(maxsize=10 * size)
        threading.Thread(target=self._feed, args=(lines,), daemon=True).start()

    def batches(self) -> Iterator[list[bytes]]:
        """Lists of at most ``size`` lines without their ends, none held back longer than ``seconds``."""
        while (line := self._queue.get()) is not None:
            batch, ended = self._collect(line, time.monotonic() + self._seconds)
            yield batch
            if ended:
                return

    def stop(self) -> None:
        """End with the lines that were read so far. From a signal handler, too."""
        # Not here: the thread that was interrupted may just hold the queue's lock.
        threading.Thread(target=self._queue.put, args=(None,), daemon=True).start()

    def _feed(self, lines: Iterable[bytes]) -> None:
        try:
            for line in lines:
                self._queue.put(line.removesuffix(b"\n").removesuffix(b"\r"))
        finally:
            self._queue.put(None)

    def _collect(self, first: bytes, deadline: float) -> tuple[list[bytes], bool]:
        batch = [first]
        while len(batch) < self._size:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return batch, False
            if line is None:
                return batch, True
            batch.append(line)
        return batch, False


def consume_pages(
    log: Log,
    topic: str,
    start: Start = "earliest",
    count: int | None = None,
    follow: bool = False,
    match: str | None = None,
) -> Iterator[Page]:
    """Entries from ``start`` to what is the end now, or on and on with ``follow``; at most ``count``."""
    if start == "latest" and not follow:
        entries = log.read(topic, start, count, filter=match) if count else []
        yield from [Page(entries, entries[-1].offset + 1)] if entries else []
        return
    left = math.inf if count is None else count
    pages = log.follow_pages(topic, start, filter=match) if follow else _to_the_end(log, topic, start, match)
    for page in pages:
        if len(page.entries) >= left:
            taken = page.entries[: int(left)]
            yield Page(taken, taken[-1].offset + 1)
            return
        yield page
        left -= len(page.entries)


def _to_the_end(log: Log, topic: str, start: Start, match: str | None) -> Iterator[Page]:
    """Not beyond what is the end when it begins: a busy topic would never come to one."""
    try:
        end = log.describe(topic)[0].end
    except Unsupported:
        end = 2**63
    for page in log.pages(topic, start, filter=match):
        entries = [entry for entry in page.entries if entry.offset < end] if page.next > end else page.entries
        yield Page(entries, min(page.next, end))
        if page.next >= end:
            return


def format_entry(entry: Entry, form: Format) -> bytes:
    """One line without its end (a payload may hold some of its own)."""
    if form is Format.PAYLOAD:
        return entry.payload or b""
    if form is Format.JSON:
        micros = (entry.timestamp - _EPOCH) // timedelta(microseconds=1)
        annotations = dict(entry.annotations)
        return dumps(row_document(Row(entry.offset, micros, entry.key, entry.payload, entry.type_url, annotations)))
    notes = "".join(f" {name}={value}" for name, value in sorted(entry.annotations.items()))
    stamp = entry.timestamp.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return f"{entry.offset} {stamp}{notes} ".encode() + (entry.payload or b"")


@contextlib.contextmanager
def _quiet_pipe() -> Iterator[None]:
    """A reader that has left, such as ``head``, is no error."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, else Python complains at exit
