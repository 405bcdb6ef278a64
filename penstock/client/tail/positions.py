"""How far each file has been appended, kept durably: an append is entered before it is made.

So a start after a kill knows which bytes may be in the topic already, and appends them again with the same producer's
number: the log stores them once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.file_system import OS, FileSystem

FileIdentity = tuple[int, int]
"""Device and inode."""


class BadPositions(PenstockError, ValueError):
    """The file is not one of positions."""


@dataclass(slots=True)
class Place:
    """A file by its identity, and how far it has been read.

    ``head``: CRC32C of its first ``head_length`` bytes, by which another file of the same inode is known.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    head_length: int = 0
    head: int = 0

    @property
    def identity(self) -> FileIdentity:
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Bytes [begin, end) of a file, with their CRC32C, that are being appended; ``path`` is what it was called."""

    path: str
    device: int
    inode: int
    begin: int
    end: int
    checksum: int


@dataclass(slots=True)
class Positions:
    """The content of the file: the producer, the number of its next append, what is pending, and the places."""

    producer: str
    sequence: int = 1
    pending: PendingAppend | None = None
    places: dict[FileIdentity, Place] = field(default_factory=dict)

    def renew(self, new_id: Callable[[], str]) -> None:
        """Go on as another producer: the log does not know this one any more, or what its number was for."""
        self.producer, self.sequence = new_id(), 1


def new_id() -> str:
    """An id that no other producer has."""
    return uuid.uuid4().hex


class PositionsFile:
    """Reads and writes positions; holds a lock, so that two never follow with the same ones. Raises Locked."""

    def __init__(self, path: Path, fs: FileSystem = OS) -> None:
        self._path, self._fs = path, fs
        fs.make_directory(path.parent)
        self._unlock = fs.lock(path.with_name(f"{path.name}.lock"))

    def read(self) -> Positions | None:
        """What was written last; None at the first start. Raises DamagedFile, UnknownFormat, BadPositions, OSError."""
        try:
            return positions_of(read_document(self._path, self._fs))
        except FileNotFoundError:
            return None

    def write(self, positions: Positions) -> None:
        """Keep ``positions``, durably. Raises OSError."""
        write_document(self._path, document_of(positions), self._fs)

    def close(self) -> None:
        self._unlock()


def document_of(positions: Positions) -> dict[str, Any]:
    """As JSON-ready mapping."""
    pending = asdict(positions.pending) if positions.pending else None
    places: Iterable[Place] = positions.places.values()
    numbers = {"producer": positions.producer, "sequence": positions.sequence}
    return {**numbers, "pending": pending, "files": [asdict(place) for place in places]}


def positions_of(document: dict[str, Any]) -> Positions:
    """What ``document_of`` gave. Raises BadPositions."""
    try:
        pending = PendingAppend(**document["pending"]) if document["pending"] else None
        places = [Place(**each) for each in document["files"]]
        found = Positions(document["producer"], document["sequence"], pending, {each.identity: each for each in places})
    except (KeyError, TypeError) as error:
        raise BadPositions(f"no positions of followed files: {error}") from None
    if not _is_sound(found):
        raise BadPositions("no positions of followed files: a number or a name is none")
    return found


def _is_sound(positions: Positions) -> bool:
    parts = [asdict(place) for place in positions.places.values()]
    parts += [asdict(positions.pending)] if positions.pending else []
    paths = [part.pop("path") for part in parts]
    numbers = [positions.sequence, *(number for part in parts for number in part.values())]
    are_numbers = all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)
    return are_numbers and all(isinstance(text, str) for text in (positions.producer, *paths))
