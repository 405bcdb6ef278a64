"""The commands of the documentation run, page by page, against a real daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Pipe

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("index", "listeners", "tables", "balance", "operating")


@pytest.fixture
def shell(pipe: Pipe) -> Path:
    """A folder with ``penstock`` in its ``bin``, configured for the running daemon by its file."""
    folder = pipe.output.parent
    (folder / "bin").mkdir()
    script = folder / "bin" / "penstock"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli.main "$@"\n')
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_their_order(pipe: Pipe, shell: Path, page: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{shell / 'bin'}:{os.environ['PATH']}",
        "PENSTOCK_DATA_DIR": str(pipe.data_dir),
        "PENSTOCK_LOG__HTTP": pipe.http,
        "PENSTOCK_LOG__GRPC": pipe.grpc,
    }
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.S)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert commands
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            cwd=shell,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
