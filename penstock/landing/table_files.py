"""Which files belong to a table, by the table's own list: that of Spark's file sink, or Delta's log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from penstock.files.errors import DamagedFile
from penstock.files.json_values import parse_object
from penstock.landing.table_paths import Layout

DELTA_LOG = "_delta_log"


class TableList(Protocol):
    """The files of a table by the micro-batch that wrote them, relative to the table's folder."""

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """For each batch from ``from_batch`` on that the list has: its files."""

    def newest(self) -> int:
        """The newest batch in the list; -1 for none."""

    def active(self) -> list[str]:
        """All files that make up the table now, sorted."""

    def entries(self) -> Path | None:
        """The folder of the list's entries by batch, where a torn one can be removed; None where there is none."""


def table_list(layout: Layout) -> TableList:
    """The list of the table that there is."""
    return DeltaLog(layout) if (layout.landed / DELTA_LOG).is_dir() else SinkLog(layout)


class SinkLog:
    """The list of Spark's file sink: an entry for each batch, at times all of them merged into one (``.compact``)."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """A batch whose entry was merged into a later list and removed is not found: see the Journal."""
        names = self._entries()
        for batch in sorted(names):
            if batch < from_batch:
                continue
            files = self._listed(names[batch])
            if names[batch].suffix:  # a list of everything so far
                older = self._before(names, batch)
                files = [name for name in files if name not in older]
            yield batch, files

    def newest(self) -> int:
        return max(self._entries(), default=-1)

    def active(self) -> list[str]:
        entries = self._entries()
        whole = max((batch for batch, entry in entries.items() if entry.suffix), default=-1)
        return sorted(name for batch, entry in entries.items() if batch >= whole for name in self._listed(entry))

    def entries(self) -> Path | None:
        return self._layout.sink_log

    def _before(self, names: Mapping[int, Path], batch: int) -> set[str]:
        """All files of the batches before a compacted one: the compacted list before it, and those since."""
        older: set[str] = set()
        for earlier in sorted((b for b in names if b < batch), reverse=True):
            older.update(self._listed(names[earlier]))
            if names[earlier].suffix:
                break
        return older

    def _entries(self) -> dict[int, Path]:
        try:
            found = [Path(entry.path) for entry in os.scandir(self._layout.sink_log)]
        except FileNotFoundError:
            return {}
        compact = {int(path.stem): path for path in found if path.suffix == ".compact" and path.stem.isdecimal()}
        return {int(path.name): path for path in found if path.name.isdecimal()} | compact

    def _listed(self, entry: Path) -> list[str]:
        with _damage_named(entry):
            documents = _documents(entry, 1)
            return [self._relative(str(d["path"])) for d in documents if d.get("action", "add") == "add"]

    def _relative(self, path: str) -> str:
        """A path of the list (a URL) as one below the table's folder, also where the tables were moved."""
        plain = unquote(urlparse(path).path)
        base = f"{self._layout.landed}/"
        if plain.startswith(base):
            return plain[len(base) :]
        return plain[plain.index("/kind=") + 1 :] if "/kind=" in plain else plain


class DeltaLog:
    """Delta's transaction log: a streaming batch's commit names the batch (``txn``) beside the files it added."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.landed / DELTA_LOG

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Ascending; batches whose commits Delta has cleaned up are not found: see the Journal."""
        found: dict[int, list[str]] = {}
        for batch, files in self._commits():
            if batch < from_batch:
                break
            found[batch] = files
        yield from sorted(found.items())

    def newest(self) -> int:
        return next((batch for batch, _ in self._commits()), -1)

    def active(self) -> list[str]:
        version, files = self._checkpoint()
        for name in self._names():
            if int(name[:-5]) > version:
                with _damage_named(self._folder / name):
                    for action in _documents(self._folder / name):
                        files |= {str(action["add"]["path"])} if "add" in action else set()
                        files -= {str(action["remove"]["path"])} if "remove" in action else set()
        return sorted(unquote(path) for path in files)

    def _checkpoint(self) -> tuple[int, set[str]]:
        """The version of the newest checkpoint and the files it has; -1 and none where there is none."""
        versions = {int(path.name[:20]) for path in self._folder.glob("*.checkpoint*.parquet")}
        if not versions:
            return -1, set()
        version = max(versions)
        parts = self._folder.glob(f"{version:020}.checkpoint*.parquet")
        tables = [pq.ParquetFile(part).read(columns=["add.path"]) for part in parts]
        paths = (add and add["path"] for table in tables for add in table["add"].to_pylist())
        return version, {path for path in paths if path}

    def _names(self) -> list[str]:
        return sorted(n for n in os.listdir(self._folder) if n.endswith(".json") and n[:-5].isdecimal())

    def entries(self) -> Path | None:
        return None

    def _commits(self) -> Iterator[tuple[int, list[str]]]:
        """The batches in the log, newest first. Other commits, such as OPTIMIZE's, are no batches."""
        for name in reversed(self._names()):
            with _damage_named(self._folder / name):
                actions = list(_documents(self._folder / name))
                batch = next((int(action["txn"]["version"]) for action in actions if "txn" in action), None)
                files = [unquote(str(action["add"]["path"])) for action in actions if "add" in action]
            if batch is not None:
                yield batch, files


def _documents(entry: Path, heads: int = 0) -> Iterator[dict[str, Any]]:
    """The objects of a list's entry, one a line, behind ``heads`` lines. Raises ValueError."""
    lines = entry.read_bytes().split(b"\n")[heads:]
    return (parse_object(line) for line in lines if line.strip())


@contextlib.contextmanager
def _damage_named(entry: Path) -> Iterator[None]:
    """What cannot be read of an entry is a DamagedFile."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{entry} is damaged: it is no list of files ({error})") from None
