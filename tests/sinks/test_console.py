"""The console handler: it writes whole lines immediately."""

from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConsoleHandler
from penstock.counts import Origin
from penstock.records import ANNOTATIONS, body
from penstock.sinks import Delivered, console
from penstock.sinks.console import Console

ORIGIN = Origin("x", 60, 0, 0)


def written_by_handler(kind: str, batch: pa.RecordBatch) -> bytes:
    """Return the bytes that the handler writes into a pipe."""
    read, write = os.pipe()
    pieces: list[bytes] = []

    def collect() -> None:
        with os.fdopen(read, "rb") as file:
            pieces.append(file.read())

    reader = threading.Thread(target=collect)
    reader.start()
    handler = Console("my-listener", ConsoleHandler.model_validate({"type": "console", "format": kind}), write)
    assert handler.deliver(batch, ORIGIN) == Delivered(batch.num_rows)
    os.close(write)
    reader.join()
    return pieces[0]


def test_text_format_writes_payloads() -> None:
    assert written_by_handler("text", body([b"one", b"", b"\xff two"])) == b"one\n\n\xff two\n"


@given(st.lists(st.tuples(st.binary(max_size=30), st.lists(st.text("ab:kt ä", min_size=1, max_size=6))), max_size=10))
def test_json_format_writes_listener_payload_and_tags(messages: list[tuple[bytes, list[str]]]) -> None:
    annotations = pa.array([[("tags", "\0".join(tags))] if tags else None for _, tags in messages], ANNOTATIONS)
    batch = body([payload for payload, _ in messages], annotations=annotations)
    documents = [json.loads(line) for line in written_by_handler("json", batch).splitlines()]
    assert [base64.b64decode(each["payload_b64"]) for each in documents] == [payload for payload, _ in messages]
    assert [each["tags"] for each in documents] == [tags for _, tags in messages]
    assert all(each.keys() == {"listener", "payload_b64", "tags"} for each in documents)
    assert {each["listener"] for each in documents} <= {"my-listener"}


def test_large_batch_is_written_in_whole_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pieces: list[bytes] = []
    write = os.write
    monkeypatch.setattr(console, "WRITE_BYTES", 1000)
    monkeypatch.setattr(console.os, "write", lambda fd, data: pieces.append(bytes(data)) or write(fd, data))
    path = tmp_path / "out"
    with path.open("wb") as file:
        handler = Console("x", ConsoleHandler.model_validate({"type": "console"}), file.fileno())
        handler.deliver(body([b"%d" % number * 40 for number in range(200)]), ORIGIN)
    assert len(pieces) > 5
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces) == path.read_bytes()
