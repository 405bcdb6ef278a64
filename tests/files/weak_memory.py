"""A model of arm64's memory for code that shares mapped files: every order in which stores may be seen is tried.

The writer's real functions run once, and the model records which bytes they change between two barriers. The reader's
real functions then run against each content of the files that a reader may see: between two of its barriers each
changed range has any of its versions, no range goes back, and a barrier of the reader orders what the barriers of the
writer have ordered. A store of the reader may become visible before its earlier loads, unless a barrier is between.
"""

from __future__ import annotations

import itertools
import mmap
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.files import memory_order

CUT_BYTES = 32
"""Ranges are cut at these offsets: a processor may delay each part of a long copy."""


class NotPossible(Exception):
    """The loads that were chosen contradict the barriers of the reader."""


@dataclass(slots=True)
class Range:
    """Bytes that become visible at once, with their versions: the writer's epoch and the content."""

    file: int
    begin: int
    end: int
    versions: list[tuple[int, bytes]]


@dataclass
class WeakMemory:
    """The files that a writer and a reader share.

    ``without``: functions whose barriers are left out. ``grain``: bytes that become visible at once, 4, 8 or 16.
    """

    paths: Sequence[Path]
    without: frozenset[str] = frozenset()
    grain: int = 4
    ranges: list[Range] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._maps = []
        for path in self.paths:
            with path.open("r+b") as file:
                self._maps.append(mmap.mmap(file.fileno(), 0))
        self.runs = 0
        self._shown: tuple[int, ...] | None = None
        self._successors: dict[tuple[tuple[int, ...], bool], list[tuple[int, ...]]] = {}

    def record(self, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object], settled: int = 0) -> None:
        """Run the writer; what it changes before its barrier number ``settled`` is visible from the start."""
        snapshots = [[bytes(each) for each in self._maps]]
        epochs = [0]

        def barrier() -> None:
            snapshots.append([bytes(each) for each in self._maps])
            epochs.append(epochs[-1] + (_caller() not in self.without))

        with monkeypatch.context() as patches:
            patches.setattr(memory_order, "IS_WEAK", True)
            patches.setattr(memory_order, "barrier", barrier)
            write()
        snapshots.append([bytes(each) for each in self._maps])
        first = epochs[settled]
        self._set_versions(snapshots[settled:], [max(epoch - first, 0) for epoch in epochs[settled:]])

    def _set_versions(self, snapshots: list[list[bytes]], epochs: list[int]) -> None:
        for file in range(len(self._maps)):
            changed = [
                np.frombuffer(before[file], f"V{self.grain}") != np.frombuffer(after[file], f"V{self.grain}")
                for before, after in itertools.pairwise(snapshots)
            ]
            marks = np.array(changed)
            used = np.flatnonzero(marks.any(axis=0))
            for index in used.tolist():
                begin, pattern = self.grain * index, marks[:, index].tobytes()
                last = self.ranges[-1] if self.ranges else None
                is_same = last is not None and last.file == file and last.end == begin and begin % CUT_BYTES
                if is_same and last is not None and marks[:, last.begin // self.grain].tobytes() == pattern:
                    last.end = begin + self.grain
                else:
                    self.ranges.append(Range(file, begin, begin + self.grain, []))
            for part in self.ranges:
                if part.file == file:
                    part.versions.append((-1, snapshots[0][file][part.begin : part.end]))
                    for number in np.flatnonzero(marks[:, part.begin // self.grain]).tolist():
                        content = snapshots[number + 1][file][part.begin : part.end]
                        part.versions.append((epochs[number], content))

    def successors(self, seen: tuple[int, ...], is_ordered: bool) -> list[tuple[int, ...]]:
        """Return the versions that may be seen after ``seen``.

        No range goes back; after a barrier all is visible that the writer's barriers have ordered before what was seen.
        """
        if (seen, is_ordered) not in self._successors:
            reached = max((part.versions[n][0] for part, n in zip(self.ranges, seen, strict=True)), default=-1)
            choices = []
            for part, n in zip(self.ranges, seen, strict=True):
                ordered = [i for i, (epoch, _) in enumerate(part.versions) if epoch < reached] if is_ordered else []
                choices.append(range(max([n, *ordered]), len(part.versions)))
            self._successors[seen, is_ordered] = list(itertools.product(*choices))
        return self._successors[seen, is_ordered]

    def show(self, versions: tuple[int, ...]) -> None:
        """Store the versions into the files."""
        for index, (part, number) in enumerate(zip(self.ranges, versions, strict=True)):
            if self._shown is None or self._shown[index] != number:
                self._maps[part.file][part.begin : part.end] = part.versions[number][1]
        self._shown = versions

    def find_wrong(
        self,
        monkeypatch: pytest.MonkeyPatch,
        read: Callable[[], Any],
        is_right: Callable[[Any], bool],
        has_answered: Callable[[], bool] | None = None,
    ) -> str:
        """Return the first wrong thing that ``read`` returns or raises in any order; "" if there is none.

        With ``has_answered`` the writer's stores behind its first barrier wait for a store of the reader; it reports
        whether that one was made.
        """
        prefix: list[int] = []
        with monkeypatch.context() as patches:
            patches.setattr(memory_order, "IS_WEAK", True)
            while True:
                run = _Run(self, prefix, has_answered)
                patches.setattr(memory_order, "barrier", run.barrier)
                outcome: Any = None
                try:
                    run.choose(is_ordered=False)
                    outcome = read()
                    run.check_end()
                    if not is_right(outcome):
                        return repr(outcome)
                except NotPossible:
                    pass
                except Exception as error:  # noqa: BLE001 - an error of the reader is a wrong outcome
                    return repr(error)
                self.runs += 1
                prefix = run.next_prefix()
                if not prefix:
                    return ""

    def close(self) -> None:
        for each in self._maps:
            each.close()


class _Run:
    """An execution of the reader, which follows ``prefix`` and then takes each first choice."""

    def __init__(self, memory: WeakMemory, prefix: list[int], has_answered: Callable[[], bool] | None) -> None:
        self._memory, self._prefix, self._has_answered = memory, prefix, has_answered
        self._choices: list[tuple[int, int]] = []
        self._seen = (0,) * len(memory.ranges)
        self._awaits_answer = False

    def barrier(self) -> None:
        is_ordered = _caller() not in self._memory.without
        if is_ordered:
            self.check_end()
        self.choose(is_ordered)

    def check_end(self) -> None:
        """End the run if it has seen an answer to a store that it had not made before the next barrier."""
        if self._awaits_answer and self._has_answered is not None and not self._has_answered():
            raise NotPossible
        self._awaits_answer = False

    def choose(self, is_ordered: bool) -> None:
        """Show the next content."""
        successors = self._memory.successors(self._seen, is_ordered)
        depth = len(self._choices)
        index = self._prefix[depth] if depth < len(self._prefix) else 0
        self._choices.append((index, len(successors)))
        self._seen = successors[index]
        self._memory.show(self._seen)
        ranges = self._memory.ranges
        self._awaits_answer |= any(part.versions[n][0] > 0 for part, n in zip(ranges, self._seen, strict=True))

    def next_prefix(self) -> list[int]:
        """Return the choices of the next run; empty after the last one."""
        choices = self._choices
        while choices and choices[-1][0] + 1 >= choices[-1][1]:
            choices = choices[:-1]
        return [index for index, _ in choices[:-1]] + [choices[-1][0] + 1] if choices else []


def _caller() -> str:
    """Return the name of the function that called the barrier."""
    return sys._getframe(2).f_code.co_qualname
