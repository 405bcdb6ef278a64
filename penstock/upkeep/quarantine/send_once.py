"""Send rows so that each is sent once, after any crash.

Order: a plan with the rows is synced before they are sent, and an end after it. Crash: a plan without an end is sent
again under the same producer name and number, and the receiver stores each number once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
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
"""The identity of a row among the rows sent to a topic: an offset or a uuid."""
Sent = tuple[bytes | None, bytes | None, str | None, dict[str, str]]
"""Key, payload, type_url and annotations of a row."""
Producer = tuple[str, int]


class Appends(Protocol):
    """A receiver of rows: the log's client, or Kafka."""

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: Producer | None = None) -> list[int]: ...


Has = Callable[[str, Producer, int], bool]
"""Return whether a topic has a producer's batch, sent at a time (milliseconds) or later."""


class Resender:
    """The sender of batches, with its plans in the file ``path``. One process at a time.

    ``has`` looks up a batch at receivers that do not recognize a repeated batch themselves.
    """

    def __init__(self, path: Path, receiver: Appends, has_batch: Has | None = None) -> None:
        self._path, self._receiver, self._has_batch = path, receiver, has_batch
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name per run: its numbers start at 0, and the log need not remember the name forever.
        self._producer = f"{path.name.partition('.')[0]}-{uuid4().hex}"
        self._numbers: Counter[str] = Counter()
        self._plans: list[dict[str, Any]] = []
        self._completed: set[int] = set()
        for line in read_lines(path, _parse_line, repair=True, damaged=_refuse_damage):
            if "ended" in line:
                self._completed.add(line["ended"])
            else:
                self._plans.append(line)
        self._sent: set[tuple[str, RowIdentity]] = {
            (plan["topic"], key) for plan in self._plans for key in plan["keys"]
        }

    def is_new(self, topic: str, key: RowIdentity) -> bool:
        """Return whether the row was not sent to the topic before."""
        return (topic, key) not in self._sent

    def finish(self) -> None:
        """Send planned batches without an end again."""
        for plan in self._plans:
            if plan["sequence"] in self._completed:
                continue
            name, number = plan["producer"]
            is_stored = self._has_batch is not None and self._has_batch(plan["topic"], (name, number), plan["at"])
            self._append(plan, None if is_stored else read_body(self._body_file(plan), plan["crc32c"]))

    def send(
        self, topic: str, keys: Sequence[RowIdentity], body: pa.RecordBatch, fix: str = "", reasons: Sequence[str] = ()
    ) -> None:
        """Send rows (``records.BODY``) that have these keys; ``fix`` describes their correction.

        ``reasons`` say for each row why it was in quarantine.
        """
        sequence = len(self._plans)
        plan: dict[str, Any] = {
            "sequence": sequence,
            "producer": [self._producer, self._numbers[topic]],
            "at": int(time.time() * 1000),
            "topic": topic,
            "keys": list(keys),
            "fix": fix,
            "reasons": [[reason, len(list(run))] for reason, run in groupby(reasons)],
        }
        # Order: the rows are synced before the plan that names them, and the plan before the rows are sent.
        plan["crc32c"] = _write_body(self._body_file(plan), body)
        append_lines(self._path, [plan])
        self._numbers[topic] += 1
        self._plans.append(plan)
        self._sent.update((topic, key) for key in keys)
        self._append(plan, body)

    def _append(self, plan: dict[str, Any], body: pa.RecordBatch | None) -> None:
        offsets: list[int] = []
        if body is not None:
            name, number = plan["producer"]
            offsets = self._receiver.append_batch(plan["topic"], body, (name, number))
        append_lines(self._path, [{"ended": plan["sequence"], "offsets": offsets}])
        self._completed.add(plan["sequence"])
        # Order: after the end is synced; until then a crash needs the rows again.
        self._body_file(plan).unlink(missing_ok=True)

    def _body_file(self, plan: dict[str, Any]) -> Path:
        return self._path.with_name(f"{self._path.stem}.{plan['sequence']}.arrow")


def sent_keys(path: Path) -> frozenset[tuple[str, RowIdentity]]:
    """Return topic and key of all rows with a plan in ``path``."""
    plans = (line for line in read_lines(path, _parse_line) if "keys" in line)
    return frozenset((plan["topic"], key) for plan in plans for key in plan["keys"])


@dataclass(frozen=True, slots=True)
class SentRow:
    """A row that was sent: its topic and key, when (milliseconds since the epoch), and how it was corrected.

    ``successor`` is the offset at which it was stored; None while it is sent. ``reason`` says why it was in quarantine;
    empty for other rows.
    """

    topic: str
    key: RowIdentity
    sent_at: int
    fix: str
    successor: int | None
    reason: str = ""


def sent_rows(path: Path) -> Iterator[SentRow]:
    """Yield the rows with a plan in ``path``, in the order in which they were sent."""
    lines = list(read_lines(path, _parse_line))
    offsets = {line["ended"]: line["offsets"] for line in lines if "ended" in line}
    for plan in lines:
        if "keys" in plan:
            successors = offsets.get(plan["sequence"]) or [None] * len(plan["keys"])
            reasons = [reason for reason, count in plan["reasons"] for _ in range(count)] or [""] * len(plan["keys"])
            for key, successor, reason in zip(plan["keys"], successors, reasons, strict=False):
                yield SentRow(plan["topic"], key, plan["at"], plan["fix"], successor, reason)


def to_body(rows: Sequence[Sent]) -> pa.RecordBatch:
    """Convert rows to ``records.BODY``."""
    columns: dict[str, list[Any]] = {
        "key": [key for key, _, _, _ in rows],
        "payload": [payload for _, payload, _, _ in rows],
        "type_url": [type_url for _, _, type_url, _ in rows],
        "annotations": [list(annotations.items()) for _, _, _, annotations in rows],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in BODY], schema=BODY)


def _parse_line(line: dict[str, Any]) -> dict[str, Any]:
    """Parse a line of the file. Raises an error if a field is missing."""
    if "ended" in line:
        return {"ended": int(line["ended"]), "offsets": list(line["offsets"])}
    name, number = line["producer"]
    return {
        **line,
        "crc32c": int(line["crc32c"]),
        "sequence": int(line["sequence"]),
        "producer": [str(name), int(number)],
        "keys": (keys := list(line["keys"])),
        # Limit: no more reasons than keys, whatever the counts in the line say.
        "reasons": [[str(reason), min(int(count), len(keys))] for reason, count in line.get("reasons", ())],
    }


def _refuse_damage(damage: Damage) -> None:
    """Accept a torn last line, whose rows were not sent. Raises DamagedFile for any other damage."""
    if not damage.torn:
        raise DamagedFile(f"{damage}; its rows would be sent again. Remove the line from the file to continue")
    log_damage(damage)


def _write_body(path: Path, body: pa.RecordBatch) -> int:
    """Write rows durably and return their CRC32C."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, body.schema) as writer:
        writer.write_batch(body)
    content = sink.getvalue()
    replace_durably(OS, path, content)
    return int(crc32c(content))


def read_body(path: Path, crc: int) -> pa.RecordBatch:
    """Return the rows in a file. Raises DamagedFile."""
    content = path.read_bytes()
    try:
        if crc == crc32c(content):
            return pa.ipc.open_file(content).get_batch(0)
    except pa.ArrowInvalid:
        pass
    raise DamagedFile(f"{path} is damaged: its rows cannot be sent again")
