"""Barriers between processes: the shared words are right in every order that arm64 allows, and wrong without them."""

from __future__ import annotations

import ast
import contextlib
import mmap
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.files import memory_order
from penstock.files.file_system import OS
from penstock.files.memory_order import barrier, explain_unsupported
from penstock.handover import sender_reading, sender_table
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.positions.position import ReaderPosition
from penstock.handover.sender_reading import read_senders
from penstock.handover.sender_table import ACCEPTED, REFUSED, Arrivals, SenderTable, named_arrivals, sender_counts
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
BARRIERS_OF_STAGE = 3
"""Barriers until the stable half of a row is in use."""
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


def read_reused_row(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A summed sender's row becomes free, and a new sender gets it; a reader never mixes the two."""
    monkeypatch.setattr(sender_table, "MAX_SENDERS", 1)
    monkeypatch.setattr(sender_table, "SPARE_ROWS", 2 * sender_table.ROWS)
    table = SenderTable(folder / "senders", -1, lambda: 0.0)
    arrivals = {name: named_arrivals({name: sender_counts(1)[0]}, table.hash_key) for name in "abc"}
    table.stage(arrivals["a"], 64, 1)
    table.confirm(64)
    table.stage(arrivals["b"], 128, 1)
    # The reader knows the frame already: fewer orders to try.
    table._sections.header["published"] = 128
    memory = WeakMemory([folder / "senders"], without, grain=8)
    memory.record(monkeypatch, lambda: (table.confirm(128), table._rows_of(arrivals["c"], 7, 0)), settled=1)

    def read() -> list[tuple[str, int]]:
        senders = read_senders(folder / "senders")
        assert senders is not None
        return [(senders.name(index), int(senders.first[index])) for index in range(1, len(senders.kinds))]

    return memory.find_wrong(monkeypatch, read, lambda rows: rows in ([("b", 1)], [("c", 7), ("b", 1)]))


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


def arrivals_of(table: SenderTable, accepted: int, refused: int) -> Arrivals:
    """Return accepted and refused messages of sender "a": two parts of its row that become visible by themselves."""
    counts = sender_counts(1)[0]
    counts[[ACCEPTED, REFUSED]] = accepted, refused
    return named_arrivals({"a": counts}, table.hash_key)


def table_with_sender(path: Path) -> SenderTable:
    """Return a table in which a sender has a published message of both kinds; its frame begins at 64."""
    table = SenderTable(path, -1, lambda: 0.0)
    table.stage(arrivals_of(table, 1, 1), 64, 1)
    table.confirm(64)
    return table


def counts_in(path: Path) -> list[int]:
    """Return the accepted and refused messages of the first sender."""
    with path.open("rb") as file:
        sections = sender_table.Sections(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    _, _, values = sender_reading._copy_rows(sections, np.array([1]))
    return [int(number) for number in values[0, sender_table.COUNTS :][[ACCEPTED, REFUSED]]]


def read_staged_rows(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A frame of a sender is published, and the next one staged; a reader has the counts of a published frame."""
    table = table_with_sender(folder / "senders")
    table.stage(arrivals_of(table, 10, 10), 128, 1)
    memory = WeakMemory([folder / "senders"], without, grain=8)

    def write() -> None:
        table.confirm(128)
        table.stage(arrivals_of(table, 100, 0), 192, 1)

    memory.record(monkeypatch, write, settled=1)
    return memory.find_wrong(
        monkeypatch, lambda: counts_in(folder / "senders"), lambda counts: counts in ([1, 1], [11, 11])
    )


def read_confirmed_rows(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A staged frame is published; a reader has the counts from before it or after it."""
    table = table_with_sender(folder / "senders")
    memory = WeakMemory([folder / "senders"], without, grain=8)

    def write() -> None:
        table.stage(arrivals_of(table, 10, 10), 128, 1)
        table.confirm(128)

    memory.record(monkeypatch, write, settled=BARRIERS_OF_STAGE)
    return memory.find_wrong(
        monkeypatch, lambda: counts_in(folder / "senders"), lambda counts: counts in ([1, 1], [11, 11])
    )


def read_settled_rows(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without, last_frame: int) -> str:
    """A receiver is killed before it confirms the frame at 128, and its successor settles the rows."""
    table = table_with_sender(folder / "senders")
    table.stage(arrivals_of(table, 10, 10), 128, 1)
    memory = WeakMemory([folder / "senders"], without, grain=8)
    memory.record(monkeypatch, lambda: SenderTable(folder / "senders", last_frame, lambda: 0.0))
    expected = ([1, 1], [11, 11]) if last_frame == 128 else ([1, 1],)
    return memory.find_wrong(monkeypatch, lambda: counts_in(folder / "senders"), lambda counts: counts in expected)


def read_rows_settled_with_frame(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """The frame is in the log buffer: its counts become valid."""
    return read_settled_rows(monkeypatch, folder, without, last_frame=128)


def read_rows_settled_without_frame(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """The frame is not in the log buffer: its counts are never seen."""
    return read_settled_rows(monkeypatch, folder, without, last_frame=64)


def read_new_table(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A table is created; a reader that sees it has its identifier."""
    (folder / "senders").write_bytes(bytes(sender_table.FILE_BYTES))
    memory = WeakMemory([folder / "senders"], without, grain=8)
    memory.record(monkeypatch, lambda: SenderTable(folder / "senders", -1, lambda: 0.0))
    after = read_senders(folder / "senders")
    assert after is not None

    def read() -> str | None:
        senders = read_senders(folder / "senders")
        return senders.file_id if senders else None

    return memory.find_wrong(monkeypatch, read, lambda file_id: file_id in (None, after.file_id))


def read_new_sender(monkeypatch: pytest.MonkeyPatch, folder: Path, without: Without) -> str:
    """A sender gets a row; a reader that sees it has its name and its first arrival."""
    table = SenderTable(folder / "senders", -1, lambda: 0.0)
    memory = WeakMemory([folder / "senders"], without, grain=8)
    memory.record(monkeypatch, lambda: table.stage(arrivals_of(table, 0, 0), 64, 7))

    def read() -> list[tuple[str, int]]:
        senders = read_senders(folder / "senders")
        assert senders is not None
        return [(senders.name(index), int(senders.first[index])) for index in range(1, len(senders.kinds))]

    return memory.find_wrong(monkeypatch, read, lambda rows: rows in ([], [("a", 7)]))


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    read_one_frame: ("LogFile.publish", "LogFile.whole_frame"),
    read_between_frames: ("LogFile.publish", "MissingFrame._is_passed"),
    read_across_terms: ("Subscription.poll", "MissingFrame.tail", "Appender._close_term"),
    read_blocks: ("scan",),
    read_blocks_across_terms: ("Image.block_poll", "tail_position"),
    claim_frames: ("ReaderPosition._load", "ReaderPosition._store"),
    read_texts: ("StatePage.write", "StatePage._read_half", "StatePage._newest"),
    read_heartbeats: ("StatePage._newest StatePage._read_half",),
    read_staged_rows: ("SenderTable.stage", "_copy_rows"),
    read_confirmed_rows: ("SenderTable.confirm",),
    read_rows_settled_with_frame: ("_settle",),
    read_rows_settled_without_frame: ("_settle",),
    read_new_table: ("SenderTable.__init__", "read_senders"),
    read_new_sender: ("SenderTable._add",),
    read_reused_row: ("SenderTable._add",),
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
        if "memory_order.barrier" not in (text := path.read_text()):
            continue  # parsing and printing the whole package takes seconds
        for node in ast.walk(ast.parse(text)):
            members = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for member in members:
                if isinstance(member, ast.FunctionDef) and "memory_order.barrier()" in ast.unparse(member):
                    yield str(path.relative_to(PACKAGE)), prefix + member.name


def test_each_barrier_is_proved_necessary_and_described() -> None:
    page = PAGE.read_text()
    functions = list(functions_with_barriers())
    expected = {name for names in SCENARIOS.values() for each in names for name in each.split()}
    assert {function for _, function in functions} == expected
    for module, function in functions:
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
