"""Fixtures with real processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Pipe

sys.path.append(str(Path(__file__).parents[1] / "server"))  # for its certificates


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Callable[..., Pipe]]:
    """Makes running pipes with further overrides; all are stopped in the end."""
    made: list[Pipe] = []

    def make(*overrides: str) -> Pipe:
        pipe = Pipe(tmp_path / str(len(made)), *overrides)
        pipe.output.parent.mkdir()
        made.append(pipe)
        pipe.start()
        return pipe

    yield make
    for pipe in made:
        pipe.stop()


@pytest.fixture
def pipe(pipes: Callable[..., Pipe]) -> Pipe:
    """A running pipe."""
    return pipes()
