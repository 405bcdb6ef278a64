"""Rows sent back, each once, whatever is killed meanwhile.

What is sent is written down before (the plan) and after; whoever takes it takes a plan's batch once, by the name and
number of its producer, so that a plan without an end is simply carried out again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
from crc32c import crc32c

from penstock.files.checked_lines import Damage, append_lines, log_damage, read_lines
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, replace_durably
from penstock.records import BODY

RowIdentity = int | str
"""What tells one row from another among those sent to a topic: an offset, a uuid."""
Sent = tuple[bytes | None, bytes | None, str | None, dict[str, str]]
"""Key, payload, type_url and annotations of a row."""
Producer = tuple[str, int]


class Appends(Protocol):
    """What takes rows: the log's client, or Kafka."""

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: Producer | None = None) -> list[int]: ...


Has = Callable[[str, Producer, int], bool]
"""Whether a topic has a producer's batch, which was sent at the given time (milliseconds) or later."""


class Resender:
    """Sends batches and remembers what was sent in ``path``; one at a time. ``has``: where ``out`` cannot tell itself
    that it is given a batch a second time.
    """

    def __init__(self, path: Path, out: Appends, has: Has | None = None) -> None:
        self._path, self._out, self._has = path, out, has
        path.parent.mkdir(parents=True, exist_ok=True)
        self._producer = f"{path.name.partition('.')[0]}-{uuid4().hex}"  # of this run: none is remembered for ever
        self._numbers: Counter[str] = Counter()
        self._plans: list[dict[str, Any]] = []
        self._ended: set[int] = set()
        for line in read_lines(path, _plan_or_end, repair=True, damaged=_told):
            if "ended" in line:
                self._ended.add(line["ended"])
            else:
                self._plans.append(line)
        self._sent: set[tuple[str, RowIdentity]] = {
            (plan["topic"], key) for plan in self._plans for key in plan["keys"]
        }

    def is_new(self, topic: str, key: RowIdentity) -> bool:
        """Whether it was not sent to the topic before."""
        return (topic, key) not in self._sent

    def finish(self) -> None:
        """Carry out again what was planned and has no end."""
        for plan in self._plans:
            if plan["sequence"] in self._ended:
                continue
            name, number = plan["producer"]
            taken = self._has is not None and self._has(plan["topic"], (name, number), plan["at"])
            self._append(plan, None if taken else read_body(self._body_file(plan), plan["crc32c"]))

    def send(self, topic: str, keys: Sequence[RowIdentity], body: pa.RecordBatch) -> None:
        """Send rows (as ``records.BODY``) that have these keys."""
        sequence = len(self._plans)
        plan: dict[str, Any] = {
            "sequence": sequence,
            "producer": [self._producer, self._numbers[topic]],
            "at": int(time.time() * 1000),
            "topic": topic,
            "keys": list(keys),
        }
        plan["crc32c"] = _write_body(self._body_file(plan), body)
        append_lines(self._path, [plan])
        self._numbers[topic] += 1
        self._plans.append(plan)
        self._sent.update((topic, key) for key in keys)
        self._append(plan, body)

    def _append(self, plan: dict[str, Any], body: pa.RecordBatch | None) -> None:
        if body is not None:
            name, number = plan["producer"]
            self._out.append_batch(plan["topic"], body, (name, number))
        append_lines(self._path, [{"ended": plan["sequence"]}])
        self._ended.add(plan["sequence"])
        self._body_file(plan).unlink(missing_ok=True)

    def _body_file(self, plan: dict[str, Any]) -> Path:
        return self._path.with_name(f"{self._path.stem}.{plan['sequence']}.arrow")


def sent_keys(path: Path) -> frozenset[tuple[str, RowIdentity]]:
    """Topic and key of all that was sent and remembered in ``path``."""
    plans = (line for line in read_lines(path, _plan_or_end) if "keys" in line)
    return frozenset((plan["topic"], key) for plan in plans for key in plan["keys"])


def body_of(rows: Sequence[Sent]) -> pa.RecordBatch:
    """Rows as ``records.BODY``."""
    columns: dict[str, list[Any]] = {
        "key": [key for key, _, _, _ in rows],
        "payload": [payload for _, payload, _, _ in rows],
        "type_url": [type_url for _, _, type_url, _ in rows],
        "annotations": [list(annotations.items()) for _, _, _, annotations in rows],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in BODY], schema=BODY)


def _plan_or_end(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the file, where it has what one must have."""
    if "ended" in line:
        return {"ended": int(line["ended"])}
    name, number = line["producer"]
    return {
        **line,
        "crc32c": int(line["crc32c"]),
        "sequence": int(line["sequence"]),
        "producer": [str(name), int(number)],
        "keys": list(line["keys"]),
    }


def _told(damage: Damage) -> None:
    """A torn end names nothing that was sent; another damaged line does."""
    if not damage.torn:
        raise DamagedFile(f"{damage}; rows that it names would be sent again. Take the line out of the file to go on")
    log_damage(damage)


def _write_body(path: Path, body: pa.RecordBatch) -> int:
    """On the disk before the plan that names it, and its CRC32C."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, body.schema) as writer:
        writer.write_batch(body)
    data = sink.getvalue()
    replace_durably(OS, path, data)
    return int(crc32c(data))


def read_body(path: Path, crc: int) -> pa.RecordBatch:
    """Return the rows in a file. Raises DamagedFile."""
    data = path.read_bytes()
    try:
        if crc == crc32c(data):
            return pa.ipc.open_file(data).get_batch(0)
    except pa.ArrowInvalid:
        pass
    raise DamagedFile(f"{path} is damaged: its rows cannot be sent again")
