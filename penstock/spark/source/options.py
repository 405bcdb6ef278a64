"""The options of the data source ``penstock``, checked."""

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
"""The columns there are, with their Spark types."""
EARLIEST = "earliest"
LATEST = "latest"
MIN_PARTITIONS = 2


class BadOption(PenstockError, ValueError):
    """An option of the data source is unknown or cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """``where``: the folder of the topics, or the daemon's Flight server.

    ``starting`` and ``ending``: offsets by topic, with the word for all other topics. Offsets are exclusive ends.

    ``starting_last``: how many rows before the latest; ``starting_at``, ``ending_at``: times of the log in
    microseconds since the epoch. They hold for topics that ``starting`` and ``ending`` do not name.
    """

    where: Path | DaemonConnection
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
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """From Spark's options (any case of letters). Raises BadOption."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        where = _where(given)
        given, last = _without_last(given)
        starting_word, starting = _offsets(given, "startingoffsets", EARLIEST, (EARLIEST, LATEST))
        _, ending = _offsets(given, "endingoffsets", LATEST, (LATEST,))
        return cls(
            where=where,
            topics=tuple(part.strip() for part in given.get("topic", "*").split(",") if part.strip()),
            starting=starting,
            starting_word=starting_word,
            ending=ending,
            max_rows=_number(given, "maxrowspertrigger", 0),
            max_bytes=_number(given, "maxbytespertrigger", 0),
            partitions=_number(given, "partitions", 0) or max(os.cpu_count() or 1, MIN_PARTITIONS),
            columns=_columns(given),
            starting_last=last,
            starting_at=_moment(given, "startingtimestamp"),
            ending_at=_moment(given, "endingtimestamp"),
            filter=_filter(given),
            fail_on_loss=_word(given, "ondataloss", "count", ("count", "fail")) == "fail",
        )

    def store(self) -> TopicStore:
        """The place where the topics are; not to be shared by threads, nor sent to other processes."""
        if isinstance(self.where, Path):
            return FolderStore(self.where)
        from penstock.landing.topics.from_flight import FlightStore  # brings Flight and gRPC

        return FlightStore(self.where)

    def begin(self, topic: str, view: TopicView) -> int:
        """The offset a topic is read from."""
        if topic in self.starting:
            return self.starting[topic]
        if self.starting_at is not None:
            return view.at_timestamp(self.starting_at)
        if self.starting_word == LATEST:
            return max(view.end - self.starting_last, view.start)
        return view.start

    def end(self, topic: str, view: TopicView) -> int:
        """The offset before which a batch read of a topic ends."""
        end = view.end
        if topic in self.ending:
            return min(end, self.ending[topic])
        return end if self.ending_at is None else min(end, view.at_timestamp(self.ending_at))


WRITTEN = (
    *("path", "topic", "startingOffsets", "endingOffsets", "maxRowsPerTrigger", "maxBytesPerTrigger"),
    *("startingTimestamp", "endingTimestamp", "partitions", "columns", "filter", "onDataLoss"),
    *daemon_connection.OPTION_NAMES,
)
KNOWN = tuple(name.lower() for name in WRITTEN)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
            known = WRITTEN[KNOWN.index(close[0])] if close else ", ".join(WRITTEN)
            raise BadOption(f"{name}: unknown option ({'did you mean' if close else 'known are'} {known}?)")


def _where(given: Mapping[str, str]) -> Path | DaemonConnection:
    if bool(given.get("path")) == bool(given.get("uri")):
        raise BadOption("path or uri: say where the topics are, by one of them")
    if given.get("path"):
        return Path(given["path"])
    try:
        return DaemonConnection.from_options(given)
    except BadConnection as error:
        raise BadOption(str(error)) from None


def _offsets(given: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """A word, or offsets by topic as JSON (for other topics the default word holds)."""
    text = given.get(name, default).strip()
    if text in words:
        return text, {}
    try:
        offsets = json.loads(text)
        if not isinstance(offsets, dict) or not all(type(o) is int and o >= 0 for o in offsets.values()):
            raise ValueError
    except ValueError:
        expected = " or ".join([*words, 'JSON such as {"events": 10}'])
        raise BadOption(f"{_written(name)}: {text!r} is not {expected}") from None
    return default, offsets


def _without_last(given: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """``latest-100`` as the word and the number."""
    match = re.fullmatch(r"\s*latest-(\d{1,15})\s*", given.get("startingoffsets", ""))
    return ({**given, "startingoffsets": LATEST}, int(match[1])) if match else (dict(given), 0)


def _moment(given: Mapping[str, str], name: str) -> int | None:
    """Microseconds since the epoch of an ISO time (UTC where it has no zone) or of milliseconds."""
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        if text.isdecimal():
            return int(text) * 1000
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise BadOption(f"{_written(name)}: {text!r} is not an ISO time, nor milliseconds since the epoch") from None


def _filter(given: Mapping[str, str]) -> str:
    text = given.get("filter", "")
    if text:
        try:
            Filter.parse(text)
        except BadFilter as error:
            raise BadOption(f"filter: {error}") from None
    return text


def _word(given: Mapping[str, str], name: str, default: str, words: tuple[str, ...]) -> str:
    text = given.get(name, default).strip().lower()
    if text not in words:
        raise BadOption(f"{_written(name)}: {text!r} is not {' or '.join(words)}")
    return text


def _written(name: str) -> str:
    return WRITTEN[KNOWN.index(name)]


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal():
        raise BadOption(f"{_written(name)}: {text!r} is not a whole number")
    return int(text)


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in given.get("columns", "").split(",") if part.strip()) or tuple(COLUMNS)
    for name in names:
        if name not in COLUMNS:
            raise BadOption(f"columns: there is no column {name!r} (known are {', '.join(COLUMNS)})")
    if len(set(names)) < len(names):
        raise BadOption("columns: a column is named twice")
    return names
