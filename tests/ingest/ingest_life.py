"""The parts of a receiver in this process, for tests: a log buffer, a publisher, what was published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.counts import Counts, by_bucket
from penstock.handover.buffer import HandlerPosition, open_buffer
from penstock.handover.frames.frame import decode_frame
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.paths import buffer_file, senders_file, state_file
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.sender_reading import read_senders
from penstock.handover.sender_table import COUNT_NAMES, OTHERS
from penstock.handover.state_page import StatePage
from penstock.handover.writer import FrameWriter
from penstock.logbuffer import Publication, Subscription


@dataclass
class Life:
    """The writing side of a receiver."""

    listener: ListenerConfig
    publisher: FrameWriter
    publication: Publication
    position: ReaderPosition
    folder: Path
    readers: list[HandlerPosition]

    def frames(self) -> list[tuple[list[bytes], FrameMetadata]]:
        """Payloads and receipt of all frames from the reader's position on."""
        frames_read: list[tuple[list[Any], FrameMetadata]] = []
        with Subscription(buffer_file(self.folder, self.listener.name), self.position.position) as frames:
            before = -1
            while frames.position > before:
                before = frames.position
                for frame in frames.poll():
                    batch, receipt = decode_frame(frame.data)
                    frames_read.append((batch.column("payload").to_pylist(), receipt))
        return frames_read

    def rows(self) -> list[dict[str, Any]]:
        """All messages, with their annotations."""
        with Subscription(buffer_file(self.folder, self.listener.name), self.position.position) as frames:
            return [row for frame in frames.poll() for row in decode_frame(frame.data)[0].to_pylist()]

    def payloads(self) -> list[bytes]:
        return [payload for payloads, _ in self.frames() for payload in payloads]

    def totals(self) -> Counts:
        """All counts in the buffer."""
        total = Counts()
        for _, receipt in self.frames():
            for counts in by_bucket(receipt.origin.bucket, receipt.origin.counts).values():
                total.absorb(counts)
        return Counts(total.pruned())

    def senders(self) -> dict[str, dict[str, int]]:
        """The counts of each sender that are not 0."""
        senders = read_senders(senders_file(self.folder, self.listener.name))
        assert senders is not None
        rows = {senders.name(index): row.tolist() for index, row in enumerate(senders.counts)}
        return {
            name: counts
            for name, row in rows.items()
            if (counts := {n: count for n, count in zip(COUNT_NAMES, row, strict=True) if count}) or name != OTHERS
        }

    def end(self) -> None:
        self.publication.close()


def live(folder: Path, listener: ListenerConfig, term_length: int = 1 << 16, drop: bool = True) -> Life:
    publication, readers = open_buffer(folder, listener, term_length)
    page = StatePage(state_file(folder, listener.name))
    readers = [replace(reader, drop=drop) for reader in readers]
    publisher = FrameWriter(listener.name, listener.codec, publication, readers, page)
    publisher.count_senders(senders_file(folder, listener.name))
    return Life(listener, publisher, publication, readers[0].position, folder, readers)
