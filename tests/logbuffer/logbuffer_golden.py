"""Recorded facts: files, calls and texts of the real Aeron (golden/manifest.json says which)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
HOST_DEPENDENT = range(0x124, 0x13C)
"""Offsets of the socket buffer lengths in the metadata, which depend on the recording machine."""


def unpacked(name: str) -> bytes:
    return lzma.decompress((GOLDEN / f"{name}.xz").read_bytes())


def trace(scenario: str) -> dict[str, Any]:
    return json.loads(unpacked(f"{scenario}.trace.json"))


def message(number: int, length: int) -> bytes:
    """Return the first ``length`` bytes of the pattern of message ``number``."""
    parts = (b"<msg%03d-part%03d>" % (number, part) for part in range(length // 16 + 1))
    return b"".join(parts)[:length]


def comparable(file: bytes) -> bytes:
    """Return the file without the fields that depend on the recording host."""
    data = bytearray(file)
    for offset in HOST_DEPENDENT:
        data[len(data) - 4096 + offset] = 0
    return bytes(data)
