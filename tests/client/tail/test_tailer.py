"""Each line of the files is appended once, whatever is killed and however files are rotated."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.log.types import OutOfSequence
from penstock.client.tail.followed_file import READ_SIZE
from penstock.client.tail.positions import PositionsFile
from penstock.client.tail.tailer import Tailer
from penstock.testing import FakeClock


class Killed(BaseException):
    """What stands for SIGKILL at a moment."""


class Topic:
    """A topic, as the log keeps it: it knows a producer's last append, and stores what comes again only once.

    ``dies``: whether the next append is cut short "before" or "after" it is stored.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.dies = ""
        self._producers: dict[str, tuple[int, list[Any]]] = {}

    def append(self, batch: pa.RecordBatch, producer: tuple[str, int]) -> None:
        if self.dies == "before":
            raise Killed
        name, number = producer
        last, stored = self._producers.get(name, (0, []))
        rows = batch.to_pylist()
        if number == last:
            assert rows == stored, "the same number with other rows"
        elif number == last + 1:
            self._producers[name] = number, rows
            self.rows += rows
        else:
            raise OutOfSequence(f"{number} comes after {last}")
        if self.dies == "after":
            raise Killed

    def forget(self) -> None:
        self._producers.clear()

    @property
    def lines(self) -> list[bytes]:
        return [row["payload"] for row in self.rows]


class Following:
    """A tailer of ``*.log`` in a folder, which may be killed and started again."""

    def __init__(self, folder: Path, pattern: str = "*.log", **options: Any) -> None:
        self.folder, self.topic, self.clock, self._pattern = folder, Topic(), FakeClock(), pattern
        self.number = 0
        self._options = options
        self.tailer: Tailer | None = None
        self.kept: PositionsFile | None = None

    def start(self) -> None:
        self.kept = PositionsFile(self.folder / "state" / "positions.json")
        patterns = [str(self.folder / self._pattern)]
        self.tailer = Tailer(patterns, self.topic.append, self.kept, clock=self.clock.monotonic, **self._options)

    def kill(self) -> None:
        if self.tailer is not None:
            self.tailer.close()
        elif self.kept is not None:
            self.kept.close()
        self.tailer = self.kept = None

    def run(self) -> list[bytes]:
        """All lines in the topic, once nothing more is found."""
        if self.tailer is None:
            self.start()
        assert self.tailer is not None
        while self.tailer.turn():
            continue
        return self.topic.lines

    def path(self, name: str = "a.log") -> Path:
        return self.folder / name

    def write(self, data: bytes, name: str = "a.log") -> None:
        with self.path(name).open("ab") as file:
            file.write(data)


