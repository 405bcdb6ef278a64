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


def account_file(folder: Path, listener: str, handler: str) -> Path:
    """What a handler that is a process of its own has done with the listener's messages."""
    return folder / f"{listener}.{handler}.forwarded"


def hung_file(folder: Path, listener: str, handler: str) -> Path:
    """Where its last delivery that took too long stood when it was broken off."""
    return folder / f"{listener}.{handler}.hung"


def held_file(folder: Path, listener: str) -> Path:
    """Frames that were in the hands of a log daemon that stood still."""
    return folder / f"{listener}.held"


def listeners_in(folder: Path) -> list[str]:
    """The listeners that have a log buffer, those that are not configured any more among them."""
    return sorted(path.name.removesuffix(".logbuffer") for path in folder.glob("*.logbuffer"))


def handlers_in(folder: Path, listener: str) -> list[str]:
    """The handlers that have a position in the listener's log buffer."""
    found = (path.name.removeprefix(f"{listener}.").removesuffix(".position") for path in _of(folder, listener))
    return sorted(name for name in found if "." not in name)


def accounts_in(folder: Path, listener: str) -> list[str]:
    """The handlers that keep an account of the listener's messages, or kept one."""
    found = folder.glob(f"{listener}.*.forwarded")
    names = (path.name.removeprefix(f"{listener}.").removesuffix(".forwarded") for path in found)
    return sorted(name for name in names if "." not in name)


def _of(folder: Path, listener: str) -> list[Path]:
    return [path for path in folder.glob("*.position") if path.name.startswith(f"{listener}.")]
