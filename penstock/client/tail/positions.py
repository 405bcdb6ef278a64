"""Durable positions of followed files: an append is entered before it is made.

Crash: a start after a kill knows which bytes may be in the topic already. It appends them again under the same
producer's number, which the log stores once.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, FileSystem

FileIdentity = tuple[int, int]
"""Device and inode."""
MAX_FINGERPRINT_BYTES = 1 << 16
"""Limit: longest part of a file that a position may ask to compare."""
COPIED = 2
"""``FilePosition.renamed`` of a copy."""
State = TypeVar("State")


class BadState(PenstockError, ValueError):
    """A document that is not the state of this kind of follower."""


class BadPositions(BadState):
    """A document that does not hold positions of followed files."""


@dataclass(slots=True)
class FilePosition:
    """The offset up to which a file has been read, and a fingerprint of what was read.

    ``head``: CRC32C of its first ``head_length`` bytes. ``window``: CRC32C of the ``window_length`` bytes before
    ``offset``. Together they detect a file that was cut and written again, even if it begins with a constant header.
    ``renamed``: 1 once the file has had another name, so that its writer will leave it. COPIED if its content was
    left out as a copy of another file: the next copy may be written into the same file.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    head_length: int = 0
    head: int = 0
    window_length: int = 0
    window: int = 0
    renamed: int = 0

    @property
    def identity(self) -> FileIdentity:
        return self.device, self.inode

    def restart(self) -> None:
        """Read the file from its beginning."""
        self.offset = self.head_length = self.head = self.window_length = self.window = self.renamed = 0

    def continue_from(self, predecessor: FilePosition) -> None:
        """Take over what was read of ``predecessor``, whose content this file begins with."""
        self.offset, self.head_length, self.head = predecessor.offset, predecessor.head_length, predecessor.head
        self.window_length, self.window = predecessor.window_length, predecessor.window


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Bytes [begin, end) of a file, with their CRC32C, that are being appended; ``path``: its name at that time."""

    path: str
    device: int
    inode: int
    begin: int
    end: int
    checksum: int

    @property
    def identity(self) -> FileIdentity:
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class InterruptedAppend:
    """A pending append whose file cannot be read at present; it keeps its number until the file is back."""

    producer: str
    sequence: int
    append: PendingAppend


@dataclass(slots=True)
class Positions:
    """Content of the state file: the producer, the number of its next append, the pending append, the files.

    ``cut``: positions in files before they were cut. A copy of such a file (logrotate's copytruncate) continues there.
    """

    producer: str
    sequence: int = 1
    pending: PendingAppend | None = None
    files: dict[FileIdentity, FilePosition] = field(default_factory=dict)
    cut: list[FilePosition] = field(default_factory=list)
    interrupted: list[InterruptedAppend] = field(default_factory=list)

    def renew(self, new_id: Callable[[], str]) -> None:
        """Continue as another producer: the log has forgotten this one, or holds other rows under its number."""
        self.producer, self.sequence = new_id(), 1


def new_id() -> str:
    """Return an id that no other producer has."""
    return uuid.uuid4().hex


class StateFile(ABC, Generic[State]):
    """The file of a follower's state. Holds a lock, so that two processes never use the same file. Raises Locked."""

    AFTER_REMOVAL: ClassVar[str]
    """End of an error text: the effect of a start without the file."""

    def __init__(self, path: Path, fs: FileSystem = OS) -> None:
        self._path, self._fs = path, fs
        fs.make_directory(path.parent)
        self._unlock = fs.lock(path.with_name(f"{path.name}.lock"))

    def read(self) -> State | None:
        """Return the state that was written last; None at the first start.

        Damaged state is never replaced silently: without it each message would be appended twice, or skipped. Raises
        DamagedFile, UnknownFormat, OSError, and the error of a document that is no such state.
        """
        try:
            return self._parse(read_document(self._path, self._fs))
        except FileNotFoundError:
            return None
        except (DamagedFile, BadState) as error:
            raise type(error)(f"{error}; restore it, or remove {self._path} {self.AFTER_REMOVAL}") from None

    def write(self, state: State) -> None:
        """Store ``state`` durably. Raises OSError."""
        write_document(self._path, self._document(state), self._fs)

    def close(self) -> None:
        self._unlock()

    @abstractmethod
    def _document(self, state: State) -> dict[str, Any]:
        """Return ``state`` as a JSON-ready mapping."""

    @abstractmethod
    def _parse(self, document: dict[str, Any]) -> State:
        """Return the state in a document of ``_document``. Raises a subclass of BadState."""


class PositionsFile(StateFile[Positions]):
    """The file of the positions in followed files."""

    AFTER_REMOVAL = "to append the files again (--from-end: only new lines)"

    def _document(self, state: Positions) -> dict[str, Any]:
        return document_of(state)

    def _parse(self, document: dict[str, Any]) -> Positions:
        return positions_of(document)


def document_of(positions: Positions) -> dict[str, Any]:
    """Return ``positions`` as a JSON-ready mapping."""
    return {
        "producer": positions.producer,
        "sequence": positions.sequence,
        "pending": asdict(positions.pending) if positions.pending else None,
        "files": [_entry_of(position) for position in positions.files.values()],
        "cut": [_entry_of(position) for position in positions.cut],
        "interrupted": [asdict(interrupted) for interrupted in positions.interrupted],
    }


def _entry_of(position: FilePosition) -> dict[str, Any]:
    # ``asdict`` copies deeply, which took half of the time of an append with 1,000 files.
    return {name: getattr(position, name) for name in FilePosition.__slots__}


def positions_of(document: dict[str, Any]) -> Positions:
    """Return the positions in a document of ``document_of``. Raises BadPositions."""
    try:
        pending = PendingAppend(**document["pending"]) if document["pending"] else None
        files = [FilePosition(**entry) for entry in document["files"]]
        cut = [FilePosition(**entry) for entry in document["cut"]]
        by_identity = {position.identity: position for position in files}
        interrupted = [
            InterruptedAppend(entry["producer"], entry["sequence"], PendingAppend(**entry["append"]))
            for entry in document["interrupted"]
        ]
        positions = Positions(document["producer"], document["sequence"], pending, by_identity, cut, interrupted)
    except (KeyError, TypeError) as error:
        raise BadPositions(f"no positions of followed files: {error}") from None
    if not _is_sound(positions):
        raise BadPositions("no positions of followed files: a number or a name is missing")
    return positions


def _is_sound(positions: Positions) -> bool:
    entries = [asdict(position) for position in (*positions.files.values(), *positions.cut)]
    appends = [positions.pending] if positions.pending else []
    entries += [asdict(append) for append in (*appends, *(each.append for each in positions.interrupted))]
    paths = [entry.pop("path") for entry in entries]
    sequences = [positions.sequence, *(each.sequence for each in positions.interrupted)]
    producers = [positions.producer, *(each.producer for each in positions.interrupted)]
    numbers = [*sequences, *(number for entry in entries for number in entry.values())]
    are_numbers = all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)
    # Limit: these lengths decide how much is read at once.
    lengths = [entry.get(name, 0) for entry in entries for name in ("head_length", "window_length")]
    are_texts = all(isinstance(text, str) for text in (*producers, *paths))
    return are_numbers and are_texts and all(length <= MAX_FINGERPRINT_BYTES for length in lengths)
