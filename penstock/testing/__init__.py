"""Public test tools: a clock, a file system that crashes, damaged files, and a real pipe that can be killed.

Read ``crashes`` (a fake clock, a file system that crashes and fills up), ``damage`` (disk errors in files), then
``pipe`` (a real ``penstock serve``) and ``processes``; ``simulation/`` runs the pipe in one thread, and
``spark_extensions`` has the jars of other readers. Imports ``files``,
``process``, ``java``, ``landing`` and ``spark.versions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names
from penstock.testing.crashes import SECTOR, Crashed, CrashingFileSystem, FakeClock
from penstock.testing.damage import cut_tail, flip_bit, zero_page

if TYPE_CHECKING:
    from penstock.testing.pipe import Pipe, PipeFailed, wait_until
else:
    __getattr__ = lazy_names(__name__, {"Pipe": "pipe", "PipeFailed": "pipe", "wait_until": "pipe"})

__all__ = [
    "SECTOR",
    "Crashed",
    "CrashingFileSystem",
    "FakeClock",
    "Pipe",
    "PipeFailed",
    "cut_tail",
    "flip_bit",
    "wait_until",
    "zero_page",
]
