"""The handler that writes messages to the standard output of ``penstock serve``."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import ConsoleHandler
from penstock.counts import Origin
from penstock.process.terminal import visible_bytes
from penstock.sinks.handler import Delivered
from penstock.wire.decoded import TAGS

STANDARD_OUTPUT = 1
WRITE_BYTES = 1 << 20
"""Size from which collected lines are written."""


class Console:
    """Writes a line per message: its payload, or ``{"listener", "payload_b64", "tags"}`` as JSON."""

    def __init__(self, listener: str, handler: ConsoleHandler, output: int = STANDARD_OUTPUT) -> None:
        self._listener, self._output = json.dumps(listener), output
        self._lines = self._json_lines if handler.format == "json" else self._text_lines

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Write ``batch``; nothing is buffered."""
        _write(self._output, self._lines(batch))
        return Delivered(batch.num_rows)

    def _text_lines(self, batch: pa.RecordBatch) -> list[bytes]:
        lines = [payload or b"" for payload in batch.column("payload").to_pylist()]
        # Control characters of a sender must not reach a terminal.
        return list(map(visible_bytes, lines)) if os.isatty(self._output) else lines

    def _json_lines(self, batch: pa.RecordBatch) -> list[bytes]:
        payloads = batch.column("payload").to_pylist()
        return [
            f'{{"listener": {self._listener}, "payload_b64": "{encoded}", "tags": {json.dumps(tags)}}}'.encode()
            for encoded, tags in zip(map(_base64, payloads), tags_of(batch), strict=True)
        ]


def tags_of(batch: pa.RecordBatch) -> list[list[str]]:
    """Return the tags of each message in the order received."""
    annotations = batch.column("annotations")
    if annotations.null_count == len(annotations):
        return [[] for _ in range(batch.num_rows)]
    joined = pc.map_lookup(annotations, TAGS, "first").to_pylist()
    return [tags.split("\0") if tags else [] for tags in joined]


def _base64(payload: bytes | None) -> str:
    return base64.b64encode(payload or b"").decode()


def _write(output: int, lines: Sequence[bytes]) -> None:
    """Write whole lines in large pieces, so that handlers that share a file do not cut each other's lines."""
    collected: list[bytes] = []
    size = 0
    for line in lines:
        collected.append(line)
        size += len(line) + 1
        if size >= WRITE_BYTES:
            _write_all(output, b"\n".join([*collected, b""]))
            collected, size = [], 0
    if collected:
        _write_all(output, b"\n".join([*collected, b""]))


def _write_all(output: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(output, view) :]
