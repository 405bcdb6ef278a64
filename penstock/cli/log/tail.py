"""The command that follows log files into a topic."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon, one_line
from penstock.cli.log.entries import parse_annotations
from penstock.cli.progress import Progress
from penstock.client.tail.positions import PositionsFile
from penstock.client.tail.tailer import Tailer

LOOK_EVERY = 1000
"""Milliseconds after which files are looked at whether or not there was an event: some file systems tell of none."""
EVENTS_FOR = 50
"""Milliseconds for which events are gathered before files are read."""


def tail(
    where: Daemon,
    files: Annotated[list[str], typer.Argument(help="Files to follow, also patterns in quotes: '/var/log/*.log'.")],
    topic: Annotated[str, typer.Option(help="Topic to append to.", autocompletion=topic_names)] = "files",
    state: Annotated[
        Path | None,
        typer.Option(help="File that keeps how far they are read.", show_default="in data_dir, by the topic"),
    ] = None,
    from_end: Annotated[bool, typer.Option(help="At the first start leave out what is in them already.")] = False,
    annotate: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Annotate every message.")] = None,
    once: Annotated[bool, typer.Option(help="End when all that is there is appended.")] = False,
) -> None:
    """Follow log files: append each of their lines once, through rotations, restarts and kills."""
    logging.basicConfig(format="penstock: %(message)s", level=logging.WARNING)
    stop = threading.Event()

    def end(*_: object) -> None:
        if stop.is_set():  # it may be waiting for the daemon: the second time at once
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    kept = PositionsFile(state or where.settings.data_dir / "tail" / f"{topic}.json")
    with one_line(), where.log(math.inf) as log, Progress(f"following into {topic}") as progress:
        tailer = Tailer(
            [os.path.abspath(each) for each in files],
            lambda batch, producer: log.append_batch(topic, batch, producer),
            kept,
            annotations=parse_annotations(annotate or ()),
            from_end=from_end,
        )
        try:
            _follow(tailer, [Path(each) for each in files], stop, once, progress)
        finally:
            tailer.settle()
            tailer.close()
            print(f"{tailer.appended} messages appended to {topic}", file=sys.stderr)


def _follow(tailer: Tailer, files: list[Path], stop: threading.Event, once: bool, progress: Progress) -> None:
    """Until ``stop`` is set, or with ``once`` until there is nothing more."""
    events = _events({folder for file in files for folder in _folders(file)}, stop)
    while not stop.is_set():
        while not stop.is_set() and tailer.turn():
            progress.tell(f"{tailer.appended:,} messages")
        tailer.settle()
        if once:
            return
        next(events, None)


def _events(folders: set[Path], stop: threading.Event) -> Iterator[object]:
    """One thing after the other that happens in ``folders``, or that LOOK_EVERY has passed."""
    from watchfiles import watch  # needed by this command alone

    if not folders:
        return iter(lambda: stop.wait(LOOK_EVERY / 1000), True)
    return watch(
        *folders,
        debounce=EVENTS_FOR,
        step=EVENTS_FOR,
        stop_event=stop,
        rust_timeout=LOOK_EVERY,
        yield_on_timeout=True,
        recursive=False,
        raise_interrupt=False,
    )


def _folders(file: Path) -> list[Path]:
    """The folders that a pattern's files are in."""
    return [folder for folder in file.absolute().parent.parent.glob(file.absolute().parent.name) if folder.is_dir()]
