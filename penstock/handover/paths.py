"""Names of the files that processes share: of a listener, a relay and the pipeline."""

from __future__ import annotations

from pathlib import Path

LOG = "log"
"""Name of the log daemon as a handler."""
RELAYS_FOLDER = "relays"
"""Folder of the relays' positions and statistics, in the data directory."""
PIPELINE = "pipeline"
"""Name of the first pipeline's process."""
MAX_PIPELINES = 8
"""Limit: heartbeats of pipelines that read one data directory and land into tables of their own."""


def buffer_file(folder: Path, listener: str) -> Path:
    """Return the path of the log buffer."""
    return folder / f"{listener}.logbuffer"


def slots_file(folder: Path, listener: str) -> Path:
    """Return the path of the slots for received datagrams."""
    return folder / f"{listener}.slots"


def state_file(folder: Path, listener: str) -> Path:
    """Return the path of the receiver's state for its successor, and of its statistics."""
    return folder / f"{listener}.state"


def senders_file(folder: Path, listener: str) -> Path:
    """Return the path of the table of the listener's senders."""
    return folder / f"{listener}.senders"


def position_file(folder: Path, listener: str, handler: str) -> Path:
    """Return the path of a handler's position in the log buffer."""
    return folder / f"{listener}.{handler}.position"


def added_file(folder: Path, listener: str, handler: str) -> Path:
    """Return the path of the place where a removed handler was configured again, in the form of a position."""
    return folder / f"{listener}.{handler}.position.added"


def account_file(folder: Path, listener: str, handler: str) -> Path:
    """Return the path of the account of a handler with a process of its own."""
    return folder / f"{listener}.{handler}.forwarded"


def relay_state_file(data_dir: Path, relay: str) -> Path:
    """Return the path of a relay's statistics, in the folder of its positions."""
    return data_dir / RELAYS_FOLDER / relay / "state"


def pipeline_state_files(data_dir: Path) -> dict[str, Path]:
    """Return the paths of the heartbeats of the pipelines of this data directory, by the name of the process."""
    more = {f"{PIPELINE} {number}": data_dir / f"pipeline-{number}.state" for number in range(2, MAX_PIPELINES + 1)}
    return {PIPELINE: data_dir / "pipeline.state", **more}


def hung_file(folder: Path, listener: str, handler: str) -> Path:
    """Return the path of the stack of the last delivery that was aborted because it took too long."""
    return folder / f"{listener}.{handler}.hung"


def held_file(folder: Path, listener: str) -> Path:
    """Return the path of the saved frames of a stopped log daemon."""
    return folder / f"{listener}.held"


def listeners_in(folder: Path) -> list[str]:
    """Return the listeners with a log buffer, also listeners without configuration."""
    return sorted(path.name.removesuffix(".logbuffer") for path in folder.glob("*.logbuffer"))


def handlers_in(folder: Path, listener: str) -> list[str]:
    """Return the handlers with a position in the listener's log buffer."""
    # A dot in the rest belongs to the name of another listener that starts with this one's name.
    names = (
        path.name.removeprefix(f"{listener}.").removesuffix(".position") for path in _position_files(folder, listener)
    )
    return sorted(name for name in names if "." not in name)


def accounts_in(folder: Path, listener: str) -> list[str]:
    """Return the handlers that have or had an account of the listener's messages."""
    paths = folder.glob(f"{listener}.*.forwarded")
    names = (path.name.removeprefix(f"{listener}.").removesuffix(".forwarded") for path in paths)
    return sorted(name for name in names if "." not in name)


def _position_files(folder: Path, listener: str) -> list[Path]:
    return [path for path in folder.glob("*.position") if path.name.startswith(f"{listener}.")]
