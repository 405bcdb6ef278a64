"""What tests need to own time and disasters: a clock that stands still, a file system that crashes and fills up.

Read ``crashes``. Imports ``files``.
"""

from penstock.testing.crashes import SECTOR, Crashed, CrashingFileSystem, FakeClock

__all__ = ["SECTOR", "Crashed", "CrashingFileSystem", "FakeClock"]
