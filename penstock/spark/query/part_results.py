"""How what a task found comes to the driver: through Spark, but for columns of numbers where both are on one machine.

The JVM would copy these several times, and keep room for them: a sixth of the landing's time, and 300 MB.
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
    """A folder of the driver that executors may see, too. ``probe``: a file in it that tells."""

    folder: Path
    probe: Path

    @classmethod
    def offer(cls, folder: Path) -> SharedFolder:
        """Put the probe into the driver's folder. On the driver."""
        probe = folder / f"{_DRIVER}.probe"
        if not probe.exists():
            folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
        return cls(folder, probe)

    def visible_here(self) -> Path | None:
        """Return the folder if this executor shares the driver's disk, else None. On an executor, in each task."""
        return self.folder if self.probe.exists() else None


Packed = tuple[bytes, str, list[int]]
"""The pickled result without its columns, the file that has them ("" for none), and the bytes of each."""


def packed(part: PartResult, folder: Path | None) -> bytes:
    """For Spark; the columns in a file of ``folder``, which the driver has too, or with the rest where that is None."""
    if folder is None:
        return pickle.dumps((pickle.dumps(part), "", []))
    columns: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(part, protocol=5, buffer_callback=columns.append)
    path = folder / f"{uuid.uuid4().hex}.columns"
    with path.open("wb") as file:
        file.writelines(column.raw() for column in columns)
    return pickle.dumps((rest, str(path), [column.raw().nbytes for column in columns]))


def unpacked(data: bytes) -> PartResult:
    """What a task found; its file is removed. Raises OSError."""
    rest, name, sizes = _loaded(data)
    part: PartResult = pickle.loads(rest, buffers=_columns(Path(name), sizes) if name else [])  # noqa: S301  our own tasks
    return part


def _loaded(data: bytes) -> Packed:
    found: Packed = pickle.loads(data)  # noqa: S301  made by our own tasks
    return found


def _columns(path: Path, sizes: list[int]) -> list[memoryview]:
    """The columns in a file, mapped as long as somebody has them."""
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if any(sizes) else b"")
    path.unlink()
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    return [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]
