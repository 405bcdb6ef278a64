"""What an offer is given: one buffer or several, seen as bytes and cut without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def parts_of(data: Any) -> list[memoryview]:
    """The non-empty buffers of ``data`` (a buffer, or a list or tuple of them) as views of bytes."""
    buffers = data if isinstance(data, list | tuple) else (data,)
    views = (memoryview(buffer) for buffer in buffers)
    return [view.cast("B") for view in views if view.nbytes]


def pieces_of(parts: Sequence[memoryview], size: int) -> Iterator[list[memoryview]]:
    """The bytes of ``parts`` in pieces of ``size`` bytes (the last one shorter), without a copy."""
    piece: list[memoryview] = []
    room = size
    for part in parts:
        while len(part):
            piece.append(part[:room])
            part = part[len(piece[-1]) :]
            room -= len(piece[-1])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece
