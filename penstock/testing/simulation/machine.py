"""The simulated machine: virtual time, one disk, and processes that die at any line.

Invariant: everything that a run reads from outside (time, boot id, order of listings, loss of pages) comes from here,
so that a seed determines a run.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import struct
import sys
import time as system_time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pyarrow as pa

import penstock
from penstock.files.file_system import SystemFiles
from penstock.handover import buffer, held_frames
from penstock.handover.drain import drain
from penstock.handover.state_page import StatePage
from penstock.log.store import index
from penstock.log.store.segment_files import SegmentFiles, first_offsets, synced_words
from penstock.testing.crashes import Crashed, CrashingFileSystem, FakeClock

PAGE_BYTES = 4096
MIN_SLEEP_S = 0.05
"""Every sleep takes at least this long, as on a busy machine; waits for patience then take few turns."""
ROOMS = ("files", "handover", "ledger", "log", "logbuffer", "server")
"""Rooms whose processes are simulated: they see the virtual time, and can be killed at each of their lines."""
_PACKAGE = Path(penstock.__file__).parent
_ATOMIC = f"{_PACKAGE}/files/file_system.py"
"""System calls: a kill comes before or after them. ``SimulatedFiles`` stops between them instead."""


class Killed(BaseException):
    """The process that runs has died. No handler of the simulated program may see it as an error."""


class VirtualTime:
    """The functions of the module ``time`` on a fake clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def time(self) -> float:
        return self._clock.time()

    def time_ns(self) -> int:
        return self._clock.micros() * 1000

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def thread_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self._clock.advance(max(seconds, MIN_SLEEP_S))


class SimulatedFiles(CrashingFileSystem):
    """The disk. ``interrupt`` is called before each operation: other processes run there, and it may raise.

    ``failing`` maps an operation to its errno and the number of times that it fails; ``lying_syncs`` is the number of
    syncs that succeed and write nothing until the power is cut.
    """

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed)
        self.interrupt: Callable[[str], None] = lambda operation: None
        self.kill_after: int | None = None
        self.failing: dict[str, tuple[int, int]] = {}
        self.lying_syncs = 0
        self.index_dice: random.Random | None = None
        """Chooses an index that the next power cut tears."""
        self.torn_index: Path | None = None
        """The index that the last power cut tore."""
        self.is_dead = False

    def crash(self) -> None:
        self.torn_index = None
        if self.index_dice is not None:
            self._tear_index(self.index_dice)
            self.index_dice = None
        super().crash()

    def _tear_index(self, dice: random.Random) -> None:
        """Have the disk write all of an index but one record, and a synced length between that record and the end.

        Index and synced length of a last segment are not synced, so that any of their pages may be on the disk.
        """
        candidates: list[tuple[SegmentFiles, index.IndexRecords, int]] = []
        for directory in sorted(path for path in self.root.iterdir() if path.is_dir()):
            if firsts := first_offsets(self.names(directory)):
                files = SegmentFiles(directory, firsts[-1])
                records = (
                    index.read(files.index.read_bytes(), files.fingerprint) if files.index.exists() else index.EMPTY
                )
                durable = (len(self._live_node(files.index).synced) - index.HEADER_SIZE) // index.RECORD.itemsize
                if files.synced.exists() and len(records) - max(durable, 0) > 2 and index.valid(records).all():
                    candidates.append((files, records, max(durable, 0)))
        if not candidates:
            return
        files, records, durable = dice.choice(candidates)
        lost = dice.randrange(durable, len(records) - 2)
        last = records[dice.randrange(lost + 1, len(records) - 1)]
        content, begin = bytearray(files.index.read_bytes()), index.HEADER_SIZE + lost * index.RECORD.itemsize
        content[begin : begin + index.RECORD.itemsize] = bytes(index.RECORD.itemsize)
        length, end = int(last["position"] + last["length"]), int(last["base"] + last["rows"])
        for path, image in (
            (files.index, bytes(content)),
            (files.synced, struct.pack("<3q", *synced_words(length, end, files.fingerprint))),
        ):
            node = self._live_node(path)
            node.synced, node.changes, node.claimed = image, [], 0
        self.torn_index = files.index

    def check(self, era: object, operation: str) -> None:
        if self.is_dead:
            raise Killed
        self.interrupt(operation)
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                self.die()
        self.failures = {operation: code} if (code := self._take_failure(operation)) else {}
        if operation == "sync" and not self.failures:
            self.lies = self.lying_syncs > 0
            self.lying_syncs -= self.lies
        try:
            super().check(era, operation)
        except Crashed:
            self.die()

    def _take_failure(self, operation: str) -> int | None:
        if operation not in self.failing:
            return None
        code, times = self.failing.pop(operation)
        if times > 1:
            self.failing[operation] = code, times - 1
        return code

    def read(self, path: Path) -> bytes:
        self._check_read()
        return super().read(path)

    def map(self, path: Path) -> pa.Buffer:
        self._check_read()
        return super().map(path)

    def _check_read(self) -> None:
        # Reads are not an operation of ``check``: other processes have nothing to do within one, and a kill
        # before a read is the same as one after the operation before it.
        if code := self._take_failure("read"):
            raise OSError(code, os.strerror(code))

    def die(self) -> None:
        """End the process that runs. Raises Killed, as every later operation of it does."""
        self.refuse()
        raise Killed

    def refuse(self) -> None:
        """Refuse all operations of the process that dies."""
        self.is_dead, self.kill_after = True, None

    def revive(self) -> None:
        """Accept operations of a new process."""
        self.is_dead, self.kill_after = False, None

    def names(self, directory: Path) -> list[str]:
        # Sorted: the order of a listing differs between file systems.
        return sorted(super().names(directory))

    def is_on_disk(self, path: Path, begin: int, end: int) -> bool:
        """Report whether no power cut takes any of a file's bytes [begin, end), unless a sync lied about them."""
        node = self._live_node(path)
        return node.claimed > 0 or path.read_bytes()[begin:end] == node.synced[begin:end]

    def flip_bit(self, path: Path, position: int, bit: int) -> None:
        """Flip a bit of a file at rest."""
        content = bytearray(path.read_bytes())
        content[position] ^= 1 << bit
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(content[position : position + 1])
        node = self._live_node(path)
        if position < len(node.synced):
            image = bytearray(node.synced)
            image[position] = content[position]
            node.synced = bytes(image)


