"""The durable position in a journal: an append is entered, with its rows, before it is made.

Crash: a start after a kill appends the same rows under the same producer's number, which the log stores once. They
cannot be read a second time: the journal may have removed them, or moved them from /run to /var under other numbers.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.client.tail.positions import BadState, StateFile, new_id
from penstock.records import BODY

MAX_CURSOR_CHARACTERS = 1024


class BadJournalPosition(BadState):
    """A document that is not a position in a journal."""


@dataclass(slots=True)
class JournalPosition:
    """The cursor of the last entry that was read, and the append that is being made.

    ``cursor``: None before the first entry. ``pending``: the rows up to the cursor; they may be in the topic already.
    """

    producer: str
    sequence: int = 1
    cursor: str | None = None
    pending: pa.RecordBatch | None = None

    def renew(self) -> None:
        """Continue as another producer: the log has forgotten this one."""
        self.producer, self.sequence = new_id(), 1


class JournalPositionFile(StateFile[JournalPosition]):
    """The file of the position in a journal."""

    AFTER_REMOVAL = "to append the journal again (--since now: only new entries)"

    def _document(self, state: JournalPosition) -> dict[str, Any]:
        return document_of(state)

    def _parse(self, document: dict[str, Any]) -> JournalPosition:
        return position_of(document)


def document_of(position: JournalPosition) -> dict[str, Any]:
    """Return ``position`` as a JSON-ready mapping."""
    rows = position.pending
    return {
        "producer": position.producer,
        "sequence": position.sequence,
        "cursor": position.cursor,
        "pending": None if rows is None else b64encode(memoryview(rows.serialize())).decode(),
    }


def position_of(document: dict[str, Any]) -> JournalPosition:
    """Return the position in a document of ``document_of``. Raises BadJournalPosition."""
    try:
        position = JournalPosition(**{name: document[name] for name in JournalPosition.__slots__})
        if position.pending is not None:
            rows = b64decode(document["pending"], validate=True)
            position.pending = pa.ipc.read_record_batch(pa.py_buffer(rows), BODY)
            position.pending.validate(full=True)
    except (KeyError, TypeError, binascii.Error, ValueError, OSError, pa.ArrowException) as error:
        raise BadJournalPosition(f"no position in a journal: {error}") from None
    cursor = "" if position.cursor is None else position.cursor
    is_cursor = isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_CHARACTERS and "\0" not in cursor
    is_number = type(position.sequence) is int and 0 <= position.sequence < 1 << 64
    if not (is_cursor and is_number and isinstance(position.producer, str)):
        raise BadJournalPosition("no position in a journal: a number or a text is missing")
    return position
