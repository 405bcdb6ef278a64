"""Backups of a running instance: a copy of its files at one moment, which a start continues like after a crash.

Most bytes are copied while everything runs. Then all processes stop for a moment, in which files that changed are
copied again. Crash: the manifest is written last, so a folder without it is not a backup and the next attempt continues
it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from crc32c import crc32c

from penstock import __version__
from penstock.config import Settings
from penstock.config.syntax.tables_url import TablesUrl
from penstock.errors import PenstockError
from penstock.files.file_system import OS, replace_durably
from penstock.landing.table_paths import Layout
from penstock.ledger.rebuild import rebuild_balance
from penstock.process.freeze import freeze_users
from penstock.proof.posts.tables import table_posts
from penstock.upkeep.quarantine.send_back import count_sent_back

MANIFEST, DATA, TABLES, CONFIGURATION = "manifest.json", "data", "tables", "penstock.toml"
FREEZE_LIMIT_S = 10.0
"""Limit of the time in which all processes are paused; systemd's watchdog of the example is 30 s."""
RECENT_S = 1.0
"""Files that changed within this time before their copy are copied again: the kernel's times have a grain."""
CHUNK_BYTES = 1 << 20
STAT_BLOCK_BYTES = 512
"""Unit of ``st_blocks``, on every file system."""
MAPPED_SUFFIX = ".synced"
"""Files that are written through memory, of which the kernel does not update the time of change."""
LEFT_OUT = ("lock", "LOCK", "token", "landed.lock", "endpoints.json", "reloaded.json", "scratch")
"""Files and folders of the running instance only: locks, the internal token, process ids."""
LEFT_OUT_SUFFIXES = (".tmp", ".slots")
"""Drafts, and datagrams that are not counted yet: the copy ends with the last counted one."""
_LOGGER = logging.getLogger(__name__)


class BackupError(PenstockError, RuntimeError):
    """A backup cannot be made or restored; the text says why."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The manifest of a backup. ``files`` maps paths to size and CRC32C; ``left_out`` are sentences for the user."""

    version: str
    made_at: float
    pause_s: float
    balance: Mapping[str, Any]
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def files_of(self, part: str, prefix: str = "") -> dict[str, tuple[int, int]]:
        """Return the files in the folder ``part`` of the backup, by their path in it behind ``prefix``."""
        return {
            prefix + name.removeprefix(f"{part}/"): entry
            for name, entry in self.files.items()
            if name.startswith(f"{part}/")
        }


def make_backup(settings: Settings, folder: Path, configuration: Path | None) -> Backup:
    """Copy the instance's files into ``folder`` and return the manifest.

    Raises BackupError if the folder has another content, FreezeTooLong, and OSError. After an interruption call it
    again.
    """
    if (folder / MANIFEST).exists():
        raise BackupError(f"{folder} already has a backup; name another folder")
    unknown = {entry.name for entry in folder.iterdir()} - {DATA, TABLES, CONFIGURATION} if folder.exists() else set()
    if unknown:
        raise BackupError(f"{folder} is not empty ({', '.join(sorted(unknown)[:3])}); name an empty or new folder")
    if not settings.data_dir.is_dir():
        raise BackupError(f"data_dir: {settings.data_dir} does not exist")
    if folder.resolve().is_relative_to(settings.data_dir.resolve()):
        raise BackupError(f"{folder} is inside of data_dir, which is what is backed up; name a folder outside of it")
    # Files with the messages of others: for the owner only.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sources = {DATA: settings.data_dir}
    tables = settings.tables
    is_elsewhere = isinstance(tables, Path) and not tables.resolve().is_relative_to(settings.data_dir.resolve())
    if is_elsewhere and isinstance(tables, Path) and tables.is_dir():
        sources[TABLES] = tables
    trees = [_Tree(source, folder / name) for name, source in sources.items()]
    for _ in range(2):  # the second pass copies what changed during the first one, so that little is left to do
        for tree in trees:
            tree.copy(is_frozen=False)
    with freeze_users(list(sources.values()), FREEZE_LIMIT_S) as pids:
        began = time.monotonic()
        for tree in trees:
            tree.copy(is_frozen=bool(pids))
        pause_s, made_at = time.monotonic() - began, time.time()
    if configuration is not None:
        _copy_configuration(configuration, folder / CONFIGURATION)
    left_out: tuple[str, ...] = ()
    if isinstance(tables, TablesUrl):
        left_out = (f"the tables at {tables.url} are not included: use the versions of the object store",)
    balance = _balance_of(settings, folder)
    files = dict(_checksums(folder))
    backup = Backup(__version__, made_at, pause_s if pids else 0.0, balance, files, left_out)
    replace_durably(OS, folder / MANIFEST, json.dumps(asdict(backup)).encode())
    return backup