class MappedFolder(SystemFiles):
    """The folder of the log buffers: mapped files, of which a power cut loses any page since the last writeback.

    A power cut takes back removals since the last sync of the folder too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsynced_removals: dict[Path, bytes] = {}
        self._written_back: dict[tuple[Path, int], bytes] = {}

    def _files(self) -> list[tuple[Path, int]]:
        return [(path, path.stat().st_ino) for path in sorted(self.folder.iterdir())]

    def remove(self, path: Path) -> None:
        content = path.read_bytes()
        super().remove(path)
        self._unsynced_removals[path] = content

    def sync_directory(self, path: Path) -> None:
        self._unsynced_removals.clear()

    def write_back(self) -> None:
        """Flush all pages to the disk."""
        self._written_back = {(path, inode): path.read_bytes() for path, inode in self._files()}

    def write_back_created(self) -> None:
        """Flush new files, which their creator has synced; a state page with its first text (``write_back_page``)."""
        for path, inode in self._files():
            if (path, inode) not in self._written_back:
                self._written_back[path, inode] = (
                    bytes(path.stat().st_size) if path.suffix == ".state" else path.read_bytes()
                )

    def write_back_page(self, page: StatePage) -> None:
        """Flush a state page."""
        path = page.path
        self._written_back[path, path.stat().st_ino] = path.read_bytes()

    def cut_power(self, dice: random.Random) -> None:
        """Lose any pages that were changed since the last writeback. No process may have the files open."""
        for path, inode in self._files():
            content, before = path.read_bytes(), self._written_back.get((path, inode))
            if before is None or len(before) != len(content) or before == content:
                continue
            share = dice.choice([0.0, 1.0, dice.random()])
            for begin in range(0, len(content), PAGE_BYTES):
                page = slice(begin, begin + PAGE_BYTES)
                if before[page] != content[page] and dice.random() < share:
                    content = content[:begin] + before[page] + content[begin + PAGE_BYTES :]
            path.write_bytes(content)
        for path, content in self._unsynced_removals.items():
            if not path.exists() and dice.random() < 0.5:
                path.write_bytes(content)
        self._unsynced_removals.clear()
        self.write_back()


class Machine:
    """The clock, the disk and the folders of one run. ``boots`` counts the power cuts."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.topics, buffers = folder / "topics", folder / "buffers"
        for created in (self.topics, buffers):
            created.mkdir()
        self.clock = FakeClock()
        self.files = SimulatedFiles(self.topics, seed)
        self.buffers = MappedFolder(buffers)
        self.boots = 0
        self.counters: Counter[str] = Counter()
        self._dice = random.Random(f"{seed} power")

    def new_id(self) -> str:
        """Return a new id of a transaction."""
        self.counters["transaction"] += 1
        return f"{self.counters['transaction']:032x}"

    def cut_power(self) -> None:
        """Lose unsynced pages and folder entries. All processes have died before."""
        self.boots += 1
        self.files.lying_syncs = 0
        self.files.revive()
        self.files.crash()
        self.buffers.cut_power(self._dice)

    @contextlib.contextmanager
    def running(self, rooms: Sequence[str] = ROOMS) -> Iterator[None]:
        """Give the simulated rooms the virtual time, this machine's boot id and its folder of log buffers.

        They read ``time.monotonic`` and so on through the name ``time`` of their module, which is replaced: no
        other caller would use a clock as an argument of each of their functions.
        """
        virtual_time = VirtualTime(self.clock)
        modules = [
            module
            for name, module in sorted(sys.modules.items())
            if name.startswith(tuple(f"penstock.{room}" for room in rooms))
            and getattr(module, "time", None) is system_time
        ]
        with contextlib.ExitStack() as stack:
            for module in modules:
                stack.enter_context(replaced(module, "time", virtual_time))
            stack.enter_context(replaced(buffer, "boot_id", lambda: f"boot {self.boots}"))
            stack.enter_context(replaced(StatePage, "sync", lambda page: self.buffers.write_back_page(page)))
            for room in (drain, held_frames):
                stack.enter_context(replaced(room, "OS", self.buffers))
            yield


