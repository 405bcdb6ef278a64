"""Fixtures with real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe, install_command


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Callable[..., Pipe]]:
    """A factory of running pipes with further overrides; all are stopped in the end."""
    started: list[Pipe] = []

    def make(*overrides: str) -> Pipe:
        pipe = Pipe(tmp_path / str(len(started)), *overrides)
        pipe.output.parent.mkdir()
        started.append(pipe)
        pipe.start()
        return pipe

    yield make
    for pipe in started:
        pipe.stop()


@pytest.fixture(scope="module")
def one_pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    """A running pipe shared by the tests of a module; its folder has ``bin/penstock`` and ``penstock-data``."""
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
