"""Commands on the files of the log: verify, compact. Through the daemon when it runs, else on the files themselves."""

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
from penstock.cli.log.connect import Daemon, Where, one_line
from penstock.cli.log.figures import size
from penstock.cli.options import AsJson, Commands
from penstock.cli.progress import Progress
from penstock.client import ClientError, Compacted, Gap, Log, Unavailable
from penstock.log.store.gaps import CORRUPT, FILE_NAME, load

log = Commands(help="Check and rewrite the files of the log.", no_args_is_help=True)
Topics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", help="These topics; else all.", autocompletion=topic_names)
]
LAST = 2**63 - 1


@log.command()
def verify(
    where: Daemon,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Check every checksum and index. What is bad is put aside and becomes a gap; indices are rebuilt.

    Ends with status 1 when there was something bad.
    """
    found: dict[str, Checked] = {}
    with _opened(where) as what, Progress("checking") as progress:
        names = topics or what.names()
        for number, name in enumerate(names, 1):
            progress.tell(f"{name}, {number} of {len(names)}")
            found[name] = _checked(what, name)
            if not as_json:
                print(f"{name}: {found[name].line}", flush=True)
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))
    sys.exit(1 if any(one.error or one.gaps for one in found.values()) else 0)


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of the check of one topic: the gaps that were made, or why it could not be checked."""

    gaps: Sequence[Gap]
    error: str | None = None

    @property
    def line(self) -> str:
        """For people."""
        if self.error is not None:
            return f"cannot be checked: {self.error}"
        lost = sum(gap.end - gap.begin for gap in self.gaps)
        parts = ", ".join(f"{gap.begin:,} to {gap.end:,}" for gap in self.gaps)
        return f"{lost:,} entries cannot be read: offsets {parts}" if lost else "good"


def _checked(what: _Topics, name: str) -> Checked:
    """One topic that cannot be checked does not keep the others from it."""
    try:
        return Checked(what.verify(name))
    except Unavailable:
        raise
    except (ClientError, files.LogError) as error:
        return Checked([], str(error))


@log.command()
def compact(
    where: Daemon,
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite closed segments in larger batches, compressed where the topic is so configured."""
    done: dict[str, Compacted] = {}
    with _opened(where) as what, Progress("rewriting") as progress:
        names = topics or what.names()
        for number, name in enumerate(names, 1):
            progress.tell(f"{name}, {number} of {len(names)}")
            done[name] = what.compact(name)
            if not as_json:
                print(f"{name}: {_compacted(done[name])}", flush=True)
    if as_json:
        print(json.dumps({name: asdict(one) for name, one in done.items()}, indent=2))


def _compacted(one: Compacted) -> str:
    return f"{size(one.before)}, now {size(one.after)}" if one.before else "nothing to rewrite"


class _Topics(ABC):
    """What both ways can do."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def verify(self, name: str) -> list[Gap]: ...

    @abstractmethod
    def compact(self, name: str) -> Compacted: ...


class _Daemon(_Topics):
    """Internal topics are not listed; their names are seen in ``folder`` where the daemon is on this machine."""

    def __init__(self, client: Log, folder: Path) -> None:
        self._client, self._folder = client, folder

    def names(self) -> list[str]:
        internal = sorted(path.name for path in self._folder.glob("_*") if path.is_dir())
        return [*filter(self._known, internal), *self._client.topics()]

    def _known(self, name: str) -> bool:
        try:
            return bool(self._client.describe(name))
        except ClientError:
            return False

    def verify(self, name: str) -> list[Gap]:
        return self._client.verify(name)

    def compact(self, name: str) -> Compacted:
        return self._client.compact(name)


class _Files(_Topics):
    """``known``: the gaps there were before the log was opened, which finds some of what is bad itself."""

    def __init__(self, opened: files.Log, known: Mapping[str, set[tuple[int, int]]]) -> None:
        self._log, self._known = opened, known

    def names(self) -> list[str]:
        return self._log.names(internal=True)

    def verify(self, name: str) -> list[Gap]:
        topic = self._log.topic(name, internal=True)
        topic.verify()
        found = [Gap(gap.begin, gap.end, gap.reason) for gap in topic.gaps() if gap.reason == CORRUPT]
        return [gap for gap in found if (gap.begin, gap.end) not in self._known.get(name, ())]

    def compact(self, name: str) -> Compacted:
        before, after = self._log.topic(name, internal=True).compact()
        return Compacted(before, after)


@contextlib.contextmanager
def _opened(where: Where) -> Iterator[_Topics]:
    with one_line(), where.log() as client:
        away: Unavailable | None = None
        try:
            client.check()
        except Unavailable as error:
            away = error
        if away is None:
            yield _Daemon(client, where.settings.topics)
        else:
            with _files(where, away) as opened:
                yield opened


@contextlib.contextmanager
def _files(where: Where, error: Unavailable) -> Iterator[_Topics]:
    """The topics of the data directory, while no daemon has them."""
    folder = where.settings.topics
    if not folder.is_dir():
        fail(f"{error}, and there are no topics in {folder}", 2)
    from penstock.server.daemon import open_log  # it brings all of the daemon along

    known = {path.name: _known_gaps(path) for path in folder.iterdir() if path.is_dir()}
    try:
        opened = open_log(where.settings)
    except OSError as unusable:
        fail(unusable, 2)
    except files.LogLocked:
        fail(f"{error}, but another process has {folder} open", 2)
    try:
        yield _Files(opened, known)
    except files.LogError as broken:
        fail(broken)
    finally:
        opened.close()


def _known_gaps(topic: Path) -> set[tuple[int, int]]:
    """The gaps of a topic's folder; none where their format is not known: such a topic is not opened."""
    with contextlib.suppress(files.UnknownFormat, FileNotFoundError):
        return {(gap.begin, gap.end) for gap in load(topic / FILE_NAME)}
    return set()
