"""Fixtures with real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe, install_command


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


@pytest.fixture(scope="module")
def one_pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    """A running pipe that all tests of a module share; in its folder are ``bin/penstock`` and ``penstock-data``."""
    pipe = Pipe(tmp_path_factory.mktemp("pipe"))
    install_command(pipe.output.parent)
    (pipe.output.parent / "penstock-data").symlink_to(pipe.data_dir)
    pipe.start()
    yield pipe
    pipe.stop()


@pytest.fixture
def pipe(pipes: Callable[..., Pipe]) -> Pipe:
    """A running pipe."""
    return pipes()
