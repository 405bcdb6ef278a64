"""The durable position of one relayed topic: an append is entered before it is made.

Crash: a start after a kill sends the same range again under the same number, which the other side stores once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, FileSystem, set_aside

FORMAT_OF_SEVERAL = 2
"""Format of a position with several ranges."""


class BadRelayPosition(PenstockError, ValueError):
    """A document that is not the position of a relay."""


class FurtherRange(NamedTuple):
    """A range behind the first one of a position: it begins where the one before ends, and has the next number."""

    end: int
    listener: str
    rows: int


@dataclass(frozen=True, slots=True)
class RelayPosition:
    """Offsets [begin, end) of the topic that were last sent, under a producer's id and number.

    ``sent``: time of the first attempt, in seconds since the epoch. Whether the range was acknowledged is not in it:
    the topic's cursor is behind the range then. ``rows`` of its entries, of one ``listener``, were sent: fewer
    than the range has, written before the cursor moves, if the others were gone at the last attempt. ``tally`` has the
    forwarded and expired entries before ``begin`` by listener; None in a file of an earlier version. They were counted
    as ``host`` for the daemon at ``to``; both are empty in a file of an earlier version. ``cursor`` is the topic's when
    the range was entered: before ``begin`` if the entries between were gone; None (``begin``) in such a file.
    ``further``: the ranges that were sent with it. ``stored_us``: when the last entry of all of them was stored in the
    topic, which tells it from another topic at the same path; 0 if unknown, and in a file of an earlier version.
    """

    producer: str
    sequence: int
    begin: int
    end: int
    sent: int
    listener: str = ""
    rows: int = 0
    tally: Mapping[str, tuple[int, int]] | None = None
    host: str = ""
    to: str = ""
    cursor: int | None = None
    further: tuple[FurtherRange, ...] = ()
    stored_us: int = 0

    @classmethod
    def join(cls, positions: Sequence[RelayPosition]) -> RelayPosition:
        """Return the position of ranges that are sent together; ``positions`` are as ``split`` returns them."""
        further = tuple(FurtherRange(each.end, each.listener, each.rows) for each in positions[1:])
        return replace(positions[0], further=further)

    def split(self) -> list[RelayPosition]:
        """Return a position for each range, with its own number. ``tally`` stays that before the first one."""
        positions = [replace(self, further=())]
        for end, listener, rows in self.further:
            last = positions[-1]
            number, begin = last.sequence + 1, last.end
            positions.append(replace(last, sequence=number, begin=begin, end=end, listener=listener, rows=rows))
        return positions

    def is_acknowledged(self, cursor: int) -> bool:
        """Report whether the topic's cursor shows that the range was acknowledged."""
        before = self.begin if self.cursor is None else self.cursor
        return not before <= cursor < self.end


class RelayPositionFile:
    """The file of one relayed topic. Owned by the relay, which holds a lock on the folder."""

    def __init__(self, path: Path, fs: FileSystem = OS) -> None:
        self._path, self._fs = path, fs
        fs.make_directory(path.parent)

    def read(self) -> RelayPosition | None:
        """Return the state that was written last; None at the first start.

        Raises DamagedFile, UnknownFormat, BadRelayPosition and OSError.
        """
        try:
            return position_of(read_document(self._path, self._fs, FORMAT_OF_SEVERAL))
        except FileNotFoundError:
            return None

    def write(self, position: RelayPosition) -> None:
        """Store ``position`` durably. Raises OSError."""
        # Compatibility: an earlier version would pass over the further ranges, and count their entries as expired.
        version = {"format": FORMAT_OF_SEVERAL} if position.further else {}
        write_document(self._path, asdict(position) | version, self._fs)

    def set_aside(self) -> Path:
        """Rename a damaged file, and return its new name."""
        return set_aside(self._path, self._fs)


def position_of(document: dict[str, Any]) -> RelayPosition:
    """Return the position in a document. Raises BadRelayPosition."""
    try:
        required = {name: document[name] for name in ("producer", "sequence", "begin", "end", "sent")}
        tally = document.get("tally")
        # Compatibility: earlier versions kept no counts by listener.
        counts = {} if tally is None else {name: (forwarded, expired) for name, (forwarded, expired) in tally.items()}
        optional = {name: document.get(name, "") for name in ("listener", "host", "to")}
        optional |= {name: document.get(name, 0) for name in ("rows", "stored_us")} | {"cursor": document.get("cursor")}
        further = tuple(FurtherRange(*fields) for fields in document.get("further", ()))
        position = RelayPosition(**required, **optional, tally=None if tally is None else counts, further=further)
    except KeyError as error:
        raise BadRelayPosition(f"no position of a relay: {error} is missing") from None
    except (AttributeError, TypeError, ValueError):
        raise BadRelayPosition("no position of a relay: the counts by listener are wrong") from None
    numbers = [position.sequence, position.begin, position.end, position.sent, position.rows, position.stored_us]
    numbers += [] if position.cursor is None else [position.cursor]
    numbers += [count for pair in counts.values() for count in pair]
    numbers += [number for each in further for number in (each.end, each.rows)]
    are_numbers = all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
    names = (position.producer, position.listener, position.host, position.to, *(each.listener for each in further))
    are_names = all(isinstance(name, str) for name in names)
    if not (are_numbers and are_names and 0 < len(position.producer) <= 200):
        raise BadRelayPosition("no position of a relay: a number or a name is wrong")
    ends = [position.begin, position.end, *(each.end for each in further)]
    if any(end <= begin for begin, end in pairwise(ends)):
        raise BadRelayPosition("no position of a relay: the range is empty")
    return position


BAD_FILE = (DamagedFile, BadRelayPosition)
"""Errors of a file whose content is lost."""
