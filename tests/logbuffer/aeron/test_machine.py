"""Any sequence of offers, claims, polls, crashes and reopenings: published messages are read once and in order."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.logbuffer import AdminAction, BackPressured, Frame, NotALogBuffer
from penstock.logbuffer.aeron import Claim, Cleaning, ExclusivePublication, FragmentAssembler, Image
from tests.logbuffer.logbuffer_crash import EXPECTED, TERM, Killed, checked, content, killed_at_store

LENGTHS = st.one_of(st.integers(0, 300), st.integers(0, 8192), st.sampled_from([2016, 2017, 8192]))
STORES = st.one_of(st.integers(1, 6), st.integers(1, 40))


@dataclass
class Message:
    number: int
    length: int
    end: int = 0
    """Position after its last frame; 0 if its writer died before it was acknowledged."""
    published: bool = True
    """Not yet while it is only claimed."""
    follows: bool = False
    """Whether it is a later message of a batch, which is never published without the message before it."""


class LogBufferMachine(RuleBasedStateMachine):
    """A writer, and a reader whose position outlives both; ``waiting`` has the messages that are still unread."""

    @initialize(cleaning=st.sampled_from(Cleaning))
    def begin(self, cleaning: Cleaning) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path, self.remains = Path(self.folder.name, "log"), Path(self.folder.name, "remains")
        self.cleaning, self.number, self.reader = cleaning, 0, 0
        self.waiting: deque[Message] = deque()
        self.claimed: tuple[Claim, Message] | None = None
        self.publication = ExclusivePublication.create(self.path, EXPECTED, cleaning=cleaning)

    def teardown(self) -> None:
        self.crash()
        self.poll(TERM)
        for _ in range(8):
            self.poll(TERM)
        assert all(message.end == 0 for message in self.waiting)
        self.publication.close()
        self.folder.cleanup()

    # The writer

    @rule(length=LENGTHS)
    def offer(self, length: int) -> None:
        message = self.new(length)
        if self.accepts(lambda: self.publication.offer(content(message.number, length), message.number)):
            self.wait_for([message], self.publication.position)

    @rule(
        lengths=st.one_of(st.lists(st.integers(0, 2016), min_size=1, max_size=12), st.lists(st.just(200), min_size=1))
    )
    def offer_batch(self, lengths: list[int]) -> None:
        messages = [self.new(length) for length in lengths]
        data = b"".join(content(message.number, message.length) for message in messages)
        offsets, numbers = np.cumsum([0, *lengths]), np.array([message.number for message in messages])
        accepted = self.accepts(lambda: self.publication.offer_batch(data, offsets, numbers))
        self.wait_for(messages[:accepted], self.publication.position)

    @rule(length=st.integers(0, 3000))
    def append_padding(self, length: int) -> None:
        self.accepts(lambda: self.publication.append_padding(length))

    @precondition(lambda self: self.claimed is None)
    @rule(length=st.integers(0, 2016))
    def claim(self, length: int) -> None:
        message, claims = self.new(length), []
        if self.accepts(lambda: claims.append(self.publication.try_claim(length)) or 1):
            claims[0].data[: length // 2] = content(message.number, length // 2)
            claims[0].set_reserved_value(message.number)
            message.published = False
            self.wait_for([message], claims[0].position)
            self.claimed = claims[0], message

    @precondition(lambda self: self.claimed is not None)
    @rule(commit=st.booleans())
    def end_claim(self, commit: bool) -> None:
        claim, message = self.claimed or (None, None)
        assert claim
        assert message
        claim.data[:] = content(message.number, message.length)
        claim.commit() if commit else claim.abort()
        message.published = True
        if not commit:
            self.waiting.remove(message)
        self.claimed = None

    # The reader

    @rule(limit=st.integers(1, 40_000))
    def poll(self, limit: int) -> None:
        with Image(self.path, self.reader) as subscription:
            self.read_frames(subscription, subscription.poll(limit), lambda: subscription.poll())

    @rule(limit=st.integers(2048, 40_000))
    def block_poll(self, limit: int) -> None:
        with Image(self.path, self.reader) as subscription:
            blocks = iter(lambda: subscription.block_poll(limit), None)
            self.read_frames(subscription, frames_of(blocks), list)

    def read_frames(self, subscription: Image, frames: list[Frame], more: Callable[[], list[Frame]]) -> None:
        assembler = FragmentAssembler()
        messages = assembler.push(frames)
        if frames and not messages:
            messages = assembler.push(more())
        for message in messages:
            self.read(*checked(message))
            self.reader = message.end
        if not frames:
            self.reader = subscription.position
        frames.clear()
        messages.clear()

    def read(self, number: int, length: int) -> None:
        missing = False
        while self.waiting and self.waiting[0].number != number and not self.waiting[0].end:
            self.waiting.popleft()  # its writer died, and it was not published
            missing = True
        message = self.waiting.popleft()
        assert not (missing and message.follows)
        assert (message.number, message.length, message.published) == (number, length, True)

    # What can happen to them

    @rule()
    def crash(self) -> None:
        self.reopen(0)

    @rule(
        operation=st.sampled_from(["offer", "offer_batch", "append_padding"]),
        size=LENGTHS,
        store=STORES,
        recovery_store=STORES,
    )
    def crash_at_a_store(self, operation: str, size: int, store: int, recovery_store: int) -> None:
        self.before = self.number
        argument = (
            [size % 2016] * (size % 9 + 1)
            if operation == "offer_batch"
            else min(size, 3000)
            if "pad" in operation
            else size
        )
        try:
            with killed_at_store(store, self.path, self.remains):
                getattr(self, operation)(argument)
        except Killed:
            sizes = argument if isinstance(argument, list) else [argument] if operation == "offer" else []
            self.waiting += (
                Message(self.before + index, length, follows=index > 0) for index, length in enumerate(sizes)
            )
            os.replace(self.remains, self.path)
            self.reopen(recovery_store)

    @precondition(lambda self: self.reader or self.waiting)
    @rule(cut=st.integers(1, (3 * TERM + 4096) // 32), recovery_store=STORES)
    def cut(self, cut: int, recovery_store: int) -> None:
        """Cut the end of the file, with its content."""
        os.truncate(self.path, 32 * cut)
        lost = [message for message in self.waiting if message.end and self.file_end(message) > 32 * cut]
        self.waiting = deque(message for message in self.waiting if message not in lost)
        self.reopen(recovery_store)

    def file_end(self, message: Message) -> int:
        return (message.end - 1) // TERM % 3 * TERM + (message.end - 1) % TERM + 1

    def reopen(self, recovery_store: int) -> None:
        """Reopen the file: a claim dies with its process; the recovery is killed too if it reaches
        ``recovery_store`` stores.
        """
        self.publication.close()
        if self.claimed:
            if self.claimed[1] in self.waiting:
                self.waiting.remove(self.claimed[1])
            self.claimed = None
        try:
            with killed_at_store(recovery_store, self.path, self.remains):
                self.publication = self.opened()
        except Killed:
            os.replace(self.remains, self.path)
            self.publication = self.opened()

    def opened(self) -> ExclusivePublication:
        readers = [self.reader]
        try:
            return ExclusivePublication.open(self.path, readers=readers, expected=EXPECTED, cleaning=self.cleaning)
        except NotALogBuffer:
            assert not [message for message in self.waiting if message.end]  # not one frame is left
            self.path.unlink()
            return ExclusivePublication.create(self.path, EXPECTED, readers=readers, cleaning=self.cleaning)

    @invariant()
    def the_tail_is_never_before_the_reader(self) -> None:
        if hasattr(self, "publication"):
            assert self.publication.position >= self.reader

    # Helpers

    def new(self, length: int) -> Message:
        self.number += 1
        return Message(self.number - 1, length)

    def wait_for(self, messages: list[Message], end: int) -> None:
        for message in reversed(messages):
            message.end = end
            end -= (message.length + 63) & -32
        self.waiting += messages

    def accepts(self, call: Callable[[], int]) -> int:
        self.publication.consumed(self.reader)
        for _ in range(2):
            try:
                return call()
            except AdminAction:
                continue
            except BackPressured:
                return 0
        raise AssertionError("a new term is full")


def frames_of(blocks: Iterator[object]) -> list[Frame]:
    frames: list[Frame] = []
    for block in blocks:
        for start, end, length, header in zip(
            block.starts[:-1].tolist(), block.starts[1:].tolist(), block.lengths.tolist(), block.headers(), strict=True
        ):
            if not block.padding:
                data = block.data[start + 32 : start + 32 + length]
                span = block.begin + start, block.begin + end
                frames.append(Frame(data, *span, int(header["reserved_value"]), int(header["flags"])))
    return frames


TestLogBuffer = LogBufferMachine.TestCase
TestLogBuffer.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
