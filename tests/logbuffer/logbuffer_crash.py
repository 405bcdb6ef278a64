"""A stream whose writer can be killed in any store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.logbuffer import AdminAction, BackPressured, Frame, Parameters, Publication, Subscription
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication, FragmentAssembler
from penstock.logbuffer.mapped import LogFile

TERM = 65536
EXPECTED = Parameters(TERM, mtu=2048, session_id=99, stream_id=3, initial_term_id=2**31 - 2)
"""Term ids wrap with the third term."""


class Killed(BaseException):
    """The end of the process at this store."""


@contextmanager
def killed_at_store(number: int, path: Path, remains: Path) -> Iterator[None]:
    """Copy the file to ``remains`` in the middle of store ``number`` and end the writer there."""
    names = ("store_int", "store_long", "copy", "fill_zero", "copy_rows", "copy_columns")
    originals = {name: getattr(LogFile, name) for name in names}
    remaining_stores = number

    def wrapper(name: str) -> Callable[..., None]:
        def store(self: LogFile, offset: int, *values: Any) -> None:
            nonlocal remaining_stores
            remaining_stores -= 1
            if remaining_stores == 0:
                if name.startswith("copy"):  # these may be half done
                    *between, value = values
                    originals[name](self, offset, *between, value[: len(value) // 2])
                if name == "fill_zero":  # its first word comes last, and is a store of its own
                    self.bytes[offset + 8 : offset + values[0] // 2] = bytes(max(0, values[0] // 2 - 8))
                shutil.copyfile(path, remains)
                raise Killed
            originals[name](self, offset, *values)

        return store

    try:
        for name in names:
            setattr(LogFile, name, wrapper(name))
        yield
    finally:
        for name, original in originals.items():
            setattr(LogFile, name, original)


class Stream:
    """A writer and a reader, with the messages that must be read."""

    def __init__(self, path: Path, cleaning: Cleaning, publication: ExclusivePublication | None = None) -> None:
        self.publication = publication or ExclusivePublication.create(path, EXPECTED, cleaning=cleaning)
        self.publication.consumed(0)
        self.path = path
        self.reader = 0
        self.published: list[tuple[int, int]] = []
        self.read: list[tuple[int, int]] = []

    def offer(self, number: int, length: int) -> None:
        self.publication.consumed(self.reader)
        for _ in range(2):
            try:
                self.publication.offer(content(number, length), number)
                self.published.append((number, length))
                return
            except AdminAction:
                continue
            except BackPressured:
                return

    def offer_for_ever(self, number: int, length: int) -> None:
        while True:
            self.offer(number, length)

    def poll(self, limit: int) -> None:
        with Subscription(self.path, self.reader) as subscription:
            frames = subscription.poll(limit)
            complete = FragmentAssembler().push(frames)
            if complete:
                self.read += [checked(frame) for frame in complete]
                self.reader = complete[-1].end
            elif not frames:
                self.reader = subscription.position
            del frames, complete

    def drain(self) -> None:
        for _ in range(50):
            self.poll(1 << 30)


def content(number: int, length: int) -> bytes:
    return (number % 256).to_bytes(1, "little") * length


def checked(frame: Frame) -> tuple[int, int]:
    assert bytes(frame.data) == content(frame.reserved_value, len(frame.data))
    return frame.reserved_value, len(frame.data)


def reopen(path: Path, stream: Stream, cleaning: Cleaning) -> Stream:
    publication = ExclusivePublication.open(path, readers=[stream.reader], cleaning=cleaning)
    reopened = Stream(path, cleaning, publication)
    reopened.reader, reopened.read, reopened.published = stream.reader, stream.read, stream.published
    return reopened


def headers_in_order(path: Path, position: int) -> list[int]:
    """Return the numbers of the messages that begin; a payload may be torn, but the numbers must rise."""
    numbers: list[int] = []
    with Subscription(path, position) as subscription:
        for _ in range(20):
            numbers += [frame.reserved_value for frame in subscription.poll() if frame.flags & 0x80]
    assert numbers == sorted(set(numbers))
    return numbers


def torn_payloads(path: Path, position: int) -> int:
    with Subscription(path, position) as subscription:
        frames = [frame for _ in range(20) for frame in subscription.poll()]
        return sum(bytes(frame.data) != content(frame.reserved_value, len(frame.data)) for frame in frames)


def offer_two(publication: Publication) -> None:
    for number in (1000, 1001):
        try:
            publication.offer(b"x" * 500, number)
        except AdminAction:
            publication.offer(b"x" * 500, number)