@contextlib.contextmanager
def replaced(module: ModuleType | type, name: str, replacement: object) -> Iterator[None]:
    """Replace an attribute of a module or class during the block."""
    real = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, real)


@contextlib.contextmanager
def killed_after(lines: int, on_kill: Callable[[], None], rooms: Sequence[str] = ROOMS) -> Iterator[None]:
    """Raise Killed within the block after ``lines`` lines of the rooms, and call ``on_kill`` first.

    A name of a module with its suffix is also a room (``testing/simulation/landing/planner.py``).
    """
    remaining = lines
    killable = tuple(str(_PACKAGE / room) + ("" if room.endswith(".py") else "/") for room in rooms)

    def trace_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal remaining
        if event == "line":
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                on_kill()
                raise Killed
        return trace_line

    def trace_call(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return trace_line if name.startswith(killable) and name != _ATOMIC else None

    collects = gc.isenabled()
    # A collection could run a finalizer within the block, which would count as lines of the process.
    gc.disable()
    try:
        with _traced(trace_call):
            yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def interrupted_after(calls: int, interrupt: Callable[[], None], rooms: Sequence[str]) -> Iterator[None]:
    """Call ``interrupt`` once within the block, before the call of a function of the rooms that follows ``calls``
    other ones.
    """
    remaining = calls
    traced = tuple(str(_PACKAGE / room) for room in rooms)

    def trace_call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal remaining
        if frame.f_code.co_filename.startswith(traced):
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                interrupt()

    with _traced(trace_call):
        yield


@contextlib.contextmanager
def another_process() -> Iterator[None]:
    """Run the block as a step of a process that is not the one that ``killed_after`` kills."""
    with _traced(None):
        yield


@contextlib.contextmanager
def _traced(trace: Callable[[FrameType, str, Any], Any] | None) -> Iterator[None]:
    """Trace the block with a function, or not at all, and then continue as before."""
    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous)