def disk_bytes(folder: Path) -> int:
    """Return the space that the files of a backup take on the disk: log buffers are mostly holes."""
    return sum(status.st_blocks * STAT_BLOCK_BYTES for _, status in _files_below(folder))


def read_backup(folder: Path) -> Backup:
    """Return the manifest of a backup. Raises BackupError."""
    try:
        document = json.loads((folder / MANIFEST).read_bytes())
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in document["files"].items()}
        return Backup(
            str(document["version"]),
            float(document["made_at"]),
            float(document["pause_s"]),
            dict(document["balance"]),
            files,
            tuple(map(str, document["left_out"])),
        )
    except FileNotFoundError:
        raise BackupError(f"{folder} is not a complete backup: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupError(f"{folder / MANIFEST} is damaged: {error}") from None


def restore_backup(folder: Path, target: Path, tables: Path | None = None) -> Backup:
    """Copy a backup into the empty or new folder ``target``, and check each file and the balance.

    ``tables``: the folder of tables that were outside of the data directory; default: ``tables`` in ``target``.
    ``target`` appears complete or not at all. Raises BackupError and OSError; after an interruption call it again.
    """
    backup = read_backup(folder)
    draft = target.with_name(f"{target.name}.restoring")
    # Crash: an attempt was interrupted after a rename. The draft shows that the tables are those of an attempt.
    has_tables = tables is not None and _has_files(tables, backup.files_of(TABLES))
    has_data = _has_files(target, backup.files_of(DATA) | ({} if tables else backup.files_of(TABLES, f"{TABLES}/")))
    if target.is_dir() and has_data and (has_tables or not tables):
        # Crash: the attempt may have been killed before the rename was on the disk.
        OS.sync_directory(target.parent)
        return backup
    has_tables = has_tables and draft.is_dir()
    for place in (target, *([tables] if tables and not has_tables else [])):
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise BackupError(f"{place} is not empty; restore into an empty or new folder")
    draft.mkdir(parents=True, exist_ok=True)
    for entry in draft.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    _copy_part(folder, backup.files_of(DATA), DATA, draft)
    if not tables:
        _copy_part(folder, backup.files_of(TABLES), TABLES, draft / TABLES)
    if tables and not has_tables:
        tables_draft = tables.with_name(f"{tables.name}.restoring")
        shutil.rmtree(tables_draft, ignore_errors=True)
        _copy_part(folder, backup.files_of(TABLES), TABLES, tables_draft)
        if tables_draft.exists():
            _sync_tree(tables_draft)
            # Order: the draft first, which shows that the tables are those of an attempt, also after a power cut.
            OS.sync_directory(draft.parent)
            tables_draft.rename(tables)
    if tables and tables.exists():
        # Crash: the attempt that renamed them may have ended, or failed, before the name was on the disk.
        OS.sync_directory(tables.parent)
    _sync_tree(draft)
    # Order: the data directory last, so that nothing starts on a part, also after a power cut.
    draft.rename(target)
    OS.sync_directory(target.parent)
    return backup


def _has_files(folder: Path, files: Mapping[str, tuple[int, int]]) -> bool:
    """Report whether a folder has exactly these files."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return paths.keys() == files.keys() and all(
        path.stat().st_size == files[name][0] and _checksum(path) == files[name] for name, path in paths.items()
    )


def _copy_part(folder: Path, files: Mapping[str, tuple[int, int]], part: str, draft: Path) -> None:
    """Copy a part of the backup ``folder`` into ``draft``. Raises BackupError for a missing or damaged file."""
    for name, written in files.items():
        source, path = folder / part / name, _below(draft, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_intact = _copy_file(source, path) == written
        except FileNotFoundError:
            raise BackupError(f"{source} is missing; nothing is restored") from None
        if not is_intact:
            raise BackupError(f"{source} is damaged; nothing is restored")


def _below(folder: Path, name: str) -> Path:
    """Return the path ``name`` in ``folder``. Raises BackupError if it leads out of it: manifests come from outside."""
    if not name or name.startswith("/") or ".." in Path(name).parts:
        raise BackupError(f"the manifest names the path {name!r}, which is not in the backup")
    return folder / name


class _Tree:
    """The copy of a folder; each ``copy`` copies what differs from the one before."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._copied: dict[str, tuple[int, int, int]] = {}

    def copy(self, is_frozen: bool) -> None:
        seen = set()
        for name, status in _files_below(self._source):
            seen.add(name)
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._copied.get(name) == version and not (is_frozen and _is_mapped(name)):
                continue
            path = self._target / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Files come and go while everything runs; the last copy, of frozen files, decides.
            with contextlib.suppress(FileNotFoundError):
                _copy_file(self._source / name, path)
                is_recent = time.time() - status.st_mtime < RECENT_S
                self._copied[name] = (0, 0, 0) if is_recent else version
        # A killed attempt may have left files that no longer exist.
        for name, _ in [*_files_below(self._target)]:
            if name not in seen:
                (self._target / name).unlink()
                self._copied.pop(name, None)


def _is_mapped(name: str) -> bool:
    # Names with fewer than two folders: log buffers, and the small files of data_dir and next to the topics.
    return name.endswith(MAPPED_SUFFIX) or name.count("/") < 2


def _files_below(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield name and status of each regular file below ``folder``."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in LEFT_OUT or entry.name.endswith(LEFT_OUT_SUFFIXES):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    yield from _files_below(folder / entry.name, f"{prefix}{entry.name}/")
                elif stat.S_ISREG(status.st_mode):
                    yield f"{prefix}{entry.name}", status


@contextlib.contextmanager
def _errors_named(path: str | Path) -> Iterator[None]:
    """Name the file in errors of the system, which have no name after reads, writes and syncs."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _read_chunk(file: BinaryIO) -> bytes:
    with _errors_named(file.name):
        return file.read(CHUNK_BYTES)


def _copy_file(source: Path, target: Path) -> tuple[int, int]:
    """Copy a file with its mode; return its size and CRC32C."""
    size = crc = 0
    with source.open("rb") as reading:
        mode = stat.S_IMODE(os.fstat(reading.fileno()).st_mode)
        with (
            _errors_named(target),
            open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as writing,
        ):
            while chunk := _read_chunk(reading):
                crc = crc32c(chunk, crc)
                if chunk.count(0) == len(chunk):  # log buffers are mostly empty
                    writing.seek(len(chunk), os.SEEK_CUR)
                else:
                    writing.write(chunk)
                size += len(chunk)
            writing.truncate(size)
        os.chmod(target, mode)
    return size, crc


def _copy_configuration(source: Path, target: Path) -> None:
    """Copy the configuration, which may have secrets, for the owner only."""
    target.unlink(missing_ok=True)
    _copy_file(source, target)
    target.chmod(0o600)


def _checksums(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name, size and CRC32C of all files of a backup, after they are on the disk."""
    _sync_tree(folder)
    for name, _ in sorted(_files_below(folder)):
        yield name, _checksum(folder / name)


def _checksum(path: Path) -> tuple[int, int]:
    """Return size and CRC32C of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := _read_chunk(file):
            size, crc = size + len(chunk), crc32c(chunk, crc)
    return size, crc


def _sync_tree(folder: Path) -> None:
    for path, _, names in os.walk(folder):
        for name in (*names, "."):
            descriptor = os.open(Path(path) / name, os.O_RDONLY)
            try:
                with _errors_named(Path(path) / name):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _balance_of(settings: Settings, folder: Path) -> dict[str, Any]:
    """Return the balance of the copied files, with the rows that were sent back from quarantine."""
    pipeline = settings.pipeline
    if (folder / TABLES).is_dir():
        pipeline = pipeline.model_copy(update={"tables": str(folder / TABLES)})
    copied = settings.model_copy(update={"data_dir": folder / DATA, "pipeline": pipeline})
    sent_back: dict[str, dict[str, int]] = {}
    # The files are copied: a backup is complete without this fact, as the receipt is elsewhere.
    with contextlib.suppress(PenstockError, OSError):
        counts = count_sent_back(Layout.for_tables(copied.tables))
        sent_back = {topic: dict(by_fate) for topic, by_fate in counts.items()}
    return balance_of_files(copied, lambda: None) | {"sent_back": sent_back}


def balance_of_files(settings: Settings, running: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return the balance computed from an instance's files."""
    listeners = [listener.name for listener in settings.listener]
    return rebuild_balance(settings.topics, settings.buffers, listeners, table_posts(settings), running)
