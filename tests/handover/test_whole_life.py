"""A listener's whole life, killed wherever a file has changed, and cut from its power there.

Receiver and daemon make, fill and empty a log buffer, go over what a daemon that died had in its hands, and restart.
What they have mapped changes without a call that could be made to fail: so each of their lines is watched, and what the
files are is kept whenever that is new. A kill leaves just that. A power cut leaves of what is mapped any page as it
was at some time before.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.files.file_system import File, MappedIntegers, SharedIntegers
from penstock.handover import buffer, writer
from penstock.log import Log
from penstock.records import EMPTY_BODY, body
from tests.handover.drain.test_drain import payloads
from tests.handover.test_held_frames import counts, drain
from tests.ingest.ingest_life import Life, live
from tests.log.log_helpers import UNSYNCED, UnsyncedFile, UnsyncedFiles

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
)
WATCHED = tuple(
    f"/penstock/{name}.py"
    for name in (
        *(
            "handover/positions/position",
            "handover/state_page",
            "handover/buffer",
            "handover/drain/drain",
            "handover/held_frames",
        ),
        *("logbuffer/mapped", "logbuffer/reshape", "files/file_system"),
    )
)
"""The modules that change files."""
TERM = 1 << 16
PAGE = 4096
AFTER = [b"after 0", b"after 1"]
Pages = tuple[bytes, ...]


class Moment(NamedTuple):
    """The files, the bounds of accepted messages, and the stored messages at one moment."""

    files: dict[Path, Pages]
    accepted: int
    started: int
    stored: frozenset[bytes]


class Witness:
    """Records every moment at which a file of ``folder`` changed; only one thread changes files within ``with``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.moments = folder, list[Moment]()
        self.sent: list[bytes] = []
        self.accepted, self.stored = 0, frozenset[bytes]()
        self._lock = threading.RLock()
        self._known: dict[str, tuple[Path, int, Pages]] = {}
        self._pages: dict[bytes, bytes] = {}

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._look()
        self._lock.release()

    def _look(self) -> None:
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        files = dict(map(self._read, paths))
        if not self.moments or self.moments[-1].files != files:
            self.moments.append(Moment(files, self.accepted, len(self.sent), self.stored))

    def _read(self, path: str) -> tuple[Path, Pages]:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        name, known_crc, pages = self._known.get(path) or (Path(path).relative_to(self.folder), 0, ())
        crc = crc32c(data)
        if not pages or crc != known_crc or len(data) > PAGE * len(pages):
            parts = (data[begin : begin + PAGE] for begin in range(0, len(data), PAGE))
            pages = tuple(self._pages.setdefault(part, part) for part in parts)
            self._known[path] = name, crc, pages
        return name, pages

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look after each line of the rooms."""

        def each_line(*_: Any) -> Callable[..., Any]:
            with self:
                return each_line

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: each_line if frame.f_code.co_filename.endswith(WATCHED) else None)
        try:
            yield
        finally:
            sys.settrace(before)


class WatchedFiles(UnsyncedFiles):
    """The log's files: nothing else changes while one of them does."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def open(self, path: Path, *, create: bool = False) -> File:
        with self._witness:
            return WatchedFile(path, create, self._witness)

    def words(self, path: Path) -> SharedIntegers:
        return WatchedIntegers(path, self._witness)

    def rename(self, old: Path, new: Path) -> None:
        with self._witness:
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        with self._witness:
            super().remove(path)


class WatchedFile(UnsyncedFile):
    def __init__(self, path: Path, create: bool, witness: Witness) -> None:
        super().__init__(path, create)
        self._witness = witness

    def write(self, parts: Any, position: int) -> int:
        with self._witness:
            return super().write(parts, position)

    def truncate(self, length: int) -> None:
        with self._witness:
            super().truncate(length)


class WatchedIntegers(MappedIntegers):
    def __init__(self, path: Path, witness: Witness) -> None:
        super().__init__(path)
        self._witness = witness

    def store(self, *values: int) -> None:
        with self._witness:
            super().store(*values)


def publish(life: Life, *messages: bytes) -> None:
    log_text = Counts({"seen": len(messages), "accepted": len(messages)})
    life.publisher.publish(body(list(messages)) if messages else EMPTY_BODY, log_text, 0)


def send(witness: Witness, life: Life, count: int, size: int = 10) -> None:
    messages = [b"%d." % (len(witness.sent) + number) + b"x" * size for number in range(count)]
    witness.sent += messages
    publish(life, *messages)
    witness.accepted = len(witness.sent)


