"""A folder, FIFO or socket under the name of a state file ends a start at once, with one line that names it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.files.errors import NotAFile
from penstock.files.regular_files import check_data_directory, read_regular
from penstock.files.secret_files import check_secret, read_secret
from penstock.testing.pipe import Pipe

STATE = (
    *("token", "lock", "alarms.state", "pipeline.state", "pipeline.log", "endpoints.json"),
    *("buffers/in.logbuffer", "buffers/in.state", "buffers/in.slots", "buffers/in.senders", "buffers/in.log.position"),
    *("buffers/in.mine.forwarded", "buffers/in.held", "topics/CLOCK", "topics/LEDGER", "topics/LOCK", "topics/RESERVE"),
    *("topics/events/settings.json", "topics/events/0.arrows", "topics/events/0.index", "topics/events/0.state"),
    *("topics/events/cursors/mine.cursor", "relays/head/state", "relays/head/events.json"),
)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # The length of a socket's path is limited.
        server.bind(f"/proc/self/fd/{os.open(path.parent, os.O_PATH)}/{path.name}")


KINDS: dict[str, Callable[[Path], None]] = {"folder": Path.mkdir, "FIFO": os.mkfifo, "socket": make_socket}


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STATE)
def test_misplaced_folder_fifo_or_socket_is_named(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path)
    with pytest.raises(NotAFile) as refusal:
        check_data_directory(tmp_path)
    assert str(refusal.value) == f"{path} is a {kind} and must be a file: move it away, or remove it"
    remove(path)
    path.touch()
    check_data_directory(tmp_path)


def test_topic_with_the_name_of_a_file_and_a_link_to_a_file_are_accepted(tmp_path: Path) -> None:
    for topic in ("token", "app.log", "x.state"):
        (tmp_path / "topics" / topic).mkdir(parents=True)
    (tmp_path / "elsewhere").touch()
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    check_data_directory(tmp_path)
    check_data_directory(tmp_path / "missing")


def test_folders_whose_names_only_end_like_those_of_files_are_accepted(tmp_path: Path) -> None:
    for name in ("block", "clock", "my-token", "topics/BLOCK"):
        (tmp_path / name).mkdir(parents=True)
    check_data_directory(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "socket"])
@pytest.mark.parametrize("read", [read_secret, check_secret, read_regular])
def test_secret_that_is_no_file_is_refused(tmp_path: Path, kind: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / "secret"
    KINDS[kind](path)
    with pytest.raises(NotAFile, match=f"secret is a {kind} and must be a file"):
        read(path)


def test_secret_is_read_from_the_pipe_of_a_shell(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"secret")
    os.close(writer)
    assert read_secret(Path(f"/dev/fd/{reader}")) == b"secret"
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "kind"), [("token", "folder"), ("token", "FIFO"), ("buffers/events-udp.state", "FIFO")]
)
def test_start_ends_with_one_line(tmp_path: Path, name: str, kind: str) -> None:
    pipe = Pipe(tmp_path, "security.tokens.admin.token=the token of the administrator")
    path = pipe.data_dir / name
    path.parent.mkdir(parents=True)
    KINDS[kind](path)
    pipe.start(wait=False)
    assert pipe.process is not None
    try:
        assert pipe.process.wait(60) == 1
    finally:
        pipe.process.kill()
    line = f"penstock: {path} is a {kind} and must be a file: move it away, or remove it"
    assert pipe.output.read_text().splitlines()[-1] == line
    assert "Traceback" not in pipe.output.read_text()
