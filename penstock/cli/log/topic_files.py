"""Commands on the files of the log: ``verify`` and ``compact``.

They go through the daemon if it runs, as it holds the lock of the log, and open the files themselves otherwise.
"""

from __future__ import annotations

import contextlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock import log as files
from penstock.cli.common import fail
from penstock.cli.completion import topic_names
from penstock.cli.log.connect import Daemon, DaemonOptions, errors_in_one_line
from penstock.cli.log.topic_list import format_size
from penstock.cli.options import AsJson, Commands
from penstock.cli.progress import Progress
from penstock.client import ClientError, Compacted, Gap, Log, Unavailable
from penstock.files.change_log import record_command
from penstock.log.store.gaps import CORRUPT, FILE_NAME, load

log = Commands(help="Check and rewrite the files of the log.", no_args_is_help=True)
Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="Topics; all if none is named.", autocompletion=topic_names),
]


@log.command()
def verify(
    daemon: Daemon,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Check every checksum and index of the log's files.

    A damaged batch is moved to the topic's quarantine folder and becomes a gap; indexes are rebuilt. Exits with status
    1 if anything was damaged.
    """
    reports: dict[str, TopicReport] = {}
    with _open_log(daemon) as topic_log, Progress("checking") as progress:
        names = topics or topic_log.names()
        for number, name in enumerate(names, 1):
            progress.update(f"{name}, {number} of {len(names)}")
            reports[name] = _verify_topic(topic_log, name)
            if not as_json:
                print(f"{name}: {reports[name].line}", flush=True)
    if as_json:
        print(json.dumps({name: asdict(report) for name, report in reports.items()}, indent=2))
    sys.exit(1 if any(report.error or report.gaps for report in reports.values()) else 0)


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The outcome for one topic: the gaps that the check made, or why the topic cannot be checked."""

    gaps: Sequence[Gap]
    error: str | None = None

    @property
    def line(self) -> str:
        """Return the report as a line of text."""
        if self.error is not None:
            return f"cannot be checked: {self.error}"
        lost = sum(gap.end - gap.begin for gap in self.gaps)
        parts = ", ".join(f"{gap.begin:,} to {gap.end:,}" for gap in self.gaps)
        return f"{lost:,} entries cannot be read: offsets {parts}" if lost else "good"


def _verify_topic(topic_log: _TopicLog, name: str) -> TopicReport:
    try:
        return TopicReport(topic_log.verify(name))
    except Unavailable:
        raise
    except (ClientError, files.LogError) as error:
        # The other topics are still checked.
        return TopicReport([], str(error))


@log.command()
def compact(
    daemon: Daemon,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite closed segments in larger batches, compressed if the topic is configured so."""
    outcomes: dict[str, Compacted] = {}
    with _open_log(daemon) as topic_log, Progress("rewriting") as progress:
        names = topics or topic_log.names()
        for number, name in enumerate(names, 1):
            progress.update(f"{name}, {number} of {len(names)}")
            outcomes[name] = topic_log.compact(name)
            if not as_json:
                print(f"{name}: {_compaction_line(outcomes[name])}", flush=True)
    if as_json:
        print(json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()}, indent=2))


def _compaction_line(outcome: Compacted) -> str:
    return (
        f"{format_size(outcome.before)}, now {format_size(outcome.after)}" if outcome.before else "nothing to rewrite"
    )


class _TopicLog(ABC):
    """The operations on topics that daemon and files have in common."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def verify(self, name: str) -> list[Gap]: ...

    @abstractmethod
    def compact(self, name: str) -> Compacted: ...


class _DaemonLog(_TopicLog):
    """The topics of the running daemon.

    The daemon lists no internal topics: their names come from ``folder``, if the daemon runs on this machine.
    """

    def __init__(self, client: Log, folder: Path) -> None:
        self._client, self._folder = client, folder

    def names(self) -> list[str]:
        internal = sorted(path.name for path in self._folder.glob("_*") if path.is_dir())
        return [*filter(self._has_topic, internal), *self._client.topics()]

    def _has_topic(self, name: str) -> bool:
        try:
            return bool(self._client.describe(name))
        except ClientError:
            return False

    def verify(self, name: str) -> list[Gap]:
        return self._client.verify(name)

    def compact(self, name: str) -> Compacted:
        return self._client.compact(name)


class _FileLog(_TopicLog):
    """The topics of a log that this process opens.

    ``earlier_gaps`` are the gaps before the open: opening the log already finds some damage, which is reported too.
    """

    def __init__(self, opened: files.Log, earlier_gaps: Mapping[str, set[tuple[int, int]]], data_dir: Path) -> None:
        self._log, self._earlier_gaps, self._data_dir = opened, earlier_gaps, data_dir

    def names(self) -> list[str]:
        return self._log.names(internal=True)

    def verify(self, name: str) -> list[Gap]:
        topic = self._log.topic(name, internal=True)
        topic.verify()
        gaps = [Gap(gap.begin, gap.end, gap.reason) for gap in topic.gaps() if gap.reason == CORRUPT]
        return [gap for gap in gaps if (gap.begin, gap.end) not in self._earlier_gaps.get(name, ())]

    def compact(self, name: str) -> Compacted:
        before, after = self._log.topic(name, internal=True).compact()
        # A running daemon records it itself.
        record_command(self._data_dir, f"compact topic {name}")
        return Compacted(before, after)


@contextlib.contextmanager
def _open_log(daemon: DaemonOptions) -> Iterator[_TopicLog]:
    with errors_in_one_line(), daemon.client() as client:
        unavailable: Unavailable | None = None
        try:
            client.check()
        except Unavailable as error:
            unavailable = error
        if unavailable is None:
            yield _DaemonLog(client, daemon.settings.topics)
        else:
            with _open_files(daemon, unavailable) as opened:
                yield opened


@contextlib.contextmanager
def _open_files(daemon: DaemonOptions, unavailable: Unavailable) -> Iterator[_TopicLog]:
    folder = daemon.settings.topics
    if not folder.is_dir():
        fail(f"{unavailable}, and {folder} does not exist", 2)
    # Imports the whole daemon.
    from penstock.server.daemon import open_log

    earlier_gaps = {path.name: _read_gaps(path) for path in folder.iterdir() if path.is_dir()}
    try:
        opened = open_log(daemon.settings)
    except OSError as unusable:
        fail(unusable, 2)
    except files.LogLocked:
        fail(f"{unavailable}, but another process has {folder} open", 2)
    try:
        yield _FileLog(opened, earlier_gaps, daemon.settings.data_dir)
    except files.LogError as broken:
        fail(broken)
    finally:
        opened.close()


def _read_gaps(topic: Path) -> set[tuple[int, int]]:
    """Return the gaps of a topic's folder; none if the format is unknown, as such a topic cannot be opened."""
    with contextlib.suppress(files.UnknownFormat, FileNotFoundError):
        return {(gap.begin, gap.end) for gap in load(topic / FILE_NAME)}
    return set()