def settle(folder: Path, log: Log, life: Life) -> None:
    while life.publisher.owes:
        publish(life)
    drain(folder, log)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    """A life as it should be, from its beginning to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PATIENCE_S", 0.05)
        witness = Witness(tmp_path_factory.mktemp("life"))
        buffers = witness.folder / "buffers"
        buffers.mkdir()
        log = Log(witness.folder / "topics", fs=WatchedFiles(witness), committers=1)
        with witness.watching():
            life = live(buffers, LISTENER, TERM)
            send(witness, life, 2)
            drain(buffers, log)
            witness.stored = frozenset(payloads(log))
            send(witness, life, 3)
            life.end()
            life = live(buffers, LISTENER, TERM)  # a new receiver
            send(witness, life, 1)
            life.position.claim = life.publication.position  # a daemon died with these in its hands
            for _ in range(14):
                send(witness, life, 2, 3000)
            settle(buffers, log, life)
            witness.stored = frozenset(payloads(log))
            send(witness, life, 1)
            drain(buffers, log)
            life.end()
        log.close()
        yield witness


def restore(folder: Path, files: dict[Path, Pages]) -> None:
    """Make the files what they were, each the same file as before."""
    for path in list(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder) not in files:
            path.unlink()
    for name, pages in files.items():
        with (folder / name).open("r+b" if (folder / name).exists() else "wb") as file:
            file.truncate(0)
            file.write(b"".join(pages))


def restart_everything(folder: Path) -> tuple[list[bytes], Counts]:
    """A new receiver, what it gets, and a new daemon: what is stored then, and what was counted."""
    life = live(folder / "buffers", LISTENER, TERM)
    log = Log(folder / "topics", fs=UNSYNCED, committers=1)
    try:
        publish(life, *AFTER)
        settle(folder / "buffers", log, life)
        settle(folder / "buffers", log, life)
        return payloads(log), counts(log)
    finally:
        life.end()
        log.close()


def check(witness: Witness, moment: Moment, collected: list[bytes]) -> None:
    """Check the invariants that hold after any crash."""
    sent = [*witness.sent, *AFTER]
    assert collected == [message for message in sent if message in set(collected)], (
        "nothing invented, doubled or out of order"
    )
    assert moment.stored <= set(collected)
    assert set(AFTER) <= set(collected)


def survived_kill(witness: Witness, moment: Moment) -> None:
    restore(witness.folder, moment.files)
    collected, total = restart_everything(witness.folder)
    check(witness, moment, collected)
    accepted = total["accepted"] - len(AFTER)
    assert moment.accepted <= accepted <= moment.started
    assert total["corrupt"] == 0
    assert accepted + len(AFTER) == len(collected) + total["policy_drop.log"]


def survived_power_cut(witness: Witness, number: int, dice: random.Random) -> None:
    moment, since = witness.moments[number], dice.randint(0, number)
    files = dict(moment.files)
    for name in [name for name in files if name.parts[0] == "buffers"]:
        before = [old.files.get(name, ()) for old in witness.moments[since : number + 1]]
        versions = [pages for pages in before if len(pages) == len(files[name])]
        pages = enumerate(files[name])
        files[name] = tuple(dice.choice(versions)[index] if dice.random() < 0.5 else page for index, page in pages)
    restore(witness.folder, files)
    collected, total = restart_everything(witness.folder)
    check(witness, moment, collected)
    assert total["accepted"] >= len(collected)


def test_recorded_life_contains_every_step(witness: Witness) -> None:
    restore(witness.folder, witness.moments[-1].files)
    collected, total = restart_everything(witness.folder)
    assert total["policy_drop.log"] > 0
    assert total["accepted"] == len(collected) + total["policy_drop.log"] == len(witness.sent) + len(AFTER)
    assert any(path.name == "events.held" for moment in witness.moments for path in moment.files)
    assert len(witness.moments) > 200


def test_kill_at_any_file_change_loses_no_message(witness: Witness) -> None:
    for moment in random.Random(1).sample(witness.moments, 120):
        survived_kill(witness, moment)


@pytest.mark.soak
def test_kill_at_every_file_change_loses_no_message(witness: Witness) -> None:
    for moment in witness.moments:
        survived_kill(witness, moment)


@pytest.mark.parametrize("rounds", [80, pytest.param(1500, marks=pytest.mark.soak)])
def test_power_failure_keeps_stored_messages(witness: Witness, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "boot_id", lambda: "after the power cut")
    dice = random.Random(2)
    for _ in range(rounds):
        survived_power_cut(witness, dice.randrange(len(witness.moments)), dice)
