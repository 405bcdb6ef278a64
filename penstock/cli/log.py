"""Commands on the log: topics, produce, consume."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from queue import Empty, Queue
from typing import Annotated

import typer

from penstock.cli.common import AsJson, Config, Override, fail, settings_of
from penstock.client.log import Entry, Log, LogError, Start
from penstock.server.documents import dumps, row_document
from penstock.server.entries import Row

BATCH = 100
"""Lines that are sent as one request."""
BATCH_SECONDS = 1.0
"""A line waits no longer than this for others."""
PAGE = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Format(StrEnum):
    """How an entry is printed: a line for people, JSON as the HTTP API has it, or the bare payload."""

    TEXT = "text"
    JSON = "json"
    PAYLOAD = "payload"


Rpc = Annotated[
    str | None, typer.Option("--rpc", metavar="HOST:PORT", help="The log's gRPC address.", show_default="log.grpc")
]


def topics(
    config: Config = None,
    override: Override = None,
    rpc: Rpc = None,
    as_json: AsJson = False,
) -> None:
    """List the topics of the log."""
    with _log(config, override, rpc) as log:
        names = log.topics()
    print(json.dumps(names) if as_json else "\n".join(names), end="\n" if as_json or names else "")


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to append to.")],
    config: Config = None,
    override: Override = None,
    rpc: Rpc = None,
    annotate: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Annotate every message.")] = None,
) -> None:
    """Append the lines of standard input, in batches of 100 lines or one second."""
    annotations = parse_annotations(annotate or ())
    with _log(config, override, rpc) as log:
        count = produce_lines(log, topic, sys.stdin.buffer, annotations)
    print(f"{count} messages appended to {topic}", file=sys.stderr)


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    config: Config = None,
    override: Override = None,
    rpc: Rpc = None,
    start: Annotated[str, typer.Option("--from", help="earliest, latest, an offset or a time.")] = "earliest",
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after so many; with latest, the last.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is appended.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TEXT,
) -> None:
    """Print the messages of a topic."""
    begin = parse_start(start)
    with _log(config, override, rpc) as log, _quiet_pipe():
        for entry in consume_entries(log, topic, begin, count, follow):
            sys.stdout.buffer.write(format_entry(entry, form) + b"\n")
            if follow:
                sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()


def parse_annotations(pairs: Sequence[str]) -> dict[str, str]:
    """``k=v`` pairs as a mapping. Raises typer.BadParameter."""
    parted = [pair.partition("=") for pair in pairs]
    if any(not name or not equals for name, equals, _ in parted):
        raise typer.BadParameter("write it as K=V", param_hint="--annotate")
    return {name: value for name, _, value in parted}


def parse_start(text: str) -> Start:
    """``earliest``, ``latest``, an offset, or a time (ISO 8601, local where it names no zone)."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        wrong = f"{text!r} is not earliest, latest, an offset or a time"
        raise typer.BadParameter(wrong, param_hint="--from") from None


def produce_lines(log: Log, topic: str, lines: Iterable[bytes], annotations: Mapping[str, str] | None = None) -> int:
    """Append each line, without its end, to ``topic``; returns how many. Raises LogError."""
    return sum(len(log.append(topic, batch, annotations)) for batch in batches(lines))


def batches(lines: Iterable[bytes], size: int = BATCH, seconds: float = BATCH_SECONDS) -> Iterator[list[bytes]]:
    """The lines in lists of at most ``size``, none held back longer than ``seconds`` once it is there."""
    queue: Queue[bytes | None] = Queue(maxsize=10 * size)
    threading.Thread(target=_feed, args=(lines, queue), daemon=True).start()
    while (line := queue.get()) is not None:
        batch, ended = _collect(line, queue, size, time.monotonic() + seconds)
        yield batch
        if ended:
            return


def _feed(lines: Iterable[bytes], queue: Queue[bytes | None]) -> None:
    try:
        for line in lines:
            queue.put(line.removesuffix(b"\n").removesuffix(b"\r"))
    finally:
        queue.put(None)


def _collect(first: bytes, queue: Queue[bytes | None], size: int, deadline: float) -> tuple[list[bytes], bool]:
    batch = [first]
    while len(batch) < size:
        try:
            line = queue.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return batch, False
        if line is None:
            return batch, True
        batch.append(line)
    return batch, False


def consume_entries(
    log: Log, topic: str, start: Start = "earliest", count: int | None = None, follow: bool = False
) -> Iterator[Entry]:
    """Entries from ``start`` to the end of the topic, or on and on with ``follow``; at most ``count``."""
    entries = log.follow(topic, start) if follow else _pages(log, topic, start, count)
    for number, entry in enumerate(entries, 1):
        yield entry
        if number == count:
            return


def _pages(log: Log, topic: str, start: Start, count: int | None) -> Iterator[Entry]:
    if start == "latest":
        yield from log.read(topic, start, count) if count else ()
        return
    while True:
        page = log.read(topic, start, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        start = page[-1].offset + 1


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
def _log(config: Path | None, override: list[str] | None, rpc: str | None) -> Iterator[Log]:
    """The log at the address given or configured; errors end the command with one line."""
    try:
        with Log(rpc or settings_of(config, override).log.grpc) as log:
            yield log
    except LogError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def _quiet_pipe() -> Iterator[None]:
    """A reader that has left, such as ``head``, is no error."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, else Python complains at exit
