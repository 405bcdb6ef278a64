"""Commits of another program in Delta's protocol, written by hand: deletion vectors, properties, features."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

ENGINE = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"
VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "invariants", "appendOnly"],
}
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def commit(folder: Path, actions: Sequence[Mapping[str, Any]], operation: str = "DELETE") -> int:
    """Append a commit; return its version."""
    version = deltalake.DeltaTable(str(folder)).version() + 1
    info = {"timestamp": 1_770_000_000_000, "operation": operation, "engineInfo": ENGINE, "operationParameters": {}}
    lines = [{"commitInfo": info}, *actions]
    (folder / "_delta_log" / f"{version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return version


def latest_add(folder: Path, name: str) -> dict[str, Any]:
    """Return the newest action that added a file."""
    for path in sorted((folder / "_delta_log").glob("*.json"), reverse=True):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if action.get("add", {}).get("path") == name:
                added: dict[str, Any] = action["add"]
                return added
    raise FileNotFoundError(name)


def delete_by_vector(folder: Path, name: str, rows: Sequence[int]) -> int:
    """Delete rows of a file as Spark does if deletion vectors are enabled; ``rows``: all deleted rows of the file."""
    added = latest_add(folder, name)
    removal = _removal(added) | {"dataChange": True}
    if "deletionVector" in added:
        removal["deletionVector"] = added["deletionVector"]
    change = {**added, "dataChange": True, "deletionVector": inline_vector(rows)}
    return commit(folder, [{"protocol": VECTORS}, {"remove": removal}, {"add": change}])


def inline_vector(rows: Sequence[int]) -> dict[str, Any]:
    """Return Delta's descriptor of a vector that deletes rows."""
    packed = _bitmap(sorted(rows))
    return {"storageType": "i", "pathOrInlineDv": z85(packed), "sizeInBytes": len(packed), "cardinality": len(rows)}


def add_without_vector(folder: Path, name: str, operation: str = "WRITE") -> int:
    """Add a file again without its deletion vector, and leave the one with the vector."""
    return commit(folder, [{"add": _without_vector(latest_add(folder, name))}], operation)


def delete_again_without_vector(folder: Path, name: str, rows: Sequence[int]) -> int:
    """Delete more rows of a file with a vector, and do not name that vector in the removal (trinodb/trino#24648)."""
    added = latest_add(folder, name)
    return commit(folder, [{"remove": _removal(added)}, {"add": {**added, "deletionVector": inline_vector(rows)}}])


def restore(folder: Path, name: str) -> int:
    """Replace a file with a deletion vector by the same file without it, as a RESTORE does."""
    added = latest_add(folder, name)
    removal = _removal(added) | {"dataChange": True, "deletionVector": added["deletionVector"]}
    return commit(folder, [{"remove": removal}, {"add": _without_vector(added)}], "RESTORE")


def optimize_without_vector(folder: Path, name: str, deleted: Sequence[int]) -> int:
    """Replace a file with a deletion vector by its live rows, and do not name the vector (trinodb/trino#31253)."""
    added, copy = latest_add(folder, name), name.replace(".parquet", "-optimized.parquet")
    optimized = _copy_live_rows(folder, added, copy, deleted)
    return commit(folder, [{"remove": _removal(added)}, {"add": optimized | {"dataChange": False}}], "OPTIMIZE")


def restore_after_optimize(folder: Path, name: str, deleted: Sequence[int]) -> int:
    """Replace a file with a deletion vector by its live rows, and take that back by a RESTORE."""
    added, copy = latest_add(folder, name), name.replace(".parquet", "-optimized.parquet")
    vector = {"deletionVector": added["deletionVector"]}
    optimized = _copy_live_rows(folder, added, copy, deleted)
    commit(folder, [{"remove": _removal(added) | vector}, {"add": optimized | {"dataChange": False}}], "OPTIMIZE")
    return commit(folder, [{"remove": _removal(optimized)}, {"add": added | {"dataChange": True}}], "RESTORE")


def optimize_rows(folder: Path, name: str, rows: Sequence[int], is_removed: bool = True) -> int:
    """Replace a file by one with the rows of these indices; without ``is_removed``, leave the file, too."""
    added, copy = latest_add(folder, name), name.replace(".parquet", "-optimized.parquet")
    # An earlier version, to which a RESTORE goes back, may have a file of this name.
    while (folder / copy).exists():
        copy = copy.replace(".parquet", "-optimized.parquet")
    optimized = _copy_rows(folder, added, copy, rows) | {"dataChange": False}
    return commit(folder, [*([{"remove": _removal(added)}] if is_removed else []), {"add": optimized}], "OPTIMIZE")


def _copy_live_rows(folder: Path, added: Mapping[str, Any], copy: str, deleted: Sequence[int]) -> dict[str, Any]:
    """Write the live rows of a file into another one, and return the action that adds it."""
    written = pq.ParquetFile(folder / added["path"]).metadata.num_rows
    return _copy_rows(folder, added, copy, [index for index in range(written) if index not in deleted])


def _copy_rows(folder: Path, added: Mapping[str, Any], copy: str, indices: Sequence[int]) -> dict[str, Any]:
    rows = pq.ParquetFile(folder / added["path"]).read()
    # Workaround: PyArrow cannot take rows of the string views that delta-rs writes.
    rows = pa.concat_tables([rows.slice(0, 0), *(rows.slice(index, 1) for index in indices)])
    pq.write_table(rows, folder / copy)
    statistics = json.dumps({"numRecords": rows.num_rows})
    return _without_vector(added) | {"path": copy, "size": (folder / copy).stat().st_size, "stats": statistics}


def _removal(added: Mapping[str, Any]) -> dict[str, Any]:
    removal = {key: added[key] for key in ("path", "partitionValues", "size")}
    return removal | {"deletionTimestamp": 1_770_000_000_000, "dataChange": False, "extendedFileMetadata": True}


def _without_vector(added: Mapping[str, Any]) -> dict[str, Any]:
    return {key: field for key, field in added.items() if key != "deletionVector"} | {"dataChange": True}


def _bitmap(rows: Sequence[int]) -> bytes:
    """Return the protocol's RoaringBitmapArray with one array container: rows below 65,536."""
    container = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
    return struct.pack("<IqI", 1681511377, 1, 0) + container


def z85(packed: bytes) -> str:
    """Return bytes as Delta writes them: in the digits of Z85."""
    padded = packed + bytes(-len(packed) % 4)
    return base64.b85encode(padded).translate(bytes.maketrans(_B85, _Z85)).decode()
