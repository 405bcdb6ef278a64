"""Publishing of lines from many connections: they are decoded together, and written as frames with their counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.config import ListenerConfig
from penstock.counts import Counts, Name
from penstock.handover.frames.frame import reserved_value
from penstock.handover.frames.frame_size import FRAME_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES
from penstock.handover.sender_table import ACCEPTED, OVERLONG, REFUSED, named_arrivals, sender_counts
from penstock.handover.writer import FrameWriter
from penstock.ingest.acknowledgements import Acknowledgements
from penstock.ingest.connections import Connection
from penstock.ingest.plog_commands import Commands
from penstock.records import EMPTY_BODY
from penstock.wire.codecs import codec_of
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import Decoded
from penstock.wire.framing.line_framing import NO_LINES, Lines
from penstock.wire.framing.lines import separate_commands
from penstock.wire.plog.commands import Command
from penstock.wire.plog.statistics import Statistics
from penstock.wire.source_annotations import (
    CERTIFICATE_NAME,
    annotate,
    annotate_credentials,
    annotate_sources,
    messages_by_host,
)


class LineDecoder(Protocol):
    """Interface of the codec: lines to messages."""

    statistics: Statistics

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded: ...


@dataclass(frozen=True, slots=True)
class _PendingLines:
    """Lines of one connection that wait to be published."""

    lines: pa.Array[Any]
    connection: Connection


class LinePublisher:
    """Publisher of the lines of one listener, in the receiver's only thread. ``wake`` is called after each frame."""

    def __init__(
        self,
        listener: ListenerConfig,
        writer: FrameWriter,
        decoder: LineDecoder,
        commands: Commands,
        wake: Callable[[], None],
        acknowledgements: Acknowledgements | None,
    ) -> None:
        self._listener, self._writer, self._decoder = listener, writer, decoder
        self._commands, self._wake, self._acknowledgements = commands, wake, acknowledgements
        self._budget = writer.frame_limit - FRAME_OVERHEAD_BYTES
        self._round = writer.published[0] + 1
        codec = codec_of(listener.codec)
        self._growth, self._codec, self._annotates = codec.growth, codec, listener.annotate_source
        self._waiting: list[_PendingLines] = []
        self._commands_to_answer: list[tuple[Connection, Command]] = []
        self.counts = Counts()
        """Counts that go with the next frame."""
        self._sender_counts: dict[str, Ints] = {}
        """Losses by sender that no frame carries yet."""

    @property
    def has_commands(self) -> bool:
        """Report whether commands wait for their answers."""
        return bool(self._commands_to_answer)

    def publish_owed(self) -> None:
        """Write a frame without lines if counts of lost frames are owed."""
        if self._writer.owes:
            self._write_frame(EMPTY_BODY, Counts(), 0)
            self._wake()

    def add(self, connection: Connection, lines: Lines) -> None:
        """Add lines and commands of a connection for the next ``publish``."""
        messages, commands, counts = separate_commands(
            lines, self._decoder.statistics, self._codec.reserves, self._codec.keeps_empty
        )
        self._commands_to_answer += [
            (connection, command) for command in commands if self._commands.is_allowed(connection.address)
        ]
        self.counts.absorb(counts)
        self.count_sender(connection, OVERLONG, lines.overlong)
        self.count_sender(connection, REFUSED, sum(lines.refused.values()))
        if self._acknowledgements and (dialogue := connection.dialogue):
            self._acknowledgements.expect(connection, dialogue.acknowledgements)
            dialogue.acknowledgements = []
        if len(messages):
            self._waiting.append(_PendingLines(messages, connection))

    def _answer_commands(self) -> None:
        """Answer commands, after the lines before them are published."""
        commands, self._commands_to_answer = self._commands_to_answer, []
        for number, (connection, command) in enumerate(commands):
            reply = self._commands.answer(command.verb, command.trail, len(commands) - number)
            if reply is not None:
                connection.reply(reply + b"\n")

    def publish(self, first: int) -> int:
        """Publish pending lines, in parts if one frame cannot hold them, then answer. Return 0, the bytes pending now.

        ``first`` is the start of the round, in microseconds since the epoch; 0 if it is that of the frame.
        """
        counts, self.counts = self.counts, Counts()
        waiting, self._waiting = self._waiting, []
        arrays = [pending.lines for pending in waiting] or [NO_LINES]
        lines = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        published, begin = 0, self._writer.position
        while published < len(lines):
            if published:
                self._wake()  # so that the log stores the part before while this one is decoded, or waits for room
            rows = self._rows_per_frame(lines[published:])
            part = Counts(dict.fromkeys((Name.LINES, Name.LINE_MESSAGE, Name.SEEN, Name.ACCEPTED), rows))
            # Invariant: each frame carries the counts of its own messages, so that the books close at every position.
            counts.subtract(part)
            if published + rows == len(lines):  # the remaining counts of the round go with its last part
                part.absorb(counts)
                counts = Counts()
            decoded = self._decoder.decode_lines(lines[published : published + rows])
            part.absorb(decoded.counts)
            self._count_lines(decoded, waiting, published)
            self._write_frame(self._annotated(decoded, waiting, published), part, first)
            published += rows
        if counts.pruned():
            self._write_frame(EMPTY_BODY, counts, first)
        if self._acknowledgements:
            self._acknowledgements.mark_written()
        if self._writer.position > begin:
            # Order: the log sees that senders wait before it wakes, so that it reads the next frame at once.
            self._wake()
        self._answer_commands()
        return 0

    def count_sender(self, connection: Connection, column: int, amount: int) -> None:
        """Add to the counts that the next frame carries, in a column of COUNT_NAMES."""
        if not amount or self._writer.senders is None:
            return
        counts = self._sender_counts.get(sender := connection.sender)
        if counts is None:
            counts = self._sender_counts[sender] = sender_counts(1)[0]
        counts[column] += amount

    def _count_lines(self, decoded: Decoded, waiting: list[_PendingLines], first_line: int) -> None:
        """Count the messages from ``first_line`` on by sender."""
        if self._writer.senders is None:
            return
        if self._listener.senders == "host":
            for host, messages in messages_by_host(decoded.body).items():
                self._sender_counts.setdefault(host, sender_counts(1)[0])[ACCEPTED] += messages
        ends = np.cumsum([len(pending.lines) for pending in waiting]) - first_line
        for column, rows in ((ACCEPTED, decoded.rows), (REFUSED, decoded.refused)):
            if column == ACCEPTED and self._listener.senders == "host":
                continue
            # Rows are in the order of the connections, so the rows of each are found without a pass over all.
            amounts = np.diff(np.searchsorted(rows, ends), prepend=0)
            for index in amounts.nonzero()[0].tolist():
                self.count_sender(waiting[index].connection, column, int(amounts[index]))

    def _annotated(self, decoded: Decoded, waiting: list[_PendingLines], first_line: int) -> pa.RecordBatch:
        """Return the messages of the lines from ``first_line`` on, annotated with their source as configured."""
        body = decoded.body
        if not self._annotates and not self._listener.client_ca:
            return body
        sources = np.searchsorted(
            np.cumsum([len(pending.lines) for pending in waiting]), decoded.rows + first_line, side="right"
        )
        if self._annotates:
            body = self._annotate_senders(body, [pending.connection for pending in waiting], sources)
        if self._listener.client_ca:
            body = annotate(body, CERTIFICATE_NAME, [pending.connection.name for pending in waiting], sources)
        return body

    def _annotate_senders(self, body: pa.RecordBatch, connections: list[Connection], indices: Ints) -> pa.RecordBatch:
        if not self._listener.is_local:
            return annotate_sources(body, [connection.address for connection in connections], indices)
        credentials = np.array([connection.credentials for connection in connections], np.int64).reshape(-1, 3)
        return annotate_credentials(body, credentials[indices])

    def _rows_per_frame(self, lines: pa.Array[Any]) -> int:
        """Return how many of ``lines`` surely fit into one frame, by halving."""
        rows = len(lines)
        while rows > 1 and self._cost(lines[:rows]) > self._budget:
            # Halving bounds the work: sizes of single lines are not needed.
            rows = (rows + 1) // 2
        return rows

    def _cost(self, lines: pa.Array[Any]) -> int:
        """Return the upper bound of the bytes that ``lines`` take in a frame."""
        twice = 2 * lines.nbytes
        return int(twice + min(twice, len(lines) * self._growth) + len(lines) * MESSAGE_OVERHEAD_BYTES)

    def _write_frame(self, body: pa.RecordBatch, counts: Counts, first: int) -> None:
        arrivals = None
        if self._sender_counts:
            arrivals, self._sender_counts = named_arrivals(self._sender_counts, self._writer.sender_key), {}
        self._writer.publish(body, counts, reserved_value(self._round, 0), first=first, arrivals=arrivals)
        self._round += 1
