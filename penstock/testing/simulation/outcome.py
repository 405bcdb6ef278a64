"""The frame of a run in both simulations: its folder, its trace, and the error that ends it as its outcome."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.machine import Killed, Machine
from penstock.testing.simulation.promises import Broken

MEMORY = Path("/dev/shm")  # noqa: S108 - a run makes a folder of its own in it
_PREFIX = "penstock-simulation-"


@dataclass(slots=True)
class Outcome:
    """The outcome of a run: its trace, and what was broken, which is empty after a good run."""

    seed: int
    trace: list[str] = field(default_factory=list)
    broken: str = ""
    faults: list[Fault] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """The hash of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def record(self, step: int, machine: Machine, who: str, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{step:4} {machine.clock.monotonic():10.3f} s  {who}: {text}")

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Note the error that ends the block as the broken promise."""
        try:
            yield
        except Broken as error:
            self.broken = str(error)
        except Killed:
            # Otherwise it would end the pool's process, and `make simulate` would wait for this seed forever.
            self.broken = "a process died outside of its steps"
        except Exception as error:  # noqa: BLE001 - an unexpected error is a finding
            where = traceback.extract_tb(error.__traceback__)
            self.broken = f"{type(error).__name__}: {error}, in " + " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(where[-6:])
            )


@contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a folder for the files of a run, in memory if possible."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=MEMORY))
    except OSError:  # a container may have none, or a read-only one
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
