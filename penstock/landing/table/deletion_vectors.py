"""Reads deletion vectors of Delta: which rows of a file are deleted.

delta-rs returns one vector for each path. A file that a faulty commit lists with two vectors needs both: a row that one
of them deletes stays deleted. Formats: Delta's protocol ("Deletion Vector Format") and the portable format of Roaring
bitmaps.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

import numpy as np

from penstock.files.errors import DamagedFile
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask

Rows = np.ndarray[tuple[int], np.dtype[np.uint64]]
_INLINE, _IN_TABLE, _ABSOLUTE = "i", "u", "p"
_MAGIC: Final = 1681511377
_ENCODED_UUID = 20
"""Characters of a UUID in Z85."""
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_NO_RUNS, _WITH_RUNS = 12346, 12347
_ARRAY_ROWS, _BITMAP_BYTES = 4096, 8192
"""A container with more rows than this is a bitmap of 65,536 bits, if it is not in runs."""
_OFFSETS_FROM = 4
"""Containers from which a bitmap with runs has offsets, too."""


def read_mask(folder: TablePath, descriptor: Mapping[str, Any], rows: int) -> Mask:
    """Return the live rows among the first ``rows`` rows of a file, by Delta's descriptor of its vector.

    Raises DamagedFile.
    """
    try:
        live: Mask = np.ones(rows, bool)
        for deleted in parse_vector(_read_bytes(folder, descriptor)):
            live[deleted[deleted < rows]] = False
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise DamagedFile(f"{folder}: a deletion vector cannot be read: {error}") from None
    return live


def _read_bytes(folder: TablePath, descriptor: Mapping[str, Any]) -> bytes:
    kind, text, size = descriptor["storageType"], str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    if kind == _INLINE:
        return _decode(text)[:size]
    if kind == _IN_TABLE:
        prefix, name = text[:-_ENCODED_UUID], f"deletion_vector_{UUID(bytes=_decode(text[-_ENCODED_UUID:]))}.bin"
        path = folder / (f"{prefix}/{name}" if prefix else name)
    elif kind == _ABSOLUTE and isinstance(folder, Path):
        path = Path(unquote(urlsplit(text).path))
    else:
        raise ValueError(f"its storage type is {kind!r}")
    with path.open("rb") if isinstance(path, Path) else path.open() as file:
        file.seek(int(descriptor.get("offset") or 0))
        (length,) = struct.unpack(">I", file.read(4))
        content = bytes(file.read(min(length, size)))
        if length != size or struct.unpack(">I", file.read(4)) != (zlib.crc32(content),):
            raise ValueError(f"{path} is damaged")
    return content


def _decode(text: str) -> bytes:
    """Decode Z85, which has the digits of base 85 in another order."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))


def parse_vector(content: bytes) -> Iterator[Rows]:
    """Yield the deleted rows of a vector, ascending, in parts. Raises ValueError, struct.error."""
    magic, bitmaps = struct.unpack_from("<Iq", content)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic}")
    position = 12
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<I", content, position)
        position += 4
        containers = _read_header(content, position)
        position = containers.pop()[0]
        for key, count, is_run in zip(*containers, strict=True):
            low, position = _read_container(content, position, count, bool(is_run))
            yield low.astype(np.uint64) + np.uint64(high << 32 | key << 16)


def _read_header(content: bytes, position: int) -> list[list[int]]:
    """Return keys, numbers of rows and run flags of the containers, and the position behind the header."""
    (cookie,) = struct.unpack_from("<I", content, position)
    if cookie & 0xFFFF == _WITH_RUNS:
        count, position = (cookie >> 16) + 1, position + 4
        flags = np.frombuffer(content, np.uint8, (count + 7) // 8, position)
        is_run = np.unpackbits(flags, bitorder="little")[:count].tolist()
        position += len(flags)
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", content, position + 4)
        position, is_run, has_offsets = position + 8, [0] * min(count, len(content)), True
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    described = np.frombuffer(content, "<u2", 2 * count, position).reshape(-1, 2).astype(int)
    position += 4 * count * (2 if has_offsets else 1)
    return [described[:, 0].tolist(), (described[:, 1] + 1).tolist(), is_run, [position]]


def _read_container(content: bytes, position: int, count: int, is_run: bool) -> tuple[np.ndarray[Any, Any], int]:
    """Return the low 16 bits of the rows of a container, and the position behind it."""
    if is_run:
        (runs,) = struct.unpack_from("<H", content, position)
        bounds = np.frombuffer(content, "<u2", 2 * runs, position + 2).reshape(-1, 2).astype(int)
        if (bounds[:, 1] + 1).sum() != count:
            raise ValueError("the runs of a bitmap have another number of rows than it says")
        parts = [np.arange(first, first + length + 1) for first, length in bounds.tolist()]
        return np.concatenate(parts) if parts else np.empty(0, int), position + 2 + 4 * runs
    if count > _ARRAY_ROWS:
        bits = np.frombuffer(content, np.uint8, _BITMAP_BYTES, position)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")), position + _BITMAP_BYTES
    return np.frombuffer(content, "<u2", count, position), position + 2 * count
