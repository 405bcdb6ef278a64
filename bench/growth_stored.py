"""Growth of what is stored: a topic's history, its cursors, a log buffer that its writer left as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.timing import fastest
from penstock.counts import BUCKET_SECONDS, Counts, Origin
from penstock.ledger.book.book_from_topics import resume
from penstock.log import Log, TopicSettings
from penstock.logbuffer import AdminAction, BackPressured, Parameters, Publication, mtu_for
from penstock.records import binary_array, body

SIZE, ROWS = 256, 32_768
FRAME = 64 << 10
REPEATS = 5


def store_topics(folder: Path, count: int) -> None:
    """Store ``topic-0`` and so on with 100 entries of 256 bytes each."""
    log = Log(folder, TopicSettings(durability="written"), max_topics=count + 1)
    for number in range(count):
        log.topic(f"topic-{number}", create=True).append(body([b"x" * SIZE] * 100), Origin("bench", 0, 0, 0)).result()
    log.close()


def history(folder: Path, mib: int) -> dict[str, float]:
    """A topic of so many MiB, left by a process that was killed: what a successor and a reader need."""
    _apart("fill", folder, mib)
    return _apart("look", folder)


def fill(folder: Path, mib: int) -> dict[str, float]:
    """Rows of 256 bytes; the process ends without closing anything."""
    topic = Log(folder / "topics", TopicSettings(durability="written")).topic("events", create=True)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * SIZE
    data = np.random.default_rng(1).integers(32, 127, ROWS * SIZE, dtype=np.uint8)
    rows = body(binary_array(offsets, data))
    counts = Counts({"seen": ROWS, "accepted": ROWS})
    for number in range((mib << 20) // (ROWS * SIZE)):
        bucket = number * BUCKET_SECONDS // 10 // BUCKET_SECONDS * BUCKET_SECONDS
        topic.append(rows, Origin("bench", bucket, 0, 0, counts=counts)).result()
    return {}


def look(folder: Path) -> dict[str, float]:
    """Milliseconds of each."""
    began = time.perf_counter()
    log = Log(folder / "topics")
    topic = log.topic("events")
    opened = time.perf_counter() - began
    began = time.perf_counter()
    resume(folder / "topics")
    booked = time.perf_counter() - began
    middle = topic.end // 2
    when = next(iter(topic.reader().read(middle))).first
    found = {
        "open_ms": 1000 * opened,
        "ledger_anew_ms": 1000 * booked,
        "seek_ms": _fastest(lambda: topic.reader().at_timestamp(when)),
        "first_page_ms": _fastest(lambda: next(iter(topic.reader().read(middle, max_rows=1000))).batch),
        "append_ms": _fastest(lambda: topic.append(body([b"x"]), Origin("bench", 0, 0, 0)).result()),
    }
    log.close()
    return found


def cursors(folder: Path, count: int) -> dict[str, float]:
    """A topic with so many cursors: to commit one, and to list all with what is before them."""
    log = Log(folder / "topics")
    topic = log.topic("events", create=True)
    topic.append(body([b"x"] * 10), Origin("bench", 0, 0, 0)).result()
    for number in range(count):
        topic.cursors.commit(f"cursor-{number}", number % 10)
    found = {
        "commit_ms": _fastest(lambda: topic.cursors.commit("cursor-0", 5)),
        "lags_ms": _fastest(lambda: [topic.lag(name) for name in topic.cursors.offsets()]),
    }
    log.close()
    return found


def buffer(folder: Path, mib: int) -> dict[str, float]:
    """A log buffer with three terms of a quarter of so many MiB, written through twice and left: to open it again."""
    _apart("dirty", folder, mib)
    return _apart("reopen", folder)


def dirty(folder: Path, mib: int) -> dict[str, float]:
    """Written until it has gone round; the process ends without closing it."""
    term = (mib << 20) // 4
    publication = Publication.create(folder / "buffer", Parameters(term, mtu_for(FRAME), 1, 1, 0))
    publication.window = term
    data = os.urandom(FRAME - 64)
    while publication.position < 7 * term:
        publication.consumed(publication.position)
        try:
            publication.offer(data)
        except (AdminAction, BackPressured):
            continue
    return {}


def reopen(folder: Path) -> dict[str, float]:
    """Milliseconds."""
    began = time.perf_counter()
    Publication.open(folder / "buffer").close()
    return {"open_ms": 1000 * (time.perf_counter() - began)}


def _apart(what: str, folder: Path, *arguments: int) -> dict[str, float]:
    """In a process of its own, which ends as by a SIGKILL."""
    command = [sys.executable, "-m", "bench.growth_stored", what, str(folder), *map(str, arguments)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def _fastest(what: Callable[[], object]) -> float:
    """Milliseconds."""
    return 1000 * fastest(what, REPEATS)


STORED = ((64, 640, 10_240), history)
CURSORS = ((1, 100, 1_000), cursors)
BUFFERS = ((64, 256, 1_024), buffer)
APART: dict[str, Callable[..., dict[str, float]]] = {"fill": fill, "look": look, "dirty": dirty, "reopen": reopen}

if __name__ == "__main__":
    print(json.dumps(APART[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))), flush=True)
    os._exit(0)
