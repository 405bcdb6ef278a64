"""The entries of a running pipe's topics, read from the segment files like by other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.testing.pipe import Pipe


def entries(pipe: Pipe, topic: str) -> list[dict[str, Any]]:
    """Return all entries of ``topic`` in order, except a batch that is being written."""
    files = sorted((pipe.data_dir / "topics" / topic).glob("*.arrows"))
    return [
        row | {"annotations": dict(row["annotations"] or [])}
        for file in files
        for batch in _batches(file, last=file is files[-1])
        for row in batch.to_pylist()
    ]


def _batches(file: Path, last: bool) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a segment; of the last segment only complete ones, because its end may be half written."""
    data = file.read_bytes()
    try:
        with pa.ipc.open_stream(data) as stream:
            yield from stream
    except (OSError, pa.ArrowInvalid):
        if not last:
            raise
