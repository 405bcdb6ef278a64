"""Barriers between processes: the shared words are right in every order that arm64 allows, and wrong without them."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.files import memory_order
from penstock.files.file_system import OS
from penstock.files.memory_order import barrier, explain_unsupported
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.position import ReaderPosition
from penstock.handover.state_page import STATISTICS, StatePage
from penstock.log.store import visibility
from penstock.log.store.visibility import CommitBarrier, ReaderGate
from penstock.logbuffer import AdminAction, Frame, Parameters, Publication, Subscription
from penstock.logbuffer.aeron import ExclusivePublication, Image
from penstock.logbuffer.aeron.publication import Cleaning
from penstock.logbuffer.descriptor import HEADER_LENGTH
from tests.files.weak_memory import WeakMemory

ROOT = Path(__file__).parents[2]
PACKAGE, PAGE = ROOT / "penstock", ROOT / "docs" / "internals" / "shared-words.md"
TERM = 64 << 10
PARAMETERS = Parameters(TERM, 4096, 7, 1, 0)
BARRIERS_OF_WRITE = 4
"""Barriers until all of a text but its header is written."""
Without = frozenset[str]
Scenario = Callable[[pytest.MonkeyPatch, Path, Without], str]
"""Runs one protocol in every order without the barriers of some functions; returns what goes wrong, or ""."""


def copy_frames(frames: list[Frame]) -> list[bytes]:
    return [bytes(frame.data) for frame in frames]


def read_one_frame(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A frame is published; the reader copies it."""
    publication = Publication.create(folder / "log", PARAMETERS)
    publication.consumed(0)
    memory = WeakMemory([folder / "log"], without)
    memory.record(monkeypatch, lambda: publication.offer(b"payload"))
    with Subscription(folder / "log", in_order=True) as frames:

        def read() -> list[bytes]:
            frames.position = 0
            return copy_frames(frames.poll(limit_frames=1))

        return memory.find_wrong(monkeypatch, read, lambda outcome: outcome in ([], [b"payload"]))


