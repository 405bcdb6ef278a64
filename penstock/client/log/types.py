"""Arguments, return types and errors of the log's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from google.protobuf.message import Message

from penstock.errors import PenstockError

Payload = bytes | str | Message | None
"""A text is sent as UTF-8, a protobuf message as an Any of its type (an Any unchanged)."""


@dataclass(frozen=True, slots=True)
class AtCursor:
    """The position of a named cursor; the earliest entry if the cursor was never committed."""

    name: str


Start = int | datetime | Literal["earliest", "latest"] | AtCursor
"""An offset, a time (the first entry at or after it), one of the ends, or the position of a cursor."""
Setting = int | float | str | Sequence[str]
"""Sizes in bytes or as ``"16MiB"``, times in seconds or as ``"6h"``."""


class ClientError(PenstockError):
    """A call failed; the text is the server's. Raised itself if no subclass applies."""


class Refused(ClientError):
    """The request can never succeed unchanged: a bad name, setting or filter, or a message that is too large."""


class NotAllowed(Refused):
    """The token is missing or lacks this right; no token allows writing to internal topics."""


class TopicExists(Refused):
    """The topic already exists."""


class NoSuchTopic(ClientError):
    """The topic does not exist."""


class NoSuchTransaction(ClientError):
    """The transaction is not open: it was committed or aborted, or the server lost it."""


class TransactionTimedOut(ClientError):
    """The transaction was open for too long and was aborted: none of it was stored."""


class OutOfSequence(ClientError):
    """A producer's number is older than the remembered ones, leaves a gap, or is stored with other rows."""


class StoredAlready(OutOfSequence):
    """A producer's number is stored with other rows."""


class Exhausted(ClientError):
    """The server is out of disk space or topics: none of the request was stored; a retry may succeed later."""


class Damaged(ClientError):
    """The requested entries cannot be read, and the server could not replace them with a gap."""


class Unsupported(ClientError):
    """The server has no such call; slogd, for example, lacks the administrative ones."""


class Unavailable(ClientError):
    """The server is unreachable, stopping, or did not answer in time. A pending append may or may not be stored."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the server: PEM bytes or files. ``ca``: trusted authorities, by default the system's.

    ``cert`` and ``key``: own certificate, if the server requires one. ``name``: the name in the server's certificate,
    if it differs from the address.
    """

    ca: bytes | Path | None = None
    cert: bytes | Path | None = None
    key: bytes | Path | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a topic. ``payload`` is None if it was sent without one; ``type_url`` is set for an Any."""

    offset: int
    timestamp: datetime
    payload: bytes | None
    type_url: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one answer; ``next`` is the offset to continue at, also after entries that a filter left out."""

    entries: Sequence[Entry]
    next: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) whose entries are no longer stored, with the reason."""

    begin: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """A named cursor: the ``offset`` to read next, and its lag.

    ``lag_seconds`` is the age of the first unread entry.
    """

    topic: str
    name: str
    offset: int
    lag_entries: int
    lag_bytes: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: offsets [start, end) are readable except for the gaps; ``bytes`` is its size on disk.

    ``settings`` has sizes in bytes and times in seconds.
    """

    name: str
    start: int
    end: int
    bytes: int
    segments: int
    oldest: datetime | None
    newest: datetime | None
    gaps: Sequence[Gap]
    cursors: Sequence[Cursor]
    settings: Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Swept:
    """A range that a clean-up dropped from a topic: offsets [begin, end), ``bytes`` on disk, and the reason."""

    topic: str
    begin: int
    end: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """Bytes of a topic's sealed segments before and after the compaction."""

    before: int
    after: int
