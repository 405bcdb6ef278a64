"""Where a message has been, from the listener to the table, or where and why it stopped. By files: no Spark, no daemon.

Every stage leaves the next one what it needs to know: a batch of the log names its listener and its place in the log
buffer, the journal of commits the offsets and files of each micro-batch, and the proofs whether all is accounted for.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.from_kafka.offset_map import OffsetMap, map_path
from penstock.landing.journal import Commit, read_journal
from penstock.landing.offset_runs import NO_RUNS, is_inside
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.proofs import Proof, proved_refills, read_proofs
from penstock.proof.prover import requested
from penstock.proof.reread import is_partition
from penstock.upkeep.trace.find_message import (
    Tell,
    find_in_log,
    find_offset,
    find_uuid,
    likely_kinds,
    read_one,
    silent,
)
from penstock.upkeep.trace.stations import Seen, Step, steps_of

LANDED, QUARANTINED, DUPLICATE, GAP = "landed.", "quarantined.", "duplicate", "gap."
DROPPED = "transformed.dropped"
PENDING, KEPT, PASSED_OVER, PROMOTED = "pending", "kept", "passed_over", "promoted"
DELETED = "deleted"
CORRUPT, UNACCOUNTED, ABSENT, UNKNOWN, REMOVED = "corrupt", "unaccounted", "absent", "unknown", "removed"
MEANING = {
    DELETED: "had landed, and was taken out of the table, by request or as its retention says",
    PENDING: "waits in the log; it has not landed yet",
    KEPT: "is kept in the log; no pipeline reads this topic",
    PASSED_OVER: "was not read: the pipeline began behind it",
    PROMOTED: "is in Kafka, where the pipeline reads it:",
    DROPPED: "was dropped by the transformation of the pipeline",
    CORRUPT: "cannot be read, and is no gap yet: `penstock log verify` makes it one",
    UNACCOUNTED: "is unaccounted for: committed, in no file of the table, in no gap, and no duplicate",
    ABSENT: "is not in the log",
    REMOVED: "was in a micro-batch some of whose files are not there any more",
    UNKNOWN: "is in no file of the table; whether it is a duplicate, or part of a larger message, Kafka alone can tell",
}


PLACE = re.compile(r"(?P<topic>[A-Za-z0-9_\-.]+(?:/[0-9]{1,9})?):(?P<offset>[0-9]{1,18})")
"""``TOPIC:OFFSET``; a partition of Kafka is ``TOPIC/PARTITION:OFFSET``."""


class NoSuchTopic(PenstockError, ValueError):
    """There is no topic of that name."""


class BrokenFile(PenstockError, ValueError):
    """The journal of commits or the proofs cannot be understood; the text names the file."""


@dataclass(frozen=True, slots=True)
class Trace:
    """``fate``: ``landed.KIND``, ``quarantined.REASON``, ``duplicate``, ``transformed.dropped``, ``gap.REASON``, or one
    of MEANING.
    """

    topic: str
    offset: int
    uuid: str | None
    fate: str
    meaning: str
    steps: list[Step]

    @property
    def known(self) -> bool:
        """Whether it is known what became of it."""
        return self.fate not in (ABSENT, UNACCOUNTED, UNKNOWN, REMOVED)

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class Tracer:
    """Looks in the topics of a folder and the tables of a layout; ``patterns``: the topics that the pipeline reads.

    All its methods may raise BrokenFile, and OSError.
    """

    def __init__(self, topics: Path, layout: Layout, patterns: Sequence[str] = ("*",), tell: Tell = silent) -> None:
        self._topics, self._layout, self._patterns, self._tell = topics, layout, tuple(patterns), tell

    @cached_property
    def _commits(self) -> list[Commit]:
        try:
            return list(read_journal(self._layout))
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenFile(f"{self._layout.journal}: {type(error).__name__}: {error}") from None

    def _proof(self, commit: Commit, topic: str) -> Proof | None:
        try:
            refilled = (refill.proof for refill in proved_refills(self._layout))
            proofs = chain((proof for of_batch in read_proofs(self._layout) for proof in of_batch), refilled)
            return next((proof for proof in proofs if (proof.batch, proof.topic) == (commit.batch, topic)), None)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenFile(f"{self._layout.proofs}: {type(error).__name__}: {error}") from None

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic, or partition of Kafka (``events/0``)."""
        if is_partition(topic):
            return any(topic in commit.end for commit in self._commits)
        return "/" not in topic and topic not in ("", ".", "..") and (self._topics / topic).is_dir()

    def landed(self, uuid: str) -> tuple[str, int] | None:
        """Topic and offset where an event's uuid landed last."""
        names = [*self._unjournaled(), *self._files(self._commits)]
        row = find_uuid(self._layout.landed, _of_kinds(names, WITH_UUID), uuid, tell=self._tell)
        if row is None:
            return None
        number = row["partition"]
        return (row["topic"] if number is None else f"{row['topic']}/{number}"), row["offset"]

    def waiting(self, uuid: str) -> tuple[str, int] | None:
        """Topic and offset of an event that is in the log beyond what has landed."""
        names = sorted(path.name for path in self._topics.glob("[!_.]*") if path.is_dir())
        for name in names:
            reader = TopicReader(self._topics / name)
            offset = find_in_log(reader, uuid, self._landed_end(name), self._tell)
            if offset is not None:
                return name, offset
        return None

    def trace(self, topic: str, offset: int) -> Trace:
        """All that is known of an offset. Raises NoSuchTopic."""
        if not self.has_topic(topic):
            raise NoSuchTopic(f"there is no topic {topic!r}")
        seen = Seen(topic, offset)
        if not is_partition(topic):
            self._look_in_log(seen)
        self._look_in_table(seen)
        fate = self._fate(seen)
        meaning = _meaning(seen, fate)
        steps = [*steps_of(seen), *self._in_kafka(seen)]
        if fate in (PENDING, KEPT, PASSED_OVER) and steps[-1].step == "kafka":
            fate, meaning = PROMOTED, f"{MEANING[PROMOTED]} {steps[-1].details['topic']}:{steps[-1].details['offset']}"
        return Trace(topic, offset, seen.uuid, fate, meaning, steps)

    def _in_kafka(self, seen: Seen) -> Iterator[Step]:
        """Where `penstock promote` has copied it."""
        found = OffsetMap.load(map_path(self._layout, seen.topic)) if not is_partition(seen.topic) else None
        place = found.kafka_position(seen.offset) if found else None
        if found and place:
            name, at = found.partition_name(place[0]), place[1]
            yield Step("kafka", f"copied to {name}, offset {at:,}", {"topic": name, "offset": at})

    def _look_in_log(self, seen: Seen) -> None:
        reader = TopicReader(self._topics / seen.topic)
        try:
            seen.end = reader.end
            seen.gap = next((gap for gap in reader.gaps() if gap.begin <= seen.offset < gap.end), None)
            seen.stored = read_one(reader, seen.offset)
        except CorruptBatch:
            seen.corrupt = True
        except FileNotFoundError:
            raise NoSuchTopic(f"there is no topic {seen.topic!r}") from None
        except LogError as error:  # such as one of a later version
            raise NoSuchTopic(f"topic {seen.topic!r} cannot be read: {error}") from None

    def _look_in_table(self, seen: Seen) -> None:
        turns = ((c, c.ranges()[seen.topic]) for c in self._commits if _within(c, seen.topic, seen.offset))
        found = self._out_of_turn(seen) or next(turns, None)
        if found is not None:
            seen.commit, seen.span = found
        kinds = likely_kinds(seen.payload, seen.stored.origin.codec) if seen.stored else tuple(MessageKind)
        table = self._layout.landed
        files = seen.commit.files if seen.commit else ()
        seen.gone = any(self._is_changed(name) for name in files)
        candidates = self._candidates(seen)  # a transformation may give a message another kind
        names = [*_of_kinds(candidates, kinds), *_of_kinds(candidates, [k for k in MessageKind if k not in kinds])]
        seen.row = find_offset(table, names, seen.topic, seen.offset, self._tell)
        if seen.commit is None:
            return
        seen.proof = self._proof(seen.commit, seen.topic)
        uuid = seen.uuid if seen.row is None else None
        if uuid is not None:
            earlier = [commit for commit in self._commits if commit.batch <= seen.commit.batch]
            events = _of_kinds([*self._files(earlier), *self._unjournaled()], WITH_UUID)
            seen.survivor = find_uuid(table, events, uuid, seen.topic, self._tell)

    def _out_of_turn(self, seen: Seen) -> tuple[Commit, tuple[int, int]] | None:
        """The last batch that landed the offset because it was asked for, and what of the request it had."""
        for commit in reversed(self._commits):
            for request, runs in requested(self._layout, commit):
                if request.topic == seen.topic and any(begin <= seen.offset < end for begin, end in runs):
                    return commit, (runs[0][0], runs[-1][1])
        return None

    def _is_changed(self, name: str) -> bool:
        """Report whether rows of a file that a batch wrote were moved to other files, or deleted."""
        file = self._active.get(name)
        return file is None or file.live is not None or not (self._layout.landed / name).exists()

    def _candidates(self, seen: Seen) -> list[TableFile]:
        """The files that may have a row of a batch; of none: those that the journal does not have yet."""
        if seen.commit is None:
            return self._unjournaled()
        rewritten = seen.gone or seen.commit.first is not None
        return [*self._files([seen.commit]), *(self._unjournaled() if rewritten else ())]

    def _files(self, commits: Sequence[Commit]) -> list[TableFile]:
        """The files of batches that are in the table, newest first."""
        return [self._active[name] for commit in reversed(commits) for name in commit.files if name in self._active]

    @cached_property
    def _active(self) -> dict[str, TableFile]:
        return {str(file): file for file in table_of(self._layout).active()}

    def _was_deleted(self, topic: str, offset: int) -> bool:
        runs = DeletionRecord(self._layout).runs().get(topic, NO_RUNS)
        return bool(is_inside(np.array([offset], np.int64), runs)[0])

    def _unjournaled(self) -> list[TableFile]:
        known = set(self._files(self._commits))
        return [file for _, file in sorted(self._active.items()) if file not in known]

    def _landed_end(self, topic: str) -> int:
        return max((commit.end[topic] for commit in self._commits if topic in commit.end), default=0)

    def _is_read(self, topic: str) -> bool:
        known = any(topic in commit.end for commit in self._commits)
        return known or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self._patterns)

    def _fate(self, seen: Seen) -> str:
        if seen.row is not None:
            kind = seen.row["kind"]
            if kind == MessageKind.DROPPED:
                return DROPPED
            return f"{QUARANTINED}{seen.row['reason']}" if kind == MessageKind.QUARANTINE else f"{LANDED}{kind}"
        if seen.gap is not None:
            return f"{GAP}{seen.gap.reason}"
        if seen.corrupt:
            return CORRUPT
        if seen.commit is not None:
            return self._fate_of_missing(seen)
        if is_partition(seen.topic):
            return PENDING if seen.offset >= self._landed_end(seen.topic) else PASSED_OVER
        if seen.offset >= seen.end or seen.stored is None:
            return ABSENT
        if not self._is_read(seen.topic):
            return KEPT
        return PENDING if seen.offset >= self._landed_end(seen.topic) else PASSED_OVER

    def _fate_of_missing(self, seen: Seen) -> str:
        """Of an offset that was committed and is in no file."""
        if self._was_deleted(seen.topic, seen.offset):
            return DELETED
        if seen.proof is not None and seen.offset in seen.proof.unaccounted:
            return UNACCOUNTED
        if seen.survivor is not None:
            return DUPLICATE
        if seen.gone:
            return REMOVED
        return UNKNOWN if is_partition(seen.topic) else UNACCOUNTED


