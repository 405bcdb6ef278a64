"""Commands on the entries of the log: ``produce`` and ``consume``.

A cursor is committed only behind entries that are printed, so that a killed command prints some twice but skips none.
"""

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
from penstock.console.wording import counted
from penstock.log.read.filters import BadFilter, Filter
from penstock.process.terminal import visible_bytes
from penstock.slogd.columns.entries import Row
from penstock.slogd.json.entry_documents import dumps, row_document

MAX_BATCH_LINES = 100
"""Lines of one request."""
MAX_BATCH_WAIT_S = 1.0
"""Longest time for which a line waits for others."""
COMMIT_INTERVAL_S = 1.0
"""A crash repeats the entries of one interval; each commit is a request to the daemon."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGE = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d)")


class Format(StrEnum):
    """The output format of an entry: a line of text, JSON as in the HTTP API, or the bare payload."""

    TEXT = "text"
    JSON = "json"
    PAYLOAD = "payload"


def produce(
    daemon: Daemon,
    topic: Annotated[str, typer.Argument(help="Topic to append to.", autocompletion=topic_names)],
    annotate: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Annotation for every message; may be repeated.")
    ] = None,
) -> None:
    """Append the lines of standard input to a topic, in batches of 100 lines or one second."""
    annotations = parse_annotations(annotate or ())
    lines = Lines(_open_standard_input())
    count, is_interrupted = 0, False

    def stop(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        # The second Ctrl-C ends it at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        lines.stop()

    with daemon.connect() as log, Progress(f"appending to {topic}", is_shown=not sys.stdin.isatty()) as progress:
        # Order: connected first, so that Ctrl-C during the wait for a daemon ends the command.
        signal.signal(signal.SIGINT, stop)
        try:
            for batch in lines.batches():
                count += len(log.append(topic, batch, annotations))
                progress.update(f"{count:,} messages")
        finally:
            print(f"{counted(count, 'message')} appended to {topic}", file=sys.stderr)
    if is_interrupted:
        sys.exit(130)


def consume(
    daemon: Daemon,
    topic: Annotated[str, typer.Argument(help="Topic to read.", autocompletion=topic_names)],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start at earliest, latest, an offset, a time or an age (10m).",
            show_default="the cursor, or earliest",
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--filter", help="Print only messages whose annotations match, such as: k:userid v:vip.*"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Print new messages until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("-n", min=1, help="Number of messages; with --from latest, the last ones.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TEXT,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Start at this cursor, and move it past the printed messages.")
    ] = None,
) -> None:
    """Print the messages of a topic."""
    terminal = sys.stdout.isatty()
    first = parse_start(start) if start else AtCursor(cursor) if cursor else "earliest"
    if match is not None:
        check_filter(match)
    with daemon.connect(math.inf if follow else RETRY_FOR) as log, _ignore_closed_pipe():
        _check_start(log, topic, first, follow)
        pages = consume_pages(log, topic, first, count, follow, match)
        with _CursorCommitter(log, topic, cursor) as committer, Progress("reading", is_shown=not terminal) as progress:
            for page in pages:
                for entry in page.entries:
                    line = format_entry(entry, form)
                    sys.stdout.buffer.write((visible_bytes(line) if terminal else line) + b"\n")
                # Order: entries are printed before the cursor may move past them. Without both, one flush at the end
                # is faster.
                if follow or cursor:
                    sys.stdout.buffer.flush()
                committer.advance(page.next)
                progress.update(f"offset {page.next:,}")
        sys.stdout.buffer.flush()


def _check_start(log: Log, topic: str, start: Start, follow: bool) -> None:
    """Report a start beyond the end of the topic, and end the command unless it follows."""
    with contextlib.suppress(Unsupported):
        if isinstance(start, int) and start > (end := log.describe(topic)[0].end):
            problem = f"offset {start} is beyond the end of {topic}, which is {end}"
            if not follow:
                fail(problem)
            print(f"{problem}; waiting for it", file=sys.stderr)


def _open_standard_input() -> Iterable[bytes]:
    try:
        # Workaround: Python aborts at exit while a daemon thread still reads `sys.stdin`, so the thread has its own
        # file.
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer
    return open(descriptor, "rb", closefd=False)


class _CursorCommitter:
    """The commits of a consumer's cursor: every COMMIT_INTERVAL_S in a thread, and at the end. Idle without a name."""

    def __init__(self, log: Log, topic: str, name: str | None) -> None:
        self._log, self._topic, self._name = log, topic, name
        self._offset: int | None = None
        # The lock orders the two threads' commits.
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._failure: ClientError | None = None

    def advance(self, offset: int) -> None:
        """Move the cursor to ``offset``, once all entries before it are printed. Raises ClientError of a failed
        commit.
        """
        self._offset = offset
        if self._failure is not None:
            raise self._failure

    def _commit(self) -> None:
        with self._lock:
            # Taken out, so that an unchanged offset is not committed again every second.
            offset, self._offset = self._offset, None
            if self._name and offset is not None:
                self._log.commit_cursor(self._topic, self._name, offset)

    def _commit_periodically(self) -> None:
        try:
            while not self._stop.wait(COMMIT_INTERVAL_S):
                self._commit()
        except ClientError as error:
            self._failure = error

    def __enter__(self) -> _CursorCommitter:
        if self._name:
            threading.Thread(target=self._commit_periodically, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._stop.set()
        # After an error of the client another request to the daemon would only fail again.
        if not isinstance(error, ClientError):
            self._commit()


def parse_annotations(pairs: Sequence[str]) -> dict[str, str]:
    """Return ``k=v`` pairs as a mapping. Raises typer.BadParameter."""
    parts = [pair.partition("=") for pair in pairs]
    if any(not name or not equals for name, equals, _ in parts):
        raise typer.BadParameter("not of the form K=V", param_hint="--annotate")
    return {name: value for name, _, value in parts}


def parse_start(text: str) -> Start:
    """Parse ``earliest``, ``latest``, an offset, a time (ISO 8601, local without a zone) or an age. Raises
    BadParameter.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if _AGE.fullmatch(text):
            return datetime.now(UTC) - timedelta(seconds=float(str(parse_time(text))))
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        problem = f"{text!r} is not earliest, latest, an offset, a time or an age (10m)"
        raise typer.BadParameter(problem, param_hint="--from") from None


def check_filter(text: str) -> None:
    """End the command with the error and its position if a filter is invalid."""
    try:
        Filter.parse(text)
    except BadFilter as error:
        fail(f"{error}\n{error.pointed}", 2)


class Lines:
    """Batches of lines that a thread reads: bounded by lines and by the time that the first line waits."""

    def __init__(self, lines: Iterable[bytes], size: int = MAX_BATCH_LINES, seconds: float = MAX_BATCH_WAIT_S) -> None:
        self._size, self._seconds = size, seconds
        # Limit: a program that writes faster than the log appends waits at its pipe.
        self._queue: Queue[bytes | None] = Queue(maxsize=10 * size)
        threading.Thread(target=self._feed, args=(lines,), daemon=True).start()

    def batches(self) -> Iterator[list[bytes]]:
        """Yield lists of at most ``size`` lines without their ends, each at most ``seconds`` after its first line."""
        while (line := self._queue.get()) is not None:
            batch, is_last = self._collect(line, time.monotonic() + self._seconds)
            yield batch
            if is_last:
                return

    def stop(self) -> None:
        """Make ``batches`` end after the lines read so far. Safe in a signal handler."""
        # In a thread: the interrupted thread may hold the queue's lock, and this one would wait for it forever.
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
    """Yield entries from ``start`` to the current end, or without end with ``follow``; at most ``count``."""
    if start == "latest" and not follow:
        entries = log.read(topic, start, count, filter=match) if count else []
        yield from [Page(entries, entries[-1].offset + 1)] if entries else []
        return
    remaining = math.inf if count is None else count
    pages = log.follow_pages(topic, start, filter=match) if follow else _pages_to_end(log, topic, start, match)
    for page in pages:
        if len(page.entries) >= remaining:
            entries_to_limit = page.entries[: int(remaining)]
            yield Page(entries_to_limit, entries_to_limit[-1].offset + 1)
            return
        yield page
        remaining -= len(page.entries)


def _pages_to_end(log: Log, topic: str, start: Start, match: str | None) -> Iterator[Page]:
    try:
        end = log.describe(topic)[0].end
    except Unsupported:
        # slogd describes no topics; its reads end at the current end.
        end = 2**63
    # Limit: the end when the command started; a busy topic would never reach its end.
    for page in log.pages(topic, start, filter=match):
        entries = [entry for entry in page.entries if entry.offset < end] if page.next > end else page.entries
        yield Page(entries, min(page.next, end))
        if page.next >= end:
            return


def format_entry(entry: Entry, form: Format) -> bytes:
    """Return an entry as one line without its newline; a payload may contain newlines."""
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
def _ignore_closed_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader, such as `head`, has enough. Python would report another error when it flushes at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
