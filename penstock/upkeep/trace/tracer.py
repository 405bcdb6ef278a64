"""Trace a message from the listener to the table, from files only: no Spark, no daemon.

Every stage records what the next one needs: a batch of the log names its listener and its position in the log buffer,
the journal of commits has the offsets and files of each micro-batch, and the proofs whether all offsets are accounted
for.
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
from penstock.landing.offset_runs import NO_RUNS, Runs, is_inside
from penstock.landing.rows.payload_fault import find_fault
from penstock.landing.rows.type_schemas import Schema
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout, partition_value
from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.foreign_deletions import deleted_offsets
from penstock.proof.proofs import Proof, proved_backfills, read_proofs
from penstock.proof.prover import requested
from penstock.qualified_names import is_partition, partition_name
from penstock.upkeep.quarantine.send_back import rows_sent_back
from penstock.upkeep.quarantine.send_once import SentRow
from penstock.upkeep.trace.find_message import (
    Report,
    find_in_log,
    find_offset,
    find_uuid,
    ignore_progress,
    likely_kinds,
    read_row,
)
from penstock.upkeep.trace.stations import Sighting, Step, build_steps, format_time

LANDED, QUARANTINED, DUPLICATE, GAP = "landed.", "quarantined.", "duplicate", "gap."
DROPPED = "transformed.dropped"
PENDING, NOT_READ, PASSED_OVER, PROMOTED = "pending", "kept", "passed_over", "promoted"
DELETED = "deleted"
CORRUPT, UNACCOUNTED, ABSENT, UNKNOWN, REMOVED = "corrupt", "unaccounted", "absent", "unknown", "removed"
MEANING = {
    DELETED: "had landed and was deleted from the table, by request or by retention",
    PENDING: "is in the log and has not landed yet",
    NOT_READ: "is in the log; no pipeline reads this topic",
    PASSED_OVER: "was not read: the pipeline started after it",
    PROMOTED: "is in Kafka, where the pipeline reads it:",
    DROPPED: "was dropped by the transformation of the pipeline",
    CORRUPT: "cannot be read and is not recorded as a gap yet: run `penstock log verify`",
    UNACCOUNTED: "is unaccounted for: committed, in no file of the table, in no gap, and no duplicate",
    ABSENT: "is not in the log",
    REMOVED: "was in a micro-batch; some of its files no longer exist",
    UNKNOWN: "is in no file of the table; only Kafka knows whether it is a duplicate or a chunk of a large message",
}


SENT_BACK = "sent back"
"""Name of the step of a quarantined message that was sent back."""
MESSAGE_POSITION = re.compile(r"(?P<topic>[A-Za-z0-9_\-.]+(?:/[0-9]{1,9})?):(?P<offset>[0-9]{1,18})")
"""``TOPIC:OFFSET``, or for Kafka ``TOPIC/PARTITION:OFFSET``."""


class NoSuchTopic(PenstockError, ValueError):
    """No topic has this name."""


class BrokenFile(PenstockError, ValueError):
    """The journal of commits or the proofs cannot be parsed; the text names the file."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The answer of a trace.

    ``fate`` is ``landed.KIND``, ``quarantined.REASON``, ``duplicate``, ``transformed.dropped``, ``gap.REASON``, or a
    key of MEANING.
    """

    topic: str
    offset: int
    uuid: str | None
    fate: str
    meaning: str
    steps: list[Step]

    @property
    def is_explained(self) -> bool:
        """Return whether the fate is known."""
        return self.fate not in (ABSENT, UNACCOUNTED, UNKNOWN, REMOVED)

    def document(self) -> dict[str, Any]:
        """Return the trace as a JSON document."""
        return asdict(self)


class Tracer:
    """A tracer over the topics of a folder and the tables of a layout. ``patterns``: topics that the pipeline reads.

    Commits and active files are read once per tracer. All methods may raise BrokenFile and OSError.
    """

    def __init__(
        self,
        topics: Path,
        layout: Layout,
        patterns: Sequence[str] = ("*",),
        report: Report = ignore_progress,
        schemas: Sequence[Schema] = (),
    ) -> None:
        """Create the tracer; ``schemas`` are the configured ones, by which faults are found."""
        self._schemas = tuple(schemas)
        self._topics, self._layout, self._patterns, self._report = topics, layout, tuple(patterns), report

    @cached_property
    def _commits(self) -> list[Commit]:
        try:
            return list(read_journal(self._layout))
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenFile(f"{self._layout.journal}: {type(error).__name__}: {error}") from None

    def _find_proof(self, commit: Commit, topic: str) -> Proof | None:
        try:
            backfilled = (backfill.proof for backfill in proved_backfills(self._layout))
            proofs = chain((proof for of_batch in read_proofs(self._layout) for proof in of_batch), backfilled)
            return next((proof for proof in proofs if (proof.batch, proof.topic) == (commit.batch, topic)), None)
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenFile(f"{self._layout.proofs}: {type(error).__name__}: {error}") from None

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic, or partition of Kafka (``events/0``), exists."""
        if is_partition(topic):
            return any(topic in commit.end for commit in self._commits)
        return topic not in ("", ".", "..") and (self._topics / topic).is_dir()

    def landed(self, uuid: str) -> tuple[str, int] | None:
        """Return topic and offset at which an event's uuid landed last."""
        names = [*self._unjournaled_files(), *self._active_files_of(self._commits)]
        row = find_uuid(self._layout.landed, _select_kinds(names, WITH_UUID), uuid, report=self._report)
        if row is None:
            return None
        return partition_name(row["topic"], row["partition"]), row["offset"]

    def waiting(self, uuid: str) -> tuple[str, int] | None:
        """Return topic and offset of an event in the log after the last landed offset."""
        names = sorted(path.name for path in self._topics.glob("[!_.]*") if path.is_dir())
        for name in names:
            reader = TopicReader(self._topics / name)
            offset = find_in_log(reader, uuid, self._landed_end(name), self._report)
            if offset is not None:
                return name, offset
        return None

    def trace(self, topic: str, offset: int) -> Trace:
        """Trace an offset. Raises NoSuchTopic."""
        if not self.has_topic(topic):
            raise NoSuchTopic(f"no topic {topic!r}")
        sighting = Sighting(topic, offset)
        if not is_partition(topic):
            self._look_in_log(sighting)
        self._look_in_table(sighting)
        fate = self._decide_fate(sighting)
        meaning = _describe_fate(sighting, fate, self._schemas)
        steps = [*build_steps(sighting), *self._kafka_steps(sighting)]
        for step in self._sent_back_steps(sighting):
            steps.append(step)
            if step.step == SENT_BACK:
                meaning = f"was in quarantine and was {step.text}"
        if fate in (PENDING, NOT_READ, PASSED_OVER) and steps[-1].step == "kafka":
            fate, meaning = PROMOTED, f"{MEANING[PROMOTED]} {steps[-1].details['topic']}:{steps[-1].details['offset']}"
        return Trace(topic, offset, sighting.uuid, fate, meaning, steps)

    def _kafka_steps(self, sighting: Sighting) -> Iterator[Step]:
        """Yield the position to which `penstock promote` copied the message."""
        offset_map = (
            OffsetMap.load(map_path(self._layout, sighting.topic)) if not is_partition(sighting.topic) else None
        )
        position = offset_map.kafka_position(sighting.offset) if offset_map else None
        if offset_map and position:
            name, kafka_offset = offset_map.partition_name(position[0]), position[1]
            yield Step("kafka", f"copied to {name}, offset {kafka_offset:,}", {"topic": name, "offset": kafka_offset})

    def _sent_back_steps(self, sighting: Sighting) -> Iterator[Step]:
        """Yield where the message was sent back to from quarantine, and from where it was sent back."""
        if is_partition(sighting.topic):
            return
        for row in rows_sent_back(self._layout):
            if row.topic == sighting.topic and row.key == sighting.offset:
                yield self._successor_step(row)
            elif row.topic == sighting.topic and row.successor == sighting.offset:
                text = f"{row.topic}:{row.key} on {format_time(row.sent_at * 1000)} ({row.fix})"
                yield Step("sent back from", text, {"topic": row.topic, "offset": row.key, "fix": row.fix})

    def _successor_step(self, row: SentRow) -> Step:
        sent = f"sent back on {format_time(row.sent_at * 1000)}" + (f" ({row.fix})" if row.fix else "")
        details = {"at": row.sent_at, "fix": row.fix, "topic": row.topic, "offset": row.successor}
        if row.successor is None:
            return Step(SENT_BACK, f"{sent}; its new offset is not recorded", details)
        successor = self.trace(row.topic, row.successor)
        text = f"{sent} as {row.topic}:{row.successor}, which {successor.meaning}"
        return Step(SENT_BACK, text, details | {"fate": successor.fate})

    def _look_in_log(self, sighting: Sighting) -> None:
        reader = TopicReader(self._topics / sighting.topic)
        try:
            sighting.end = reader.end
            sighting.gap = next((gap for gap in reader.gaps() if gap.begin <= sighting.offset < gap.end), None)
            sighting.stored = read_row(reader, sighting.offset)
        except CorruptBatch:
            sighting.corrupt = True
        except FileNotFoundError:
            raise NoSuchTopic(f"no topic {sighting.topic!r}") from None
        # For example a topic of a later version.
        except LogError as error:
            raise NoSuchTopic(f"topic {sighting.topic!r} cannot be read: {error}") from None

    def _look_in_table(self, sighting: Sighting) -> None:
        commits_in_turn = (
            (candidate, candidate.ranges()[sighting.topic])
            for candidate in self._commits
            if _contains(candidate, sighting.topic, sighting.offset)
        )
        committed = self._find_backfill(sighting) or next(commits_in_turn, None)
        if committed is not None:
            sighting.commit, sighting.span = committed
        kinds = likely_kinds(sighting.payload, sighting.stored.origin.codec) if sighting.stored else tuple(MessageKind)
        table = self._layout.landed
        files = sighting.commit.files if sighting.commit else ()
        sighting.has_missing_files = any(self._is_changed(name) for name in files)
        # Fast path: likely kinds first. A transformation may have given the message another kind.
        candidates = self._candidates(sighting)
        names = [
            *_select_kinds(candidates, kinds),
            *_select_kinds(candidates, [kind for kind in MessageKind if kind not in kinds]),
        ]
        sighting.row = find_offset(table, names, sighting.topic, sighting.offset, self._report)
        if sighting.commit is None:
            return
        sighting.proof = self._find_proof(sighting.commit, sighting.topic)
        uuid = sighting.uuid if sighting.row is None else None
        if uuid is not None:
            earlier = [commit for commit in self._commits if commit.batch <= sighting.commit.batch]
            events = _select_kinds([*self._active_files_of(earlier), *self._unjournaled_files()], WITH_UUID)
            sighting.survivor = find_uuid(table, events, uuid, sighting.topic, self._report)

    def _find_backfill(self, sighting: Sighting) -> tuple[Commit, tuple[int, int]] | None:
        """Return the last batch that landed the offset for a backfill request, and its range of the request."""
        # Order: newest first. A lost row lands again, so the first commit of its offset does not have it.
        for commit in reversed(self._commits):
            for request, runs in requested(self._layout, commit):
                if request.topic == sighting.topic and any(begin <= sighting.offset < end for begin, end in runs):
                    return commit, (runs[0][0], runs[-1][1])
        return None

    def _is_changed(self, name: str) -> bool:
        file = self._active.get(name)
        return file is None or file.live is not None or not (self._layout.landed / name).exists()

    def _candidates(self, sighting: Sighting) -> list[TableFile]:
        """Return the files that may have the row: of its batch, or files that the journal does not list."""
        if sighting.commit is None:
            return self._unjournaled_files()
        # Merged and backfilled rows are in files that no commit of the journal names.
        rewritten = sighting.has_missing_files or sighting.commit.first is not None
        return [*self._active_files_of([sighting.commit]), *(self._unjournaled_files() if rewritten else ())]

    def _active_files_of(self, commits: Sequence[Commit]) -> list[TableFile]:
        """Return the active files of commits, newest first."""
        return [self._active[name] for commit in reversed(commits) for name in commit.files if name in self._active]

    @cached_property
    def _active(self) -> dict[str, TableFile]:
        return {str(file): file for file in table_of(self._layout).active()}

    def _was_deleted(self, topic: str, offset: int) -> bool:
        return bool(is_inside(np.array([offset], np.int64), self._deleted.get(topic, NO_RUNS))[0])

    @cached_property
    def _deleted(self) -> dict[str, Runs]:
        return deleted_offsets(self._layout)

    def _unjournaled_files(self) -> list[TableFile]:
        journaled = set(self._active_files_of(self._commits))
        return [file for _, file in sorted(self._active.items()) if file not in journaled]

    def _landed_end(self, topic: str) -> int:
        return max((commit.end[topic] for commit in self._commits if topic in commit.end), default=0)

    def _is_read_by_pipeline(self, topic: str) -> bool:
        has_landed = any(topic in commit.end for commit in self._commits)
        return has_landed or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self._patterns)

    def _decide_fate(self, sighting: Sighting) -> str:
        if sighting.row is not None:
            kind = sighting.row["kind"]
            if kind == MessageKind.DROPPED:
                return DROPPED
            return f"{QUARANTINED}{sighting.row['reason']}" if kind == MessageKind.QUARANTINE else f"{LANDED}{kind}"
        if sighting.gap is not None:
            return f"{GAP}{sighting.gap.reason}"
        if sighting.corrupt:
            return CORRUPT
        if sighting.commit is not None:
            return self._fate_of_missing(sighting)
        if is_partition(sighting.topic):
            return PENDING if sighting.offset >= self._landed_end(sighting.topic) else PASSED_OVER
        if sighting.offset >= sighting.end or sighting.stored is None:
            return ABSENT
        if not self._is_read_by_pipeline(sighting.topic):
            return NOT_READ
        return PENDING if sighting.offset >= self._landed_end(sighting.topic) else PASSED_OVER

    def _fate_of_missing(self, sighting: Sighting) -> str:
        """Return the fate of an offset that was committed and is in no file."""
        if self._was_deleted(sighting.topic, sighting.offset):
            return DELETED
        if sighting.proof is not None and sighting.offset in sighting.proof.unaccounted:
            return UNACCOUNTED
        if sighting.survivor is not None:
            return DUPLICATE
        if sighting.has_missing_files:
            return REMOVED
        return UNKNOWN if is_partition(sighting.topic) else UNACCOUNTED


