"""Class data sharing of Spark's JVM: an archive of loaded classes that halves the CPU time of a start.

The first JVM records the names of the classes that it loads; a child of low priority makes the archive of them after
``BUILD_DELAY_S``, and later JVMs map it. Invariant: a missing, unfinished, damaged or unsuitable archive only costs
time; the JVM then starts without it. Start with ``ClassArchive.use_or_record``.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from penstock.files.errors import Locked
from penstock.files.file_system import OS
from penstock.process.kernel import die_with_parent
from penstock.process.module_search import module_command

BUILD_DELAY_S = 60.0
"""Time from a JVM's start to the build of the archive: the first batch has landed and loaded its classes."""
BUILD_TIMEOUT_S = 600.0
"""Limit for the child, which takes 30 s of CPU time (JDK 17, 14,000 classes)."""
UNUSED_AGE_S = 30 * 86_400.0
"""Age of archives (160 MB each) and leftovers that the next build deletes; each start renews its archive."""
BUILD_NICENESS = 19
"""Lowest priority of a process: a build takes only time that nothing else wants."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one JDK with one list of jars; several processes may use and build it at the same time."""

    path: Path

    @classmethod
    def of_jars(cls, cache: Path, java_home: Path, jars: Path, class_path: str) -> ClassArchive:
        """Return the archive for a JDK, the folder of Spark's jars as the class path names it, and a further path."""
        release = java_home / "release"
        parts = [str(java_home), release.read_text() if release.exists() else "", str(jars), class_path]
        # The JVM compares size and time of each jar, too; in the name they make a new archive after an upgrade.
        parts += [f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in sorted(jars.glob("*.jar"))]
        return cls(cache / "class-archives" / f"{zlib.crc32(chr(10).join(parts).encode()):08x}.jsa")

    def use_or_record(self, scratch: Path | None) -> tuple[list[str], Path | None]:
        """Return JVM options that use the archive; while there is none, options that record the classes in a file
        below ``scratch``, and that file for ``build_later``.
        """
        try:
            owner = self.path.stat().st_uid
        except OSError:
            folder = tempfile.mkdtemp(prefix="penstock-classes-", dir=scratch)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            class_list = Path(folder, "list")
            return [f"-XX:DumpLoadedClassList={class_list}"], class_list
        # Invariant: an archive contains code, so one of another user is not used.
        if owner != os.getuid():
            return [], None
        with contextlib.suppress(OSError):
            os.utime(self.path)
        # The JVM's check takes no time that could be measured, and finds flipped bits.
        return [f"-XX:SharedArchiveFile={self.path}", "-XX:+VerifySharedSpaces"], None

    def build_later(self, class_list: Path, jvm: int) -> None:
        """Build the archive after ``BUILD_DELAY_S`` from the classes that the JVM with pid ``jvm`` has recorded."""
        timer = threading.Timer(BUILD_DELAY_S, self.build, (class_list, jvm))
        timer.daemon = True
        timer.start()

    def build(self, class_list: Path, jvm: int) -> None:
        """Build the archive for JVMs like the one with pid ``jvm``, unless another process has built it or does."""
        draft = self.path.with_suffix(".draft")
        options = ["-Xshare:dump", f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={draft}"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            release = OS.lock(self.path.with_suffix(".lock"))
        except (OSError, Locked) as error:
            _LOGGER.info("no class archive for Spark is built: %s", error)
            return
        try:
            if self.path.exists():
                return
            self._delete_unused()
            child = module_command(__name__, str(os.getpid()), str(BUILD_NICENESS), *_command_of(jvm), *options)
            completed = subprocess.run(child, capture_output=True, timeout=BUILD_TIMEOUT_S)
            if completed.returncode:
                _LOGGER.info("no class archive for Spark: java ended with %d", completed.returncode)
                return
            # Crash: the archive appears whole. Pages that a power cut takes fail the JVM's check.
            os.replace(draft, self.path)
            _LOGGER.info("made an archive of Spark's classes, later starts take less time: %s", self.path)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            _LOGGER.info("no class archive for Spark: %s", error)
        finally:
            release()

    def _delete_unused(self) -> None:
        for archive in [*self.path.parent.glob("*.jsa"), *self.path.parent.glob("*.draft")]:
            with contextlib.suppress(OSError):
                if time.time() - archive.stat().st_mtime > UNUSED_AGE_S:
                    archive.unlink()


def _command_of(jvm: int) -> list[str]:
    """Return program, class path and modules of a running JVM: the archive fits only a JVM with the same ones."""
    arguments = Path(f"/proc/{jvm}/cmdline").read_text().split("\0")
    class_path = arguments[arguments.index("-cp") + 1]
    return [arguments[0], "-cp", class_path, *(option for option in arguments if option.startswith("--add-modules"))]


def main() -> None:
    """Become the JVM that makes the archive: with the niceness of its second argument, ended with its parent."""
    die_with_parent()
    os.nice(int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
