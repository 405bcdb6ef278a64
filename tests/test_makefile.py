"""The Makefile installs for a run what a run needs, and for tests the rest, in either order."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN, TEST = "'.[spark,kafka,console,java,otel]'", "'.[spark,kafka,console,java,otel,dev]'"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files that decide the installation, without an environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def installed(checkout: Path, target: str) -> list[str]:
    """Return the extras that a target would install, and mark the steps as done."""
    command = ["make", "--dry-run", target]
    without_make = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    lines = subprocess.run(
        command, cwd=checkout, env=without_make, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for line in lines:
        if line.startswith("touch "):
            (checkout / line.removeprefix("touch ")).touch()
    installations = [line for line in lines if " install " in line]
    assert all("--constraint constraints.txt" in line for line in installations)
    return [line.rpartition(" ")[2] for line in installations]


@pytest.mark.parametrize("target", ["run", "demo"])
def test_run_installs_nothing_that_only_tests_need(checkout: Path, target: str) -> None:
    assert installed(checkout, target) == [RUN]
    assert installed(checkout, target) == []


def test_tests_install_the_rest_after_a_run(checkout: Path) -> None:
    assert installed(checkout, "run") == [RUN]
    assert installed(checkout, "test") == [TEST]
    assert installed(checkout, "run") == []


def test_run_installs_nothing_after_tests(checkout: Path) -> None:
    assert installed(checkout, "test") == [RUN, TEST]
    assert installed(checkout, "run") == []
    assert installed(checkout, "check") == []


def test_changed_dependencies_are_installed_again(checkout: Path) -> None:
    assert installed(checkout, "test") == [RUN, TEST]
    later = (checkout / ".venv/.ready-to-test").stat().st_mtime + 10
    os.utime(checkout / "pyproject.toml", (later, later))
    assert installed(checkout, "run") == [RUN]
