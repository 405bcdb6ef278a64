"""Files as Kafka messages, and messages as files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaException, Message, TopicPartition

from penstock.files.file_system import OS, replace_durably
from penstock.kafka import Consumer, Producer
from penstock.kafka.client.broker_answers import end_offset, partition_numbers
from penstock.kafka.large.headers import find_last

FILE_HEADER = "file"
"""The header that has the file's name."""
ANSWER_SECONDS = 5.0
WAIT_SECONDS = 0.2
Step = Callable[[int], None]
"""Told of so many more bytes done."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A file that became a message, or the other way round; ``error`` where it did not."""

    file: str
    topic: str
    partition: int
    offset: int
    bytes: int
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """As JSON-ready mapping."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(slots=True)
class Rate:
    """Messages and bytes since it was made."""

    messages: int = 0
    bytes: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    def add(self, moved: Moved) -> None:
        """One more."""
        self.messages += 1
        self.bytes += moved.bytes

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-6)
        told = f"{self.messages} messages, {self.bytes / 1e6:,.1f} MB in {seconds:.1f} s"
        return f"{told} ({self.messages / seconds:,.1f} a second, {self.bytes / 1e6 / seconds:,.1f} MB a second)"


def send_files(
    config: Mapping[str, Any], topic: str, files: Iterable[Path], key: str | None = None, partition: int = -1
) -> Iterator[Moved]:
    """Send each file as a message, one in memory at a time; told as they are acknowledged. Raises KafkaException."""
    told: list[Moved] = []
    with Producer(config) as producer:
        producer.list_topics(timeout=ANSWER_SECONDS)
        for file in files:
            name = "-" if str(file) == "-" else file.name
            try:
                value = _content(file)
            except OSError as error:
                told.append(Moved(name, topic, -1, -1, 0, f"cannot be read: {error.strerror}"))
                continue
            while len(producer) > 1:
                producer.poll(WAIT_SECONDS)
            _send(producer, topic, value, key, partition, name, told)
            yield from _taken(told)
        while producer.flush(WAIT_SECONDS):
            yield from _taken(told)
        yield from _taken(told)


def _content(file: Path) -> bytes:
    if str(file) == "-":
        with os.fdopen(os.dup(0), "rb") as standard_input:
            return standard_input.read()
    return file.read_bytes()


def _send(
    producer: Producer, topic: str, value: bytes, key: str | None, partition: int, name: str, told: list[Moved]
) -> None:
    def report(error: Any, message: Message) -> None:
        if error is not None:
            told.append(Moved(name, topic, -1, -1, len(value), error.str()))
        else:
            partition, offset = _place(message)
            told.append(Moved(name, topic, partition, offset, len(value)))

    while True:
        try:
            producer.produce(topic, value, key, partition, report, headers=[(FILE_HEADER, name.encode())])
            return
        except BufferError:
            producer.poll(WAIT_SECONDS)


def _place(message: Message) -> tuple[int, int]:
    return message.partition(), message.offset()  # type: ignore[return-value]  # only events have none


def _taken(told: list[Moved]) -> Iterator[Moved]:
    while told:
        yield told.pop(0)


@dataclass(frozen=True, slots=True)
class Reading:
    """``start``: OFFSET_BEGINNING, OFFSET_END, an offset, or OFFSET_INVALID: what the group has committed.

    ``most``: so many messages at most; ``follow``: go on with what comes; ``commits``: each message once it is a file.
    """

    topic: str
    into: Path
    start: int = OFFSET_BEGINNING
    most: int | None = None
    follow: bool = False
    commits: bool = False


def receive_files(consumer: Consumer, reading: Reading, stopped: Callable[[], bool] = lambda: False) -> Iterator[Moved]:
    """Write each message into a file of its own. Raises KafkaException, LargeMessageError, OSError."""
    reading.into.mkdir(parents=True, exist_ok=True)
    partitions = partition_numbers(consumer, reading.topic, ANSWER_SECONDS)
    ends = {number: end_offset(consumer, (reading.topic, number), ANSWER_SECONDS) for number in partitions}
    consumer.assign([TopicPartition(reading.topic, number, reading.start) for number in partitions])
    done = 0
    while not stopped() and done != reading.most:
        message = consumer.poll(WAIT_SECONDS)
        if message is None:
            if not reading.follow and _at_ends(consumer, ends):
                return
            continue
        if message.error():
            raise KafkaException(message.error())
        yield _written(message, reading.into)
        if reading.commits:
            consumer.commit(message)
        done += 1


def _at_ends(consumer: Consumer, ends: Mapping[int, int]) -> bool:
    places = consumer.position(consumer.assignment())
    return all(place.offset >= ends[place.partition] or place.offset == OFFSET_INVALID for place in places)


def _written(message: Message, into: Path) -> Moved:
    """The whole file at once, under the name it had, unless that is taken."""
    topic, (partition, offset) = str(message.topic()), _place(message)
    own = f"{topic}-{partition}-{offset}"
    name = _name(message) or own
    target = into / name
    if target.exists():
        target = into / f"{own}-{name}" if name != own else target
    value = message.value() or b""
    replace_durably(OS, target, value, draft=f".{own}.{os.getpid()}")  # before its offset is committed
    return Moved(target.name, topic, partition, offset, len(value))


def _name(message: Message) -> str:
    """The file name a message brings, if it can be one; it never leads out of the folder."""
    found = find_last(message.headers(), FILE_HEADER)  # type: ignore[arg-type]  # received ones are a list
    given = found[1] if found else None
    name: str = given.decode("utf-8", "replace") if isinstance(given, bytes) else ""
    name = name.replace("\0", "").rpartition("/")[2].lstrip(".")
    return "".join(one for one in name if one.isprintable())[:120]


STARTS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END, "committed": OFFSET_INVALID}


def parse_start(text: str) -> int:
    """``earliest``, ``latest``, ``committed`` or an offset. Raises ValueError."""
    if text in STARTS:
        return int(STARTS[text])
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError(f"{text!r} is not earliest, latest, committed or an offset")
