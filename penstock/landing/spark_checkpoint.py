"""Files of Spark's checkpoint of the landing query: the only module that knows their formats.

They are internal to Spark and were checked with the versions in ``TESTED_VERSIONS`` (its classes ``OffsetSeqLog``,
``CommitLog`` and ``StreamMetadata``). The checkpoint's folder has

- ``metadata``: the query's id, ``{"id": "..."}``,
- ``offsets/N``: the plan of batch N, written before it runs: the format ``v1``, a line of JSON about the batch, and for
  the query's single source a line of JSON with the end of each topic (``-`` for none),
- ``commits/N``: the format, and a line of JSON. Batch N is done,
- ``offsets/.N.crc``: Hadoop's checksum of an entry, which Spark compares if it is there. Other names that are no
  numbers are temporary files.

Invariant: an entry in another format is refused (UnknownFormat), never taken for a torn one and removed. Spark 4.1 and
later write ``v2`` for named sources if a setting asks for it. A query of several sources has a line for each of them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.files.file_system import OS, make_folder, replace_durably
from penstock.files.json_values import parse_object
from penstock.landing.offset_runs import OffsetRange
from penstock.qualified_names import flat_offsets, nested_offsets

TESTED_VERSIONS = ("4.0", "4.1", "4.2", "4.3")
"""Minor versions of Spark of which a killed pipeline landed each event once (``tests/spark/test_versions.py``)."""
_LOGGER = logging.getLogger(__name__)
_FORMAT = "v1"
_PLANS, _COMMITS, _ID = "offsets", "commits", "metadata"
_NO_OFFSETS = "-"


@dataclass(frozen=True, slots=True)
class Planned:
    """A micro-batch as Spark recorded it before running it.

    ``end``: the end offset of each topic, Kafka partition (``events/0``) or backfill request. ``batch_time_ms``:
    the time at which Spark planned the batch. ``watermark``: Spark's watermark, in milliseconds. ``settings``: the
    settings that a restarted query keeps.
    """

    end: dict[str, int]
    batch_time_ms: int
    watermark: int
    settings: Mapping[str, Any] = field(default_factory=dict)


def parse_plan(content: bytes) -> Planned:
    """Parse a plan. Raises ValueError, KeyError or TypeError if it is torn or damaged."""
    lines = _lines(content)
    if len(lines) != 3 or lines[0] != _FORMAT:
        raise ValueError("not a version, a line of metadata and one source")
    metadata = parse_object(lines[1])
    end = {} if lines[2] == _NO_OFFSETS else parse_object(lines[2])
    times = int(metadata["batchTimestampMs"]), int(metadata["batchWatermarkMs"])
    return Planned(flat_offsets(end), *times, dict(metadata.get("conf", {})))


def format_plan(plan: Planned) -> bytes:
    """Return the content of a plan's file."""
    times = {"batchWatermarkMs": plan.watermark, "batchTimestampMs": plan.batch_time_ms}
    documents = {**times, "conf": dict(plan.settings)}, nested_offsets(plan.end)
    return "\n".join([_FORMAT, *(json.dumps(document, separators=(",", ":")) for document in documents)]).encode()


def _lines(content: bytes) -> list[str]:
    return content.decode().removesuffix("\n").split("\n")


def _check_commit(content: bytes) -> None:
    """Raise ValueError if a commit is torn or damaged."""
    version, line = _lines(content)
    if version != _FORMAT:
        raise ValueError("not a version")
    parse_object(line)


def read_plan(checkpoint: Path, batch: int) -> Planned:
    """Return the plan of a batch.

    Raises FileNotFoundError if Spark has none, DamagedFile if it is unreadable, and UnknownFormat.
    """
    path = checkpoint / _PLANS / str(batch)
    content = _read_entry(path, parse_plan)
    try:
        return parse_plan(content)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path}: {error}") from None


def find_plan(checkpoint: Path, batch: int) -> Planned | None:
    """Return the plan of a batch; None if it is missing or damaged. Raises UnknownFormat."""
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return read_plan(checkpoint, batch)
    return None


def planned_ranges(checkpoint: Path, batch: int) -> dict[str, OffsetRange]:
    """Return the planned offsets of a batch by topic, partition or backfill request; none without a readable plan."""
    plan = find_plan(checkpoint, batch)
    previous = find_plan(checkpoint, batch - 1) if batch else Planned({}, 0, 0)
    if plan is None or previous is None:
        return {}
    return {name: (begin, end) for name, end in plan.end.items() if (begin := previous.end.get(name, 0)) < end}


def planned_batches(checkpoint: Path) -> list[int]:
    """Return the numbers of the batches whose plan Spark still has, ascending."""
    return _batches(checkpoint / _PLANS)


def committed_batches(checkpoint: Path) -> list[int]:
    """Return the numbers of the batches whose commit Spark still has, ascending."""
    return _batches(checkpoint / _COMMITS)


