"""Names of the files in which a listener's processes meet."""

from __future__ import annotations

from pathlib import Path

LOG = "log"
"""The handler that is the log daemon."""


def buffer_file(folder: Path, listener: str) -> Path:
    """The listener's log buffer."""
    return folder / f"{listener}.logbuffer"


def slots_file(folder: Path, listener: str) -> Path:
    """The slots its datagrams are received into."""
    return folder / f"{listener}.slots"


def state_file(folder: Path, listener: str) -> Path:
    """What its receiver leaves for its successor, and its statistics."""
    return folder / f"{listener}.state"


def position_file(folder: Path, listener: str, handler: str) -> Path:
    """Where a handler has come to in the listener's log buffer."""
    return folder / f"{listener}.{handler}.position"