def _within(commit: Commit, topic: str, offset: int) -> bool:
    begin, end = commit.ranges().get(topic, (0, 0))
    return begin <= offset < end


def _of_kinds(names: Sequence[TableFile], kinds: Sequence[str]) -> list[TableFile]:
    return [name for name in names if partition_value(name, "kind") in kinds]


def _meaning(seen: Seen, fate: str) -> str:
    if fate.startswith(LANDED):
        return f"has landed: {fate.removeprefix(LANDED)}"
    if fate.startswith(QUARANTINED):
        return f"is in quarantine: {fate.removeprefix(QUARANTINED)}"
    if fate.startswith(GAP):
        return f"is in a gap of the log: {fate.removeprefix(GAP)}{_proved_before(seen)}"
    if seen.survivor is not None and fate == DUPLICATE:
        return f"is a duplicate of {seen.survivor['topic']}:{seen.survivor['offset']}, which has landed"
    return MEANING[fate]


def _proved_before(seen: Seen) -> str:
    """What the proof said of an offset that is in no file and has expired since."""
    if seen.proof is None or not seen.proof.holds or not seen.proof.total(DUPLICATE):
        return ""
    duplicates, gaps = seen.proof.total(DUPLICATE), seen.proof.total(GAP)
    if not gaps:
        return " (and was proved to be a duplicate before)"
    return f" (its batch was proved before: {duplicates} duplicates, {gaps} in gaps)"