@pytest.fixture
def here(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_lines_are_appended_as_they_come_with_their_files_name(here: Following) -> None:
    here.write(b"one\ntwo\r\nthr")
    assert here.run() == [b"one", b"two"]
    here.write(b"ee\n\n")
    here.write(b"other\n", "b.log")
    assert here.run() == [b"one", b"two", b"three", b"", b"other"]
    assert dict(here.topic.rows[-1]["annotations"]) == {"file": str(here.path("b.log"))}


def test_at_the_first_start_what_is_there_may_be_left_out_but_no_line_that_has_only_begun(tmp_path: Path) -> None:
    here = Following(tmp_path, from_end=True, annotations={"host": "web-1"})
    here.write(b"old\nbeg")
    assert here.run() == []
    here.write(b"un\n")
    here.write(b"new\n", "b.log")
    assert here.run() == [b"begun", b"new"]
    assert dict(here.topic.rows[0]["annotations"]) == {"host": "web-1", "file": str(here.path())}


def test_a_file_that_is_renamed_is_read_to_its_end_and_its_successor_from_its_beginning(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.write(b"two\n")
    here.path().rename(here.path("a.log.1"))
    with here.path("a.log.1").open("ab") as file:
        file.write(b"three, by a writer that does not know yet\nlast without end")
    here.write(b"four\n")
    assert sorted(here.run()) == sorted([b"one", b"two", b"three, by a writer that does not know yet", b"four"])
    here.clock.advance(61)
    assert here.run()[-1] == b"last without end"


def test_a_file_that_is_renamed_while_nobody_follows_is_found_by_its_inode(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.kill()
    here.write(b"two\n")
    here.path().rename(here.path("a.log.1"))
    here.write(b"three\n")
    assert sorted(here.run()) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("more", [b"new\n", b"new, and longer than what was there before\n"])
def test_a_file_that_is_cut_and_written_again_is_read_from_its_beginning(here: Following, more: bytes) -> None:
    here.write(b"one\ntwo\n")
    here.run()
    shutil.copy(here.path(), here.path("a.log.1"))
    here.path().write_bytes(more)
    assert here.run() == [b"one", b"two", more[:-1]]


def test_a_line_longer_than_a_read_is_several_messages_and_nothing_is_lost(here: Following) -> None:
    long = bytes(range(32, 127)) * (3 * READ_SIZE // 95)
    here.write(long + b"\nnext\n")
    found = here.run()
    assert b"".join(found[:-1]) == long
    assert found[-1] == b"next"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_append_that_a_kill_cut_short_is_made_once(here: Following, moment: str) -> None:
    here.write(b"one\n")
    here.run()
    here.write(b"two\n")
    here.topic.dies = moment
    with pytest.raises(Killed):
        here.run()
    here.topic.dies = ""
    here.kill()
    here.write(b"three\n")
    here.path().rename(here.path("b.log"))
    assert here.run() == [b"one", b"two", b"three"]


def test_a_log_that_has_forgotten_the_producer_gets_what_is_new(here: Following) -> None:
    here.write(b"one\n")
    here.run()
    here.topic.forget()
    here.write(b"two\n")
    assert here.run() == [b"one", b"two"]


def test_a_pending_append_of_bytes_that_are_gone_stops_nothing(here: Following) -> None:
    here.write(b"one\n")
    here.topic.dies = "after"
    with pytest.raises(Killed):
        here.run()
    here.topic.dies = ""
    here.kill()
    here.path().write_bytes(b"cut\n")
    assert here.run() == [b"one", b"cut"]


def write(here: Following) -> None:
    """A line, and what the next one begins with: never the same ones, as a log's lines have times."""
    here.number += 1
    here.write(b"line %d\nand %d " % (here.number, here.number))


def rotate(here: Following) -> None:
    if here.path().exists():
        here.write(b"end %d\n" % here.number)
        count = len(list(here.folder.glob("a.log.*")))
        here.path().rename(here.path(f"a.log.{count}"))


def copytruncate(here: Following) -> None:
    """What was not read yet would be lost with it, by anybody: so it comes after all is read."""
    if here.path().exists():
        here.write(b"end %d\n" % here.number)
        here.topic.dies = ""
        here.run()
        here.kill()
        here.path().write_bytes(b"")


def dying(moment: str) -> Callable[[Following], None]:
    def act(here: Following) -> None:
        here.topic.dies = moment
        try:
            here.run()
        except Killed:
            here.kill()
        here.topic.dies = ""

    return act


ACTS = st.sampled_from([write, rotate, copytruncate, Following.kill, Following.run, dying("before"), dying("after")])


@settings(max_examples=60)
@given(st.lists(ACTS, max_size=14))
def test_whatever_happens_each_line_is_there_once(acts: list[Callable[[Following], Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        # Renamed files are among them, or one that was made and renamed between two looks would not be seen.
        here, meant = Following(Path(name), "a.log*"), b""
        plain = here.write

        def noted(data: bytes, name: str = "a.log") -> None:
            nonlocal meant
            meant += data
            plain(data, name)

        here.write = noted  # type: ignore[method-assign]
        for act in acts:
            act(here)
        here.write(b"end\n")
        here.run()
        assert sorted(here.topic.lines) == sorted(meant.split(b"\n")[:-1])
        here.kill()
