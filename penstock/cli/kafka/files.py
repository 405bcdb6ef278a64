"""Files as Kafka messages, and messages as files.

A message is written durably before its offset is committed: a crash repeats a file, and never skips one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaException, Message, TopicPartition

from penstock.console.wording import counted
from penstock.files.file_system import OS, replace_durably
from penstock.kafka import Consumer, Producer
from penstock.kafka.client.broker_answers import end_offset, partition_numbers
from penstock.kafka.large.headers import find_last

FILE_HEADER = "file"
"""Header with the name of the file."""
ANSWER_TIMEOUT_S = 5.0
POLL_TIMEOUT_S = 0.2


@dataclass(frozen=True, slots=True)
class Transfer:
    """A file that became a message, or a message that became a file; ``error`` if it failed."""

    file: str
    topic: str
    partition: int
    offset: int
    bytes: int
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {name: field for name, field in asdict(self).items() if field is not None}


@dataclass(slots=True)
class Rate:
    """The messages and bytes since its creation, as text with their rates."""

    messages: int = 0
    bytes: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    def add(self, transfer: Transfer) -> None:
        """Count a transfer."""
        self.messages += 1
        self.bytes += transfer.bytes

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-6)
        totals = f"{counted(self.messages, 'message')}, {self.bytes / 1e6:,.1f} MB in {seconds:.1f} s"
        return f"{totals} ({self.messages / seconds:,.1f} a second, {self.bytes / 1e6 / seconds:,.1f} MB a second)"


def send_files(
    config: Mapping[str, Any], topic: str, files: Iterable[Path], key: str | None = None, partition: int = -1
) -> Iterator[Transfer]:
    """Send each file as a message and yield it once it is acknowledged. Raises KafkaException.

    Limit: at most two files are in flight or being read at a time, as their size is unlimited.
    """
    transfers: list[Transfer] = []
    with Producer(config) as producer:
        # Order: a broker that does not answer is reported before the first file is read.
        producer.list_topics(timeout=ANSWER_TIMEOUT_S)
        for file in files:
            # Limit: a file is read only when at most one other is still in flight.
            while len(producer) > 1:
                producer.poll(POLL_TIMEOUT_S)
            name = "-" if str(file) == "-" else file.name
            try:
                payload = _read_file(file)
            except OSError as error:
                transfers.append(Transfer(name, topic, -1, -1, 0, f"cannot be read: {error.strerror}"))
                continue
            _send(producer, topic, payload, key, partition, name, transfers)
            yield from _drain(transfers)
        while producer.flush(POLL_TIMEOUT_S):
            yield from _drain(transfers)
        yield from _drain(transfers)


def _read_file(file: Path) -> bytes:
    if str(file) == "-":
        # A copy of the descriptor: closing it must not close the standard input of the process.
        with os.fdopen(os.dup(0), "rb") as standard_input:
            return standard_input.read()
    return file.read_bytes()


def _send(
    producer: Producer,
    topic: str,
    payload: bytes,
    key: str | None,
    partition: int,
    name: str,
    transfers: list[Transfer],
) -> None:
    def report(error: Any, message: Message) -> None:
        if error is not None:
            transfers.append(Transfer(name, topic, -1, -1, len(payload), error.str()))
        else:
            partition, offset = _partition_and_offset(message)
            transfers.append(Transfer(name, topic, partition, offset, len(payload)))

    while True:
        try:
            producer.produce(topic, payload, key, partition, report, headers=[(FILE_HEADER, name.encode())])
            return
        except BufferError:
            producer.poll(POLL_TIMEOUT_S)


def _partition_and_offset(message: Message) -> tuple[int, int]:
    return message.partition(), message.offset()  # type: ignore[return-value]  # only events have none


def _drain(transfers: list[Transfer]) -> Iterator[Transfer]:
    while transfers:
        yield transfers.pop(0)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The messages to receive, and the folder ``into`` which they are written.

    ``start`` is OFFSET_BEGINNING, OFFSET_END, an offset, or OFFSET_INVALID for the group's committed offset.
    ``commits`` commits each message once it is a file; ``follow`` continues with new messages.
    """

    topic: str
    into: Path
    start: int = OFFSET_BEGINNING
    max_messages: int | None = None
    follow: bool = False
    commits: bool = False


def receive_files(
    consumer: Consumer, request: ReadRequest, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Transfer]:
    """Write each message to a file and yield it. Raises KafkaException, LargeMessageError, OSError."""
    request.into.mkdir(parents=True, exist_ok=True)
    partitions = partition_numbers(consumer, request.topic, ANSWER_TIMEOUT_S)
    # Limit: the ends when the command started. A busy topic would never reach its end.
    ends = {number: end_offset(consumer, (request.topic, number), ANSWER_TIMEOUT_S) for number in partitions}
    consumer.assign([TopicPartition(request.topic, number, request.start) for number in partitions])
    received = 0
    while not stopped() and received != request.max_messages:
        message = consumer.poll(POLL_TIMEOUT_S)
        if message is None:
            if not request.follow and _is_at_ends(consumer, ends):
                return
            continue
        if message.error():
            raise KafkaException(message.error())
        yield _write_file(message, request.into)
        if request.commits:
            consumer.commit(message)
        received += 1


def _is_at_ends(consumer: Consumer, ends: Mapping[int, int]) -> bool:
    positions = consumer.position(consumer.assignment())
    return all(
        position.offset >= ends[position.partition] or position.offset == OFFSET_INVALID for position in positions
    )


def _write_file(message: Message, into: Path) -> Transfer:
    """Write a message to a file with its own name, or with its offset in the name if that file exists."""
    topic, (partition, offset) = str(message.topic()), _partition_and_offset(message)
    unique_name = f"{topic}-{partition}-{offset}"
    name = _file_name(message) or unique_name
    target = into / name
    if target.exists():
        # Crash: a message that is read again after a crash replaces its own file, if the file has the message's offset
        # in its name.
        target = into / f"{unique_name}-{name}" if name != unique_name else target
    payload = message.value() or b""
    # Order: the file is on disk before the caller commits the offset.
    replace_durably(OS, target, payload, draft=f".{unique_name}.{os.getpid()}")
    return Transfer(target.name, topic, partition, offset, len(payload))


def _file_name(message: Message) -> str:
    """Return the file name in a message's header, without folders and at most 120 characters; empty if it has none."""
    header = find_last(message.headers(), FILE_HEADER)  # type: ignore[arg-type]  # received headers are a list
    encoded_name = header[1] if header else None
    name: str = encoded_name.decode("utf-8", "replace") if isinstance(encoded_name, bytes) else ""
    # The header comes from any producer: no folder, hidden file or control character of it reaches the disk.
    name = name.replace("\0", "").rpartition("/")[2].lstrip(".")
    return "".join(character for character in name if character.isprintable())[:120]


STARTS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END, "committed": OFFSET_INVALID}


def parse_start(text: str) -> int:
    """Parse ``earliest``, ``latest``, ``committed`` or an offset. Raises ValueError."""
    if text in STARTS:
        return int(STARTS[text])
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"{text!r} is not earliest, latest, committed or an offset")
