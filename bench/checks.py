"""The checksums of frames and batches: their share of the CPU from the log buffer to a reader of the log."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.ledger import COUNTS, LISTENER, SIZE
from penstock import records
from penstock.counts import Counts
from penstock.handover import reader
from penstock.handover.drain import drain
from penstock.handover.frames import frame
from penstock.log import Log, TopicSettings
from penstock.log.store import batch_format, row_format
from penstock.records import body

RUNS = 9
"""Runs with and as many without checks, in turn."""
ROUNDS = {500: 1_000, 1: 4_000}
"""Receive rounds by their messages: those of 250,000 messages a second, and of a sender that is alone."""
ROUNDS_OF_DRAIN = 200


def measure() -> dict[str, Any]:
    """CPU of a round with all checks, and the share that it is less without them, of the fastest runs of each kind."""
    figures = dict[str, Any]()
    for messages, rounds in ROUNDS.items():
        _cpu(messages, rounds)  # warms up
        pairs = [(_cpu(messages, rounds), _cpu_without_checks(messages, rounds)) for _ in range(RUNS)]
        whole, without = (min(cpus) for cpus in zip(*pairs, strict=True))
        figures[f"checked_cpu_us_per_round_of_{messages}"] = round(whole / rounds * 1e6, 1)
        figures[f"checks_share_percent_of_cpu_in_rounds_of_{messages}"] = round(100 - without / whole * 100, 1)
    return figures


def _cpu_without_checks(messages: int, rounds: int) -> float:
    """Return the CPU of a run in which checksums are 0 when they are written and when they are read."""
    with contextlib.ExitStack() as stack:
        for module, name in (
            (records, "checksum"),
            (frame, "checksum"),
            (row_format, "crc32c"),
            (batch_format, "_checksum"),
        ):
            stack.enter_context(patch.object(module, name, lambda *_: 0))
        for module in (frame, drain):
            stack.enter_context(patch.object(module, "is_intact", lambda data: len(data) > frame.TRAILER.size))
        stack.enter_context(patch.object(reader, "wait_until_intact", lambda _: None))
        return _cpu(messages, rounds)


def _cpu(messages: int, rounds: int) -> float:
    """Return the seconds of CPU in which rounds are framed, stored and synced, and read from the topic."""
    from tests.ingest.ingest_life import live

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        life = live(Path(folder), LISTENER, term_length=64 << 20, drop=False)
        log = Log(Path(folder) / "topics", TopicSettings())
        batch, counts = body([b"x" * SIZE] * messages), Counts(dict.fromkeys(COUNTS, messages))
        begin = time.process_time()
        for _ in range(rounds // ROUNDS_OF_DRAIN):
            for _ in range(ROUNDS_OF_DRAIN):
                life.publisher.publish(batch, counts, 0)
            draining = drain.Drain(LISTENER.name, Path(folder), log, None)
            draining.stop()
            draining.run()
        read = sum(joined.num_rows for joined in log.topic("events").reader().read_joined(0))
        spent = time.process_time() - begin
        assert read == rounds * messages
        life.end()
        log.close()
        return spent
