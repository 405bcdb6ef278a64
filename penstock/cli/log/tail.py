"""``penstock tail``: follow log files, or systemd's journal, and append their lines to a topic.

``follow`` reads whenever a folder or the journal changes, and retries while the daemon cannot take an append.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from penstock.cli.common import fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon, errors_in_one_line
from penstock.cli.log.entries import parse_annotations
from penstock.cli.progress import Progress
from penstock.client import ClientError, Unavailable
from penstock.client.log.types import Damaged, Exhausted
from penstock.client.tail.container_logs import PATTERNS
from penstock.client.tail.discovery import matching_paths
from penstock.client.tail.journal import ALL, BOOT, NOW, PROGRAM, JournalTailer
from penstock.client.tail.journal_position import JournalPositionFile
from penstock.client.tail.positions import PositionsFile
from penstock.client.tail.tailer import Tailer
from penstock.console.wording import counted
from penstock.process.kernel import raise_file_limit

POLL_INTERVAL_MS = 1000
"""Files are looked at this often whether or not there was an event: some file systems send none."""
EVENT_BATCH_MS = 50
"""Time for which events are gathered before files are read."""
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 30.0
_LOGGER = logging.getLogger(__name__)


class Since(StrEnum):
    """Entries of the journal to begin with: the first one, that of the last boot, or the next one that is written."""

    ALL = ALL
    BOOT = BOOT
    NOW = NOW


def tail(
    daemon: Daemon,
    files: Annotated[
        list[str] | None, typer.Argument(help="Files to follow, or patterns in quotes: '/var/log/*.log'.")
    ] = None,
    topic: Annotated[str, typer.Option(help="Topic to append to.", autocompletion=topic_names)] = "files",
    state: Annotated[
        Path | None,
        typer.Option(help="File with the read positions.", show_default="tail/TOPIC.json in data_dir"),
    ] = None,
    from_end: Annotated[bool, typer.Option(help="Skip existing lines at the first start.")] = False,
    annotate: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Annotation for every message; may be repeated.")
    ] = None,
    containers: Annotated[
        bool,
        typer.Option(
            "--containers",
            help="Read logs of containers (Docker, Kubernetes, Podman); without FILES from their folders.",
        ),
    ] = False,
    journal: Annotated[
        bool, typer.Option("--journal", help="Follow systemd's journal instead of files, each entry once.")
    ] = False,
    unit: Annotated[
        list[str] | None,
        typer.Option(metavar="UNIT", help="With --journal: only entries of this unit; may be repeated."),
    ] = None,
    since: Annotated[
        Since | None,
        typer.Option(help="With --journal: the first entry to read at the first start.", show_default="all"),
    ] = None,
    once: Annotated[bool, typer.Option(help="Exit when all existing lines are appended.")] = False,
) -> None:
    """Follow log files, or the journal, and append their lines to a topic, each once through rotations and kills."""
    check_sources(files or [], journal=journal, containers=containers, from_end=from_end, unit=unit, since=since)
    logging.basicConfig(format="penstock: %(message)s", level=logging.WARNING)
    raise_file_limit()
    stop = threading.Event()

    def end(*_: object) -> None:
        # It may be waiting for the daemon: the second signal ends it at once.
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    default_state = daemon.settings.data_dir / "tail" / (f"{topic}.journal.json" if journal else f"{topic}.json")
    annotations = parse_annotations(annotate or ())
    # Watched, so that an append of a MiB has the time that a slow link needs.
    with (
        errors_in_one_line(),
        daemon.client(math.inf, watched=True) as log,
        Progress(f"following into {topic}") as progress,
    ):

        def append(batch: pa.RecordBatch, producer: tuple[str, int]) -> None:
            log.append_batch(topic, batch, producer)

        tailer: Tailer | JournalTailer
        if journal:
            tailer = JournalTailer(
                append,
                JournalPositionFile(state or default_state),
                units=unit or (),
                since=since or Since.ALL,
                annotations=annotations,
                once=once,
            )
            changes = tailer.changes()
        else:
            patterns = [os.path.abspath(pattern) for pattern in files or PATTERNS]
            tailer = Tailer(
                patterns,
                append,
                PositionsFile(state or default_state),
                annotations=annotations,
                from_end=from_end,
                containers=containers,
            )
            changes = folder_changes(watched_folders(patterns), stop)
        try:
            follow(tailer, changes, stop, once=once, progress=progress)
        finally:
            tailer.settle()
            tailer.close()
            print(summary(tailer, topic), file=sys.stderr)


def check_sources(
    files: list[str],
    *,
    journal: bool,
    containers: bool,
    from_end: bool,
    unit: list[str] | None,
    since: Since | None,
) -> None:
    """End the command with an error if its options contradict each other, or journalctl is missing."""
    if not journal and (unit or since):
        fail("--unit and --since select entries of the journal: add --journal", 2)
    if journal and (files or containers or from_end):
        fail("--journal follows the journal alone: leave out files, --containers and --from-end (--since now)", 2)
    if not files and not containers and not journal:
        fail("name the files to follow, or --containers, or --journal", 2)
    if journal and shutil.which(PROGRAM) is None:
        fail("--journal needs journalctl, which is not installed: install the package systemd", 1)


def summary(tailer: Tailer | JournalTailer, topic: str) -> str:
    """Return the last line that the command prints."""
    if isinstance(tailer, JournalTailer):
        counts = {"entries missing in the journal": tailer.missing, "fields cut": tailer.cut_fields}
    else:
        counts = {
            "NUL bytes left out": tailer.skipped_nuls,
            "lines of compressed files not read": tailer.unread_lines,
        }
    texts = [f", {count} {name}" for name, count in counts.items() if count]
    return f"{counted(tailer.appended, 'message')} appended to {topic}{''.join(texts)}"


def follow(
    tailer: Tailer | JournalTailer,
    changes: Iterator[object],
    stop: threading.Event,
    *,
    once: bool,
    progress: Progress,
) -> None:
    """Append lines until ``stop`` is set; with ``once`` until nothing is left. ``changes`` waits for new lines."""
    retry_s = FIRST_RETRY_S
    is_final = False
    while not stop.is_set():
        try:
            while not stop.is_set() and tailer.turn(is_final=is_final):
                progress.update(f"{tailer.appended:,} messages")
                retry_s = FIRST_RETRY_S
            tailer.settle()
        except (ClientError, OSError) as error:
            if not is_transient(error):
                raise
            _LOGGER.warning("%s; trying again in %.0f s", error, retry_s)
            stop.wait(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)
            continue
        if once and is_final:
            tailer.report_unfinished()
            return
        is_final = once
        if not once:
            next(changes, None)


def is_transient(error: Exception) -> bool:
    """Report whether an append may succeed later: a full or failing disk of the daemon or of the state file.

    A refusal (missing right, unknown topic, oversized message) ends the command.
    """
    return isinstance(error, OSError | Exhausted | Damaged | Unavailable) or type(error) is ClientError


def watched_folders(patterns: list[str]) -> set[Path]:
    """Return the folders of the files that match now. Folders below ``**`` are polled: there may be very many."""
    parents = {os.path.dirname(pattern) for pattern in patterns if "**" not in pattern}
    return {Path(path) for parent in parents for path in matching_paths(parent) if os.path.isdir(path)}


def folder_changes(folders: set[Path], stop: threading.Event) -> Iterator[object]:
    """Return one item for each change in ``folders``, and at least one for each ``POLL_INTERVAL_MS``."""
    # Needed by this command alone.
    from watchfiles import watch

    if folders:
        try:
            yield from watch(
                *folders,
                debounce=EVENT_BATCH_MS,
                step=EVENT_BATCH_MS,
                stop_event=stop,
                rust_timeout=POLL_INTERVAL_MS,
                yield_on_timeout=True,
                recursive=False,
                raise_interrupt=False,
            )
        except (OSError, RuntimeError) as error:
            # The limit of inotify is reached, or a folder was removed.
            _LOGGER.warning("no events of folders: %s; looking every %d ms", error, POLL_INTERVAL_MS)
    while not stop.wait(POLL_INTERVAL_MS / 1000):
        yield None
