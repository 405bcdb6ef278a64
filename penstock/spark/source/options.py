"""Options of the data source ``penstock``, parsed and checked."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import PenstockError
from penstock.landing import daemon_connection
from penstock.landing.daemon_connection import BadConnection, DaemonConnection
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import TopicStore, TopicView
from penstock.log.read.filters import BadFilter, Filter

COLUMNS = {
    "topic": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "payload": "binary",
    "type_url": "string",
    "annotations": "map<string,string>",
    "source": "string",
    "bucket": "timestamp",
    "received": "timestamp",
    "codec": "string",
}
"""Existing columns with their Spark types."""
EARLIEST = "earliest"
LATEST = "latest"
MIN_PARTITIONS = 2


class BadOption(PenstockError, ValueError):
    """An option of the data source is unknown or cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a read. ``location`` is the folder of the topics, or the daemon's Flight server.

    ``starting`` and ``ending``: offsets by topic, end exclusive; ``starting_word`` and the defaults hold for all
    others: ``starting_last`` rows before the latest; ``starting_at`` and ``ending_at``, log times in microseconds
    since the epoch.
    """

    location: Path | DaemonConnection
    topics: tuple[str, ...]
    starting: Mapping[str, int]
    starting_word: str
    ending: Mapping[str, int]
    max_rows: int
    max_bytes: int
    partitions: int
    columns: tuple[str, ...]
    starting_last: int = 0
    starting_at: int | None = None
    ending_at: int | None = None
    filter: str = ""
    fail_on_loss: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse Spark's options, in any case of letters. Raises BadOption."""
        raw = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(raw)
        location = _location(raw)
        raw, rows_before_latest = _split_latest(raw)
        starting_word, starting = _offsets(raw, "startingoffsets", EARLIEST, (EARLIEST, LATEST))
        _, ending = _offsets(raw, "endingoffsets", LATEST, (LATEST,))
        return cls(
            location=location,
            topics=tuple(part.strip() for part in raw.get("topic", "*").split(",") if part.strip()),
            starting=starting,
            starting_word=starting_word,
            ending=ending,
            max_rows=_number(raw, "maxrowspertrigger", 0),
            max_bytes=_number(raw, "maxbytespertrigger", 0),
            partitions=_number(raw, "partitions", 0) or default_partitions(),
            columns=_columns(raw),
            starting_last=rows_before_latest,
            starting_at=_moment(raw, "startingtimestamp"),
            ending_at=_moment(raw, "endingtimestamp"),
            filter=_filter(raw),
            fail_on_loss=_word(raw, "ondataloss", "count", ("count", "fail")) == "fail",
        )

    def store(self) -> TopicStore:
        """Open the store of the topics; not thread safe, and not to send to other processes."""
        if isinstance(self.location, Path):
            return FolderStore(self.location)
        from penstock.landing.topics.from_flight import FlightStore  # imports Flight and gRPC

        return FlightStore(self.location)

    def begin(self, topic: str, view: TopicView) -> int:
        """Return the offset at which a read of a topic starts."""
        if topic in self.starting:
            return self.starting[topic]
        if self.starting_at is not None:
            return view.at_timestamp(self.starting_at)
        if self.starting_word == LATEST:
            return max(view.end - self.starting_last, view.start)
        return view.start

    def end(self, topic: str, view: TopicView) -> int:
        """Return the exclusive end of a batch read of a topic."""
        end = view.end
        if topic in self.ending:
            return min(end, self.ending[topic])
        return end if self.ending_at is None else min(end, view.at_timestamp(self.ending_at))


def default_partitions() -> int:
    """Return the number of tasks of a large read: one for each processor."""
    return max(os.cpu_count() or 1, MIN_PARTITIONS)


OPTION_NAMES = (
    *("path", "topic", "startingOffsets", "endingOffsets", "maxRowsPerTrigger", "maxBytesPerTrigger"),
    *("startingTimestamp", "endingTimestamp", "partitions", "columns", "filter", "onDataLoss"),
    *daemon_connection.OPTION_NAMES,
)
LOWER_NAMES = tuple(name.lower() for name in OPTION_NAMES)


def _refuse_unknown(raw: Mapping[str, str]) -> None:
    for name in raw:
        if name not in LOWER_NAMES:
            close = difflib.get_close_matches(name, LOWER_NAMES, n=1, cutoff=0.5)
            names = OPTION_NAMES[LOWER_NAMES.index(close[0])] if close else ", ".join(OPTION_NAMES)
            raise BadOption(f"{name}: unknown option ({'did you mean' if close else 'known are'} {names}?)")


def _location(raw: Mapping[str, str]) -> Path | DaemonConnection:
    if bool(raw.get("path")) == bool(raw.get("uri")):
        raise BadOption("path or uri: set exactly one of them")
    if raw.get("path"):
        return Path(raw["path"])
    try:
        return DaemonConnection.from_options(raw)
    except BadConnection as error:
        raise BadOption(str(error)) from None


def _offsets(raw: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """Return a word and no offsets, or the default word and offsets by topic from JSON."""
    text = raw.get(name, default).strip()
    if text in words:
        return text, {}
    try:
        offsets = json.loads(text)
        if not isinstance(offsets, dict) or not all(type(o) is int and o >= 0 for o in offsets.values()):
            raise ValueError
    except ValueError:
        expected = " or ".join([*words, 'JSON such as {"events": 10}'])
        raise BadOption(f"{_spelling(name)}: {text!r} is not {expected}") from None
    return default, offsets


def _split_latest(raw: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Split ``latest-100`` into the word and the number."""
    # Limit: 15 digits, as a JSON number is exact.
    match = re.fullmatch(r"\s*latest-(\d{1,15})\s*", raw.get("startingoffsets", ""))
    return ({**raw, "startingoffsets": LATEST}, int(match[1])) if match else (dict(raw), 0)


def _moment(raw: Mapping[str, str], name: str) -> int | None:
    """Return microseconds since the epoch of an ISO time (UTC without a zone) or of milliseconds; None if absent."""
    text = raw.get(name, "").strip()
    if not text:
        return None
    try:
        if text.isdecimal():
            return int(text) * 1000
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise BadOption(f"{_spelling(name)}: {text!r} is not an ISO time, nor milliseconds since the epoch") from None


def _filter(raw: Mapping[str, str]) -> str:
    text = raw.get("filter", "")
    if text:
        try:
            Filter.parse(text)
        except BadFilter as error:
            raise BadOption(f"filter: {error}") from None
    return text


def _word(raw: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> str:
    text = raw.get(name, default).strip().lower()
    if text not in words:
        raise BadOption(f"{_spelling(name)}: {text!r} is not {' or '.join(words)}")
    return text


def _spelling(name: str) -> str:
    return OPTION_NAMES[LOWER_NAMES.index(name)]


def _number(raw: Mapping[str, str], name: str, default: int) -> int:
    text = raw.get(name, str(default))
    if not text.isdecimal():
        raise BadOption(f"{_spelling(name)}: {text!r} is not a whole number")
    return int(text)


def _columns(raw: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in raw.get("columns", "").split(",") if part.strip()) or tuple(COLUMNS)
    for name in names:
        if name not in COLUMNS:
            raise BadOption(f"columns: unknown column {name!r} (existing columns: {', '.join(COLUMNS)})")
    if len(set(names)) < len(names):
        raise BadOption("columns: a column is named twice")
    return names
