"""Folders, FIFOs, sockets and devices under the name of a file: a read of them fails with odd texts, or never ends."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.files.errors import NotAFile

_KINDS = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"))


def check_regular(status: os.stat_result, path: Path, *, allow_pipe: bool = False) -> None:
    """Check that ``status`` is that of a file, or of a pipe. Raises NotAFile, which names ``path`` and what to do."""
    if not stat.S_ISREG(status.st_mode) and not (allow_pipe and stat.S_ISFIFO(status.st_mode)):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "device")
        raise NotAFile(f"{path} is a {kind} and must be a file: move it away, or remove it")


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raises OSError and NotAFile."""
    check_regular(path.stat(), path)
    return path.read_bytes()


def check_data_directory(data_dir: Path) -> None:
    """Check that each name of Penstock's own files is a file, if it exists. Raises OSError and NotAFile.

    Tables are left to their readers. One scan for each folder, without a stat for each file.
    """
    for folder, names in _folders_with_state(data_dir):
        with os.scandir(folder) as entries:
            for entry in entries:
                if _matches_state_name(entry.name, names) and not entry.is_file() and os.path.exists(entry.path):
                    check_regular(entry.stat(), Path(entry.path))


def _matches_state_name(name: str, names: tuple[str, ...]) -> bool:
    """Report whether ``name`` is one of ``names``, or ends with one that begins with a dot."""
    return any(name.endswith(listed) if listed.startswith(".") else name == listed for listed in names)


def _folders_with_state(data_dir: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield existing folders with the ends of the names of their files."""
    topics = data_dir / "topics"
    # A topic may be called app.log or token: in the folder of topics only names in capitals are files.
    folders = [(data_dir, _DATA_FILES), (data_dir / "buffers", _BUFFER_FILES), (topics, _LOG_FILES)]
    for topic in topics.glob("*"):
        folders += [(topic, _TOPIC_FILES), (topic / "cursors", _CURSOR_FILES)]
    folders += [(relay, _RELAY_FILES) for relay in (data_dir / "relays").glob("*")]
    return (pair for pair in folders if pair[0].is_dir())


_DATA_FILES = ("token", "lock", "endpoints.json", ".state", ".log")
_BUFFER_FILES = (".logbuffer", ".slots", ".senders", ".position", ".forwarded", ".held", ".hung", ".state")
_LOG_FILES = ("LOCK", "CLOCK", "LEDGER", "RESERVE")
_TOPIC_FILES = (".arrows", ".copies", ".index", ".state", ".synced", ".json")
_CURSOR_FILES = (".cursor", ".cursor.copy")
_RELAY_FILES = ("state", ".json")