def read_between_frames(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A frame becomes visible while the next one is written; the reader must not take it for lost."""
    publication = Publication.create(folder / "log", PARAMETERS)
    publication.consumed(0)
    memory = WeakMemory([folder / "log"], without)
    memory.record(monkeypatch, lambda: (publication.offer(b"1"), publication.offer(b"2")), settled=1)
    with Subscription(folder / "log", in_order=True) as frames:

        def read() -> list[bytes]:
            frames.position = 0
            return copy_frames(frames.poll())

        return memory.find_wrong(monkeypatch, read, lambda outcome: outcome in ([], [b"1"], [b"1", b"2"]))


END = 5 * TERM
"""End of a term whose successor takes the place of an older one."""


def rotate(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> WeakMemory:
    """Return the memory in which the frame at END - 64 turns out to be padding."""
    publication = Publication.create(folder / "log", PARAMETERS)
    while (room := END - 64 - publication.position) > 0:
        publication.consumed(publication.position)
        with contextlib.suppress(AdminAction):
            publication.offer(bytes(min(PARAMETERS.mtu, room) - HEADER_LENGTH))
    memory = WeakMemory([folder / "log"], without)

    def offer() -> None:
        with contextlib.suppress(AdminAction):
            publication.offer(bytes(64))

    memory.record(monkeypatch, offer)
    return memory


def read_across_terms(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A term is rotated; the reader, at its padding, must not take the frame for lost."""
    memory = rotate(monkeypatch, folder, without)
    with Subscription(folder / "log", in_order=True) as frames:

        def read() -> tuple[bool, list[bytes]]:
            frames.position = END - 64
            return frames.end <= END, copy_frames(frames.poll())

        return memory.find_wrong(monkeypatch, read, lambda outcome: outcome == (True, []))


def read_blocks_across_terms(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """The same for a reader of blocks."""
    memory = rotate(monkeypatch, folder, without)
    with contextlib.closing(Image(folder / "log")) as image:

        def read() -> tuple[bool, bool]:
            image.position = END - 64
            block = image.block_poll()
            return image.tail() <= END, block is None or block.padding

        return memory.find_wrong(monkeypatch, read, lambda outcome: outcome == (True, True))


def read_blocks(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A frame is published behind another; a reader takes both as one block."""
    publication = ExclusivePublication.create(folder / "log", PARAMETERS)
    publication.consumed(0)
    memory = WeakMemory([folder / "log"], without)
    publication.offer(b"1")
    memory.record(monkeypatch, lambda: publication.offer(b"2"))
    with contextlib.closing(Image(folder / "log")) as image:

        def read() -> list[bytes]:
            image.position = 0
            block = image.block_poll()
            return block.payloads().to_pylist() if block else []

        return memory.find_wrong(monkeypatch, read, lambda outcome: outcome in ([b"1"], [b"1", b"2"]))


def claim_frames(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """The reader copies a frame, then claims it; the writer sees the claim and cleans the frame."""
    publication = ExclusivePublication.create(folder / "log", PARAMETERS, cleaning=Cleaning.CONSUMED)
    publication.consumed(0)
    payload = b"payload".ljust(PARAMETERS.mtu - HEADER_LENGTH, b"\0")
    publication.offer(payload)
    memory = WeakMemory([folder / "log"], without)
    with ReaderPosition(folder / "position") as position:

        def clean() -> None:
            assert position.claim == 0
            publication.consumed(publication.position)

        memory.record(monkeypatch, clean)
        with Subscription(folder / "log", in_order=True) as frames:
            end = publication.position

            def read() -> list[bytes]:
                frames.position = 0
                copies = copy_frames(frames.poll())
                position.claim = end
                return copies

            def has_claimed() -> bool:
                with monkeypatch.context() as patches:
                    patches.setattr(memory_order, "IS_WEAK", False)
                    return position.claim == end

            def read_unclaimed() -> list[bytes]:
                with monkeypatch.context() as patches:
                    patches.setattr(memory_order, "IS_WEAK", False)
                    position.claim = 0
                return read()

            return memory.find_wrong(monkeypatch, read_unclaimed, lambda outcome: outcome == [payload], has_claimed)


def read_texts(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A text is written twice; a reader that knows the newest version has the newest text."""
    page = StatePage(folder / "state", texts=STATISTICS + 1)
    for number in (1, 2):
        page.write(STATISTICS, number)
    memory = WeakMemory([folder / "state"], without, grain=16)
    memory.record(monkeypatch, lambda: [page.write(STATISTICS, number) for number in (3, 4)])
    newest = page.version(STATISTICS)
    return memory.find_wrong(
        monkeypatch,
        lambda: (page.version(STATISTICS), page.read(STATISTICS)),
        lambda outcome: outcome[1] in ((4,) if outcome[0] == newest else (2, 3, 4)),
    )


def read_heartbeats(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A process publishes its heartbeat twice; who reads it twice sees a time each, and never an earlier one."""
    times = iter((1.0, 2.0, 3.0, 4.0))
    heartbeat = Heartbeat(lambda: next(times))
    page = StatePage(folder / "state", texts=STATISTICS + 1)

    def beat_twice() -> None:
        for _ in range(2):
            page.write(STATISTICS, heartbeat.beat()["heartbeat"]["at_s"])

    beat_twice()
    memory = WeakMemory([folder / "state"], without, grain=16)
    memory.record(monkeypatch, beat_twice, settled=BARRIERS_OF_WRITE)
    return memory.find_wrong(
        monkeypatch,
        lambda: [page.read(STATISTICS) for _ in range(2)],
        lambda seen: None not in seen and 2.0 <= seen[0] <= seen[1],
    )


def read_transaction(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A transaction publishes the lengths of two topics; a reader sees both or none."""
    topics = [folder / "a", folder / "b"]
    for path in topics:
        path.write_bytes(bytes(8))
    commit = CommitBarrier(OS, folder)
    with commit.deciding():
        pass
    words = [OS.words(path) for path in topics]

    def write() -> None:
        with commit.deciding() as publish:
            publish()
            for each in words:
                each.store(1)

    memory = WeakMemory([folder / visibility.FILE_NAME, *topics], without)
    memory.record(monkeypatch, write)
    monkeypatch.setattr(visibility, "MAX_PUBLISHING_S", -1.0)
    gate = ReaderGate(folder)

    def read() -> int:
        return gate.read(lambda: sum((1 + n) * path.read_bytes()[0] for n, path in enumerate(topics)), previous=9)

    return memory.find_wrong(monkeypatch, read, lambda outcome: outcome in (0, 3, 9))


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    read_one_frame: ("LogFile.publish", "LogFile.whole_frame"),
    read_between_frames: ("LogFile.publish", "MissingFrame._is_passed"),
    read_across_terms: ("Subscription.poll", "MissingFrame.tail", "Appender._close_term"),
    read_blocks: ("scan",),
    read_blocks_across_terms: ("Image.block_poll", "tail_position"),
    claim_frames: ("ReaderPosition._load", "ReaderPosition._store"),
    read_texts: ("StatePage.write", "StatePage._read_half", "StatePage._newest"),
    read_heartbeats: ("StatePage._newest StatePage._read_half",),
    read_transaction: ("MappedIntegers.store", "ReaderGate.read"),
}
"""The protocols, and the functions whose barriers each of them needs; two functions do the same for another."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_shared_words_are_right_in_every_order(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert scenario(monkeypatch, tmp_path, frozenset()) == ""


@pytest.mark.parametrize(
    ("scenario", "function"),
    [(scenario, function) for scenario, functions in SCENARIOS.items() for function in functions],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_shared_words_are_wrong_without_a_barrier(
    scenario: Scenario, function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert scenario(monkeypatch, tmp_path, frozenset(function.split())) != ""


def functions_with_barriers() -> Iterator[tuple[str, str]]:
    """Yield each module and function that calls the barrier."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            members = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for member in members:
                if isinstance(member, ast.FunctionDef) and "memory_order.barrier()" in ast.unparse(member):
                    yield str(path.relative_to(PACKAGE)), prefix + member.name


def test_each_barrier_is_proved_necessary_and_described() -> None:
    page = PAGE.read_text()
    functions = {function for _, function in functions_with_barriers()}
    assert functions == {name for names in SCENARIOS.values() for each in names for name in each.split()}
    for module, function in functions_with_barriers():
        assert f"`{function}`" in page, module


def test_each_mapped_file_is_described() -> None:
    page = PAGE.read_text()
    mapping = re.compile(r"mmap\.mmap\(|np\.memmap\(|pa\.memory_map\(")
    modules = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if mapping.search(path.read_text())}
    assert modules == {name for name in re.findall(r"`([a-z_/]+\.py)`", page) if not name.startswith("tests/")}


def test_barrier_changes_nothing_in_this_process() -> None:
    barrier()
    assert memory_order.UNSUPPORTED == ""


@pytest.mark.parametrize(
    ("machine", "has_barrier", "word_bytes", "reason"),
    [
        ("x86_64", False, 8, ""),
        ("AMD64", False, 8, ""),
        ("aarch64", True, 8, ""),
        ("aarch64", False, 8, "log buffers need libstdc++.so.6 on arm64: install the package libstdc++6 or libstdc++"),
        ("aarch64", True, 4, "log buffers need a 64-bit little-endian Python, and this one has 32 bits"),
        ("riscv64", True, 8, "log buffers need an x86-64 or arm64 processor, not riscv64"),
        ("", True, 8, "log buffers need an x86-64 or arm64 processor, not an unknown one"),
    ],
)
def test_unsupported_machine_is_explained_in_one_line(
    machine: str, has_barrier: bool, word_bytes: int, reason: str
) -> None:
    assert explain_unsupported(machine, has_barrier, word_bytes) == reason
