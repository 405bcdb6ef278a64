"""The log daemon as its supervisor starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.config.keys.log import LogConfig
from penstock.files.checked_document import FORMAT, encode
from penstock.handover.paths import LOG, buffer_file, position_file
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


def test_addresses_are_bound_before_log_buffers_are_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(data_dir=tmp_path, log=LogConfig(http=address, grpc="127.0.0.1:0"))
        settings.buffers.mkdir()
        # A drain reports damaged files as soon as it runs.
        for path in (buffer_file(settings.buffers, "in"), position_file(settings.buffers, "in", LOG)):
            path.write_bytes(b"damaged")
        task = json.dumps({"settings": settings.model_dump(mode="json"), "wakes": {}})
        command = [sys.executable, "-m", "penstock.server.daemon", str(os.getpid())]
        process = subprocess.run(command, input=task, capture_output=True, text=True, timeout=60, check=False)
    assert f"cannot listen on {address}" in process.stderr
    assert "log buffer" not in process.stderr
