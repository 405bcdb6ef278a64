"""Modules in the working folder replace none of Penstock or Python, and users' own are found there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.process.module_search import add_working_folder, module_command
from penstock.testing.pipe import Pipe, wait_until
from tests.system.virtual_environment import install, script_of

HANDLER = """
import queue
from pathlib import Path
class Mine:
    def deliver(self, batch, origin):
        Path("delivered").write_bytes(b"".join(batch.column("payload").to_pylist()))
        Path("queue").write_text(queue.__file__)
"""


@pytest.mark.parametrize("command", ["serve", "up --no-spark --no-console"])
def test_working_folder_adds_own_handlers_and_shadows_no_module(command: str, tmp_path: Path) -> None:
    package = install(tmp_path / "environment", "1.0")
    distribution = package.with_name("mine-1.0.dist-info")
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[penstock.handlers]\nmine = mine:Mine\n")
    folder = tmp_path / "folder"
    (folder / "penstock").mkdir(parents=True)
    for name in ("penstock/__init__.py", "queue.py", "logging.py"):
        (folder / name).write_text("raise SystemExit('a file of the working folder')")
    (folder / "mine.py").write_text(HANDLER)
    pipe = Pipe(tmp_path, "log.flight=")
    pipe.configure(
        'buffer = {term_length = "2MiB", slots = 64}\n'
        '[[listener]]\nname = "events"\nprotocol = "udp"\nport = 0\ncodec = "raw"\ndefrag.max_size = "16KiB"\n'
        '[[listener.handlers]]\ntype = "mine"\n[[listener.handlers]]\ntype = "log"\ntopic = "events"\n'
    )
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with pipe.output.open("ab") as output:
        words = [script_of(package), *command.split(), *pipe.options]
        pipe.process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, cwd=folder)
    try:
        pipe.wait_ready()
        pipe.datagrams(b"yipee!", listener="events")
        wait_until((folder / "queue").exists, what="the handler has the message")
        restarted = subprocess.run(
            [script_of(package), "restart", *pipe.options], env=environment, cwd=folder, capture_output=True, text=True
        )
        assert (restarted.returncode, restarted.stderr) == (0, ""), pipe.output.read_text()
    finally:
        pipe.stop()
    assert (folder / "delivered").read_bytes() == b"yipee!"
    assert not (folder / "queue").read_text().startswith(str(folder))
    assert "a file of the working folder" not in pipe.output.read_text()


def test_module_of_a_checkout_is_run_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert module_command("penstock.x", "1") == [sys.executable, "-m", "penstock.x", "1"]
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert module_command("penstock.x", "1") == [sys.executable, "-P", "-m", "penstock.x", "1"]


def test_working_folder_is_added_once_and_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", search := ["/first"])
    add_working_folder()
    add_working_folder()
    assert search == ["/first", str(tmp_path)]
    tmp_path.rmdir()
    add_working_folder()
    assert search == ["/first", str(tmp_path)]
