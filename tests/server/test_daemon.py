"""The log daemon as its supervisor starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.files.checked_document import FORMAT, encode
from penstock.log import Log


def newer(topics: Path) -> str:
    """Write a transaction of a later version."""
    data = encode({"format": FORMAT + 1, "places": {}})
    topics.joinpath("TRANSACTION-x.intent").write_bytes(data)
    return f"TRANSACTION-x.intent has format {FORMAT + 1}, this version of Penstock reads {FORMAT}"


@pytest.mark.parametrize("held", [True, False], ids=["open elsewhere", "of a later version"])
def test_unopenable_log_is_reported_in_one_line(tmp_path: Path, held: bool) -> None:
    settings = Settings(data_dir=tmp_path)
    log = Log(settings.topics)
    if not held:
        log.close()
    why = f"{settings.topics} is open in another process" if held else newer(settings.topics)
    task = json.dumps({"settings": settings.model_dump(mode="json"), "wakes": {}})
    command = [sys.executable, "-m", "penstock.server.daemon", str(os.getpid())]
    process = subprocess.run(command, input=task, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 1
    assert process.stderr.partition(" ")[2] == f"log daemon: the log in {settings.topics} cannot be opened: {why}\n"
    log.close()
