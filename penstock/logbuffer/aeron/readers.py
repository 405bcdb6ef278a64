"""The readers of one log buffer from its writer's view: the position of the slowest, and which are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from penstock.files.checked_word import MAX_WORD
from penstock.logbuffer.aeron.publication import ExclusivePublication
from penstock.logbuffer.descriptor import FRAME_ALIGNMENT

GONE: Final = MAX_WORD * FRAME_ALIGNMENT
"""Floor of a reader that is gone: the largest possible, so that nothing is retained for it."""


class Reader(Protocol):
    """The position of a reader: what it ``stored``, or the ``floor`` if that is higher."""

    position: int
    floor: int

    @property
    def stored(self) -> int: ...


class Readers:
    """Readers by name with their positions, as a media driver keeps them.

    The limit follows the slowest one. A reader that was declared gone holds back neither the limit nor the cleaning,
    also after the writer restarts, until it is admitted again.
    """

    def __init__(self, positions: Mapping[str, Reader]) -> None:
        self._positions = dict(positions)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of readers that are not gone."""
        return (name for name, reader in self._positions.items() if reader.floor != GONE)

    def __getitem__(self, name: str) -> Reader:
        return self._positions[name]

    def positions(self) -> list[int]:
        """Return the positions of readers that are not gone, for ``Publication.open``."""
        return [self._positions[name].position for name in self]

    def slowest(self) -> str | None:
        """Return the name of the slowest reader, or None if all are gone."""
        return min(self, key=lambda name: self._positions[name].position, default=None)

    def declare_gone(self, name: str) -> int:
        """Continue without a reader and return the position that it had reached.

        Its further reads move nothing, and may raise Lapped. Raises KeyError for an unknown reader.
        """
        reached = self._positions[name].position
        self._positions[name].floor = GONE
        return reached

    def admit(self, name: str, reader: Reader, position: int) -> None:
        """Add a reader, or one that was gone, at ``position``: of a frame in the buffer, or of the next one.

        The reader must not move during the call.
        """
        # Order: the floor first, because a position below it does not count.
        reader.floor = 0
        reader.position = position
        self._positions[name] = reader

    def follow(self, publication: ExclusivePublication) -> None:
        """Raise the limit to what the slowest reader allows, and clean behind it.

        Without readers the publication is not connected; with the first one it is again.
        """
        positions = self.positions()
        if not positions:
            publication.disconnect()
            return
        publication.connected = True
        publication.consumed(min(positions))
