"""A program that does the work of a pipeline's driver without Spark: it commits batches, and merges files.

Tasks run in child processes, as in a pipeline. It prints its own memory in bytes after each batch.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from multiprocessing.queues import Queue
from pathlib import Path

from penstock.landing.table_paths import Layout
from penstock.landing.writing.part_writer import write_part
from penstock.process.tuning import FreedMemory, own_memory
from penstock.spark.pipeline import MEMORY_GROWTH_BYTES
from penstock.spark.query.part_results import pack_result, unpack_result
from penstock.upkeep.compaction.compaction import compact_table
from tests.landing.typed.typed_life import Life
from tests.landing.writing.messages import AT, source

BATCHES, ROWS, MERGE_EVERY = 60, 50_000, 5
EVENT = '{"type":"click","uuid":"%032x","timestamp":1770000000000,"host":"web-1","data":{"path":"/%d","ms":%d}}'


def run_task(batch: int, life: Life, scratch: Path, results: Queue[bytes]) -> None:
    """Write a batch of new events, and put the packed result into the queue."""
    at = AT + batch * 1_000_000
    rows = [(n, (EVENT % (n, n % 997, n % 1000)).encode()) for n in range(batch * ROWS, (batch + 1) * ROWS)]
    results.put(pack_result(write_part([source(rows, at=at)], life.job, at), scratch))


def main() -> None:
    context = multiprocessing.get_context("fork")
    memory = FreedMemory(MEMORY_GROWTH_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        life, results = Life(Layout.for_tables(Path(folder) / "tables")), context.Queue()
        for batch in range(int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES):
            task = context.Process(target=run_task, args=(batch, life, Path(folder), results))
            task.start()
            part = unpack_result(results.get())
            task.join()
            life.commit.land(batch, lambda part=part: [part])  # type: ignore[misc]  # bound at once
            if batch % MERGE_EVERY == MERGE_EVERY - 1:
                compact_table(life.layout.landed)
            memory.release_growth()
            print(own_memory(), flush=True)


if __name__ == "__main__":
    main()
