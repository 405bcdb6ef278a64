"""What the log's clients take, give and raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from google.protobuf.message import Message

from penstock.errors import PenstockError

Payload = bytes | str | Message | None
"""A text is sent as UTF-8, a protobuf message as an Any of its type (an Any as it is)."""


@dataclass(frozen=True, slots=True)
class AtCursor:
    """Where the named cursor stands; the earliest entry while it was never committed."""

    name: str


Start = int | datetime | Literal["earliest", "latest"] | AtCursor
"""An offset, a time (the first entry at or after it), one of the ends, or where a cursor stands."""
Setting = int | float | str | Sequence[str]
"""Sizes in bytes or as ``"16MiB"``, times in seconds or as ``"6h"``."""


class ClientError(PenstockError):
    """A call failed; the text is the server's. Where nothing more exact is known, this itself is raised."""


class Refused(ClientError):
    """The request can never succeed as it stands: a bad name, setting or filter, a message too large."""


class NotAllowed(Refused):
    """The token, or none, does not give the right to this; internal topics cannot be written by anybody."""


class TopicExists(Refused):
    """The topic was there already."""


class NoSuchTopic(ClientError):
    """The topic does not exist."""


class NoSuchTransaction(ClientError):
    """The transaction is not open: it was committed, aborted, or the server forgot it."""


class TransactionTimedOut(ClientError):
    """The transaction was open for too long and was aborted: nothing of it was stored."""


class OutOfSequence(ClientError):
    """A producer's number is older than what is remembered, leaves a gap, or is stored with other rows."""


class Exhausted(ClientError):
    """The server is out of disk or topics: nothing of the request was stored; may succeed later."""


class Damaged(ClientError):
    """What was asked for cannot be read, and could not be set aside."""


class Unsupported(ClientError):
    """The server does not know this call, such as slogd itself."""


class Unavailable(ClientError):
    """The server is not there, is stopping or did not answer in time. What was being appended may be stored or not."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the server: PEM bytes or files. ``ca``: whom to trust, else the authorities of the system.

    ``cert`` and ``key`` are shown where the server asks for them; ``name`` is the one that its certificate holds for,
    where that is not the one it is reached by.
    """

    ca: bytes | Path | None = None
    cert: bytes | Path | None = None
    key: bytes | Path | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a topic. ``payload`` is None where it was sent without; ``type_url`` is set for an Any."""

    offset: int
    timestamp: datetime
    payload: bytes | None
    type_url: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Entries as they came together; ``next`` is the offset to go on at, also where a filter left entries out."""

    entries: Sequence[Entry]
    next: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [begin, end) that are not there any more, and why."""

    begin: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """A named cursor: the ``offset`` to read next, and how much there is to read.

    ``lag_seconds`` is the age of the first entry that is to be read.
    """

    topic: str
    name: str
    offset: int
    lag_entries: int
    lag_bytes: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: offsets [start, end) can be read but for the gaps; ``bytes`` on the disk.

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
    """What a clean-up dropped of a topic: offsets [begin, end), ``bytes`` on the disk, and why."""

    topic: str
    begin: int
    end: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """Bytes of a topic's sealed segments before and after they were rewritten."""

    before: int
    after: int
