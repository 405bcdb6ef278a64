"""Transport of task results to the driver: through Spark, and columns of numbers through a file on the same machine.

Through the JVM they would be copied several times and held there: a sixth of the landing's time, and 300 MB.
"""

from __future__ import annotations

import mmap
import pickle
import uuid
from dataclasses import dataclass
from pathlib import Path

from penstock.landing.writing.part_writer import PartResult

_DRIVER = uuid.uuid4().hex
"""Name of this process's probes: random, so that another machine's folder of the same path has none of them."""


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder of the driver; an executor shares it if it sees the file ``probe`` in it."""

    folder: Path
    probe: Path

    @classmethod
    def offer(cls, folder: Path) -> SharedFolder:
        """Create the probe in the driver's folder; called on the driver."""
        probe = folder / f"{_DRIVER}.probe"
        if not probe.exists():
            folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
        return cls(folder, probe)

    def visible_here(self) -> Path | None:
        """Return the folder if this executor shares the driver's disk, else None; called in each task."""
        return self.folder if self.probe.exists() else None


Packed = tuple[bytes, str, list[int]]
"""The pickled result without its columns, the file of the columns ("" for none), and the bytes of each column."""


def pack_result(part: PartResult, folder: Path | None) -> bytes:
    """Return the bytes for Spark; columns go to a file of ``folder``, which the driver reads, or inline if it is
    None.
    """
    if folder is None:
        return pickle.dumps((pickle.dumps(part), "", []))
    columns: list[pickle.PickleBuffer] = []
    # Protocol 5 hands out large buffers instead of copying them into the pickle.
    pickled = pickle.dumps(part, protocol=5, buffer_callback=columns.append)
    path = folder / f"{uuid.uuid4().hex}.columns"
    with path.open("wb") as file:
        file.writelines(column.raw() for column in columns)
    return pickle.dumps((pickled, str(path), [column.raw().nbytes for column in columns]))


def unpack_result(packed_result: bytes) -> PartResult:
    """Return a task's result and remove its file. Raises OSError."""
    pickled, name, sizes = _load_packed(packed_result)
    part: PartResult = pickle.loads(pickled, buffers=_map_columns(Path(name), sizes) if name else [])  # noqa: S301  our own tasks
    return part


def _load_packed(packed_result: bytes) -> Packed:
    loaded: Packed = pickle.loads(packed_result)  # noqa: S301  made by our own tasks
    return loaded


def _map_columns(path: Path, sizes: list[int]) -> list[memoryview]:
    """Return the columns of a file, mapped until the last reference goes."""
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if any(sizes) else b"")
    # Crash: the mapping keeps the bytes; a file that a killed driver leaves behind goes with the scratch folder.
    path.unlink()
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [mapped[end - size : end] for end, size in zip(ends, sizes, strict=True)]
