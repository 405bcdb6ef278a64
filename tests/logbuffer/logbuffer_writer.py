"""A writer process that offers numbered messages until it is killed. Arguments: folder, term length, last number."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.handover.positions.position import ReaderPosition
from penstock.logbuffer import AdminAction, BackPressured
from penstock.logbuffer.aeron import ExclusivePublication


def main(folder: Path, last: int) -> None:
    reader = ReaderPosition(folder / "reader")
    publication = ExclusivePublication.open(folder / "log", readers=[reader.position])
    publication.window = publication.parameters.term_length
    frame = publication.last_frame()
    number = frame.reserved_value + 1 if frame else 0
    publication.consumed(reader.position)
    while number <= last:
        try:
            publication.offer(bytes([number % 251]) * (number * 37 % 8000), number)
        except AdminAction:
            continue
        except BackPressured:
            publication.consumed(reader.position)
            continue
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