def newest_plan(checkpoint: Path) -> int:
    """Return the number of the newest planned batch; -1 without any."""
    return max(planned_batches(checkpoint), default=-1)


def newest_commit(checkpoint: Path) -> int:
    """Return the number of the newest batch that Spark has recorded as done; -1 without any."""
    return max(committed_batches(checkpoint), default=-1)


def write_plan(checkpoint: Path, batch: int, plan: Planned) -> None:
    """Write or replace a plan durably. Only while no query runs."""
    _write(checkpoint / _PLANS / str(batch), format_plan(plan))


def write_commit(checkpoint: Path, batch: int) -> None:
    """Record durably that a batch is done. Only while no query runs."""
    _write(checkpoint / _COMMITS / str(batch), f'{_FORMAT}\n{{"nextBatchWatermarkMs":0}}'.encode())


def remove_plan(checkpoint: Path, batch: int) -> str:
    """Remove a plan durably and return its path. Only while no query runs."""
    return _remove(checkpoint / _PLANS / str(batch))


def remove_commit(checkpoint: Path, batch: int) -> str:
    """Remove the record of a done batch durably and return its path. Only while no query runs."""
    return _remove(checkpoint / _COMMITS / str(batch))


def remove_torn_plans(checkpoint: Path, keep: int) -> list[str]:
    """Remove torn plans from the newest down to batch ``keep``, which stays; return their paths."""
    return _remove_torn(checkpoint / _PLANS, keep, parse_plan)


def remove_torn_commits(checkpoint: Path) -> list[str]:
    """Remove torn records of done batches from the newest down; return their paths."""
    return _remove_torn(checkpoint / _COMMITS, -1, _check_commit)


def ensure_query_id(checkpoint: Path) -> None:
    """Give the query a new id if the file with its id is lost or damaged, and say so in the log."""
    path = checkpoint / _ID
    with contextlib.suppress(FileNotFoundError, ValueError):
        if isinstance(parse_object(path.read_bytes()).get("id"), str):
            return
    _LOGGER.warning("%s is lost or damaged: the query gets a new id", path)
    _write(path, json.dumps({"id": str(uuid.uuid4())}).encode())


def has_query_id_file(checkpoint: Path) -> bool:
    """Report whether there is a file for the query's id, which Spark writes before the first plan."""
    return (checkpoint / _ID).exists()


def _batches(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def _read_entry(path: Path, parse: Callable[[bytes], object]) -> bytes:
    """Return the content of an entry. Raises UnknownFormat for another format, not for a damaged version line."""
    content = path.read_bytes()
    version, end_of_line, rest = content.partition(b"\n")
    if end_of_line and version != _FORMAT.encode() and re.fullmatch(rb"v[0-9]+", version):
        if _can_be_parsed(b"%s\n%s" % (_FORMAT.encode(), rest), parse) and _differs_from_checksum(path, content):
            # The entry has format v1, with a flipped bit in its version: the checksum and the rest show it.
            return content
        raise UnknownFormat(
            f"{path} has Spark's format {version.decode()[:20]}, and only {_FORMAT} is known: run the pipeline "
            "with the version of pyspark that Penstock installs, without settings of spark.sql.streaming for formats"
        )
    if _is_of_several_sources(content):
        raise UnknownFormat(
            f"{path} has the offsets of several sources, and the landing has one: name a checkpoint that only "
            "Penstock's pipeline writes"
        )
    return content


def _is_of_several_sources(content: bytes) -> bool:
    try:
        version, *lines = _lines(content)
        # Fast path: the lines of an entry of one source are parsed once, by its reader.
        if version != _FORMAT or len(lines) <= 2:
            return False
        for line in lines:
            if line != _NO_OFFSETS:
                parse_object(line)
    except ValueError:
        return False
    return True


def _differs_from_checksum(path: Path, content: bytes) -> bool:
    """Report whether an entry differs from its checksum file: ``crc\\0``, a part's size, the CRC-32 of each part."""
    try:
        stored = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return False
    magic, size, sums = stored[:4], int.from_bytes(stored[4:8], "big"), stored[8:]
    parts = [content[begin : begin + size] for begin in range(0, len(content), size)] if size else []
    return magic == b"crc\x00" and b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts) != sums


def _remove_torn(folder: Path, keep: int, parse: Callable[[bytes], object]) -> list[str]:
    removed = []
    for batch in reversed(_batches(folder)):
        path = folder / str(batch)
        if batch <= keep:
            break
        if _can_be_parsed(_read_entry(path, parse), parse):
            break
        removed.append(_remove(path))
    return removed


def _can_be_parsed(content: bytes, parse: Callable[[bytes], object]) -> bool:
    try:
        parse(content)
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _remove(path: Path) -> str:
    # Order: the checksum first. Crash: Spark can read an entry without its checksum, and the removal is repeated.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
    OS.sync_directory(path.parent)
    return str(path)


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    # Spark compares an entry with its checksum, which would be the one of the content before.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    replace_durably(OS, path, content)
