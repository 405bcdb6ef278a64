"""The readers of one log buffer, as its writer sees them: how far the slowest is, and who is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from penstock.files.checked_word import MAX_WORD
from penstock.logbuffer.aeron.publication import ExclusivePublication
from penstock.logbuffer.descriptor import FRAME_ALIGNMENT

GONE: Final = MAX_WORD * FRAME_ALIGNMENT
"""The floor of a reader that is gone, the largest there can be: nothing is kept for it."""


class Reader(Protocol):
    """A reader's position: what it ``stored``, or the ``floor`` where that is further."""

    position: int
    floor: int

    @property
    def stored(self) -> int: ...


class Readers:
    """Readers by name, each with its position, as a media driver would keep them.

    The limit follows the slowest one. A reader that was declared gone holds nobody up and keeps nothing
    from being cleaned, also after the writer has started again, until it is admitted again.
    """

    def __init__(self, positions: Mapping[str, Reader]) -> None:
        self._positions = dict(positions)

    def __iter__(self) -> Iterator[str]:
        """The names of those that are not gone."""
        return (name for name, reader in self._positions.items() if reader.floor != GONE)

    def __getitem__(self, name: str) -> Reader:
        return self._positions[name]

    def positions(self) -> list[int]:
        """How far those have come that are not gone: what ``Publication.open`` wants to know."""
        return [self._positions[name].position for name in self]

    def slowest(self) -> str | None:
        """The name of the one that is furthest behind; None when all are gone."""
        return min(self, key=lambda name: self._positions[name].position, default=None)

    def declare_gone(self, name: str) -> int:
        """Goes on without the reader, and returns the position up to which it had come.

        What it does afterwards moves nothing; where it reads on it may be Lapped. KeyError for an unknown one.
        """
        reached = self._positions[name].position
        self._positions[name].floor = GONE
        return reached

    def admit(self, name: str, reader: Reader, position: int) -> None:
        """A new reader, or one that was gone, begins at ``position``: a frame still there, or where the next one goes.

        Nobody else may be moving ``reader`` at this time.
        """
        reader.floor = 0
        reader.position = position
        self._positions[name] = reader

    def follow(self, publication: ExclusivePublication) -> None:
        """Raises the limit to what the slowest reader allows, and cleans behind it.

        With no reader left the publication is not connected; with the first one it is again.
        """
        positions = self.positions()
        if not positions:
            publication.disconnect()
            return
        publication.connected = True
        publication.consumed(min(positions))