def _contains(commit: Commit, topic: str, offset: int) -> bool:
    begin, end = commit.ranges().get(topic, (0, 0))
    return begin <= offset < end


def _select_kinds(names: Sequence[TableFile], kinds: Sequence[str]) -> list[TableFile]:
    return [name for name in names if partition_value(name, "kind") in kinds]


def _describe_fate(sighting: Sighting, fate: str, schemas: Sequence[Schema]) -> str:
    if fate.startswith(LANDED):
        return f"has landed: {fate.removeprefix(LANDED)}"
    if fate.startswith(QUARANTINED):
        reason = fate.removeprefix(QUARANTINED)
        payload = sighting.payload
        fault = f" ({find_fault(reason, payload, schemas).text})" if payload is not None else ""
        return f"is in quarantine: {reason}{fault}"
    if fate.startswith(GAP):
        return f"is in a gap of the log: {fate.removeprefix(GAP)}{_describe_earlier_proof(sighting)}"
    if sighting.survivor is not None and fate == DUPLICATE:
        return f"is a duplicate of {sighting.survivor['topic']}:{sighting.survivor['offset']}, which has landed"
    return MEANING[fate]


def _describe_earlier_proof(sighting: Sighting) -> str:
    """Describe the proof of an offset that has expired since and is in no file."""
    if sighting.proof is None or not sighting.proof.holds or not sighting.proof.total(DUPLICATE):
        return ""
    duplicates, gaps = sighting.proof.total(DUPLICATE), sighting.proof.total(GAP)
    if not gaps:
        return " (and was proved to be a duplicate before)"
    return f" (its batch was proved before: {duplicates} duplicates, {gaps} in gaps)"
