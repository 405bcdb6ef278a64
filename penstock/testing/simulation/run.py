"""A run: a seed draws processes, messages and faults, and interleaves their steps until all messages are stored.

Start at ``simulate``. Everything runs in the calling thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.files.file_system import OS, map_file
from penstock.handover.paths import LOG
from penstock.ledger.book.book_from_topics import TOPIC as LEDGER_TOPIC
from penstock.ledger.rebuild import differences, rebuild_balance
from penstock.log import CorruptBatch, Gap, LogError, TopicReader, TopicSettings
from penstock.log.cursors import Cursors
from penstock.log.store import batch_format, index, segment_files
from penstock.log.store.scan import Scan, scan
from penstock.log.store.segment_files import SUFFIX, SegmentFiles
from penstock.slogd.errors import ApiError
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.faults import FAILURES, Fault, Kind, draw_faults
from penstock.testing.simulation.machine import Killed, Machine, another_process, killed_after
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken, Promises, offsets_in, rows_of
from penstock.testing.simulation.readers import CursorReader, FolderReader, Lander, StreamReader
from penstock.testing.simulation.receiver import Receiver
from penstock.testing.simulation.senders import ApiSender, ListenerSender, Sender, TransactionSender, World
from penstock.testing.simulation.stepped_run import SteppedRun

STEPS = 300
MESSAGES = 25
"""Messages of each sender."""
MAX_QUIET_ROUNDS = 600
"""Limit of rounds without faults until everything is stored and read; more is a loss of liveness."""
NESTED_SHARE = 0.05
"""Share of file operations of the daemon within which another process takes a step."""
WRITEBACK_SHARE = 0.02
"""Share of steps before which the kernel writes all pages of log buffers to the disk."""
EXPIRING, STALE_AFTER_S = "short", 120.0
TOPICS = ("orders", "bills", EXPIRING, "lines", "datagrams")
DEFAULTS = TopicSettings(segment_size_limit=6_000, rotate_after=600, stale_after=1e9)
OVERRIDES = {
    EXPIRING: TopicSettings(segment_size_limit=3_000, rotate_after=60, stale_after=STALE_AFTER_S, compression="zstd"),
    "bills": TopicSettings(segment_size_limit=3_000, stale_after=1e9, compression="zstd"),
    "lines": TopicSettings(segment_size_limit=8_000, stale_after=1e9, durability="written"),
}


def simulate(
    seed: int,
    *,
    steps: int = STEPS,
    messages: int = MESSAGES,
    faults: Iterable[int] | None = None,
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number. Files are in memory if possible."""
    with run_folder() as folder:
        run = Run(seed, folder, steps, messages, draw_faults(seed, steps, faults))
        with run.machine.running():
            run.execute()
        return run.outcome


def _rows_at(path: Path, position: int) -> tuple[SegmentFiles, dict[int, bytes]] | None:
    """Return the payloads by offset of the batch that has a byte of a segment; None if no batch has it."""
    files = SegmentFiles(path.parent, int(path.stem))
    segment = map_file(path, path.stat().st_size)
    for message in scan(segment, files.first, index.EMPTY).messages:
        if message.position <= position < message.position + message.length:
            payloads: list[Any] = batch_format.load(segment, message).column("payload").to_pylist()
            return files, dict(enumerate(payloads, message.base))
    return None


def _scan(files: SegmentFiles) -> Scan:
    """Return the scan of a segment's data with its index and synced length."""
    records = index.read(files.index.read_bytes() if files.index.exists() else b"", files.fingerprint)
    return scan(OS.map(files.data), files.first, records, segment_files.read_synced(OS, files))


def _rest_of_topic(directory: Path) -> tuple[int, set[bytes]]:
    """Return the end of a topic as the files of its last segment tell it, and all its readable messages."""
    end, stored = 0, set[bytes]()
    for first in segment_files.first_offsets(OS.names(directory)):
        files = SegmentFiles(directory, first)
        scanned = _scan(files)
        end = scanned.end
        segment = OS.map(files.data)
        for message in scanned.messages:
            payloads: list[Any] = batch_format.load(segment, message).column("payload").to_pylist()
            stored.update(payloads)
    return end, stored


class Run(SteppedRun):
    """A run, with its processes and the model of what was promised."""

    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: list[Fault]) -> None:
        super().__init__(seed, steps, Machine(folder, seed), faults, random.Random(f"{seed} schedule"))
        machine = self.machine
        self._kill_daemon_at = self._kill_receiver_at = -1
        self._slow_ms = 0
        self._flipped_rows: tuple[SegmentFiles, dict[int, bytes]] | None = None
        self._is_nested = self._is_quiet = self._has_lies = False
        self._promises = Promises(frozenset([EXPIRING]), frozenset(["lines"]))
        self._receivers = self.make_receivers()
        self._daemon = Daemon(machine, [receiver.name for receiver in self._receivers], DEFAULTS, OVERRIDES)
        self._world = World(machine, self._daemon, self._promises, self.record)
        self._senders = self._make_senders(seed, messages)
        self._readers = [FolderReader(self._world, self._dice, topic) for topic in TOPICS]
        self._streams = [StreamReader(self._world, topic) for topic in ("orders", "lines")]
        self._cursors = [CursorReader(self._world, self._dice, topic) for topic in ("orders", EXPIRING)]
        self._lander = Lander(self._world, ["orders", EXPIRING, "lines"])
        machine.files.interrupt = self._interrupt

    def make_receivers(self) -> list[Receiver]:
        """Return the receiver that lets senders wait, and the one that drops."""
        return [Receiver(self.machine, "tcp", "lines", True), Receiver(self.machine, "udp", "datagrams", False)]

    def _make_senders(self, seed: int, messages: int) -> list[Sender]:
        def dice(name: str) -> random.Random:
            return random.Random(f"{seed} {name}")

        tcp, udp = self._receivers
        world = self._world
        return [
            ApiSender("numbered", world, dice("numbered"), "orders", messages, True),
            ApiSender("numbered too", world, dice("numbered too"), EXPIRING, messages, True),
            ApiSender("plain", world, dice("plain"), "bills", messages, False),
            ApiSender("plain too", world, dice("plain too"), "orders", messages, False),
            TransactionSender("transactions", world, dice("transactions"), ("orders", "bills"), messages),
            ListenerSender("lines", world, dice("lines"), tcp, messages),
            ListenerSender("datagrams", world, dice("datagrams"), udp, 20 * messages),
        ]

    def _end_processes(self) -> None:
        self._daemon.die()
        for receiver in self._receivers:
            receiver.die()

    def _inject(self, fault: Fault) -> None:
        files = self.machine.files
        match fault.kind:
            case Kind.KILL_DAEMON_AT_LINE:
                self._kill_daemon_at = fault.amount
            case Kind.KILL_DAEMON_AT_CALL:
                files.kill_after = fault.amount
            case Kind.KILL_RECEIVER:
                self._kill_receiver_at = fault.amount
            case Kind.POWER_CUT:
                files.stop_after = fault.amount
            case Kind.FULL_DISK:
                files.free = fault.amount
            case Kind.FREE_DISK:
                files.free = None
            case Kind.CLOCK_JUMP:
                self.machine.clock.jump(fault.amount)
                self._promises.has_jumped = True
            case Kind.SLOW_DISK:
                self._slow_ms = fault.amount
            case Kind.HALF_OPEN:
                self._world.lost_answers = min(fault.amount, 3)
            case Kind.BIT_FLIP:
                self._flip_bit(fault)
            case Kind.PAUSE:
                self.machine.clock.advance(fault.amount)
            case Kind.LYING_SYNC:
                if not self._promises.damages:  # as of a flipped bit, one damage in a run
                    files.lying_syncs, self._has_lies = fault.amount, True
            case Kind.TORN_INDEX:
                files.index_dice = random.Random(fault.amount)
            case Kind.CLAIM_KILL:
                self._kill_with_claim(fault.amount)
            case _:
                operation, code = FAILURES[Kind(fault.kind)]
                files.failing[operation] = code, fault.amount

    def _kill_with_claim(self, frames: int) -> None:
        """Kill the daemon while it stores claimed frames, and overrun its successor after it has begun.

        The receiver then saves the claimed frames behind the back of a drain that has looked for saved ones.
        """
        sender, receiver = self._senders[-1], self._receivers[-1]
        for _ in range(3):
            if self._daemon.is_running and receiver.is_running:
                self._send(sender)
                self.machine.files.kill_after = 0
                self._of_daemon(lambda: self._daemon.drain(receiver.name))
                self.machine.files.kill_after = None
        if self._daemon.is_running:
            return  # it had nothing to store
        self._start_daemon()
        if self._daemon.is_running:
            self._of_daemon(lambda: self._daemon.drain(receiver.name))
        for _ in range(frames):
            if receiver.is_running:
                self._send(sender)

    def _flip_bit(self, fault: Fault) -> None:
        dice = random.Random(f"{self.outcome.seed} {fault.number}")
        paths = [path for path in sorted(self.machine.topics.glob("*/*")) if path.is_file() and path.stat().st_size]
        if not paths or self._promises.damages or self._has_lies:
            return  # a second damage may hit the copy of what the first one hit
        path = dice.choice(paths)
        position = dice.randrange(path.stat().st_size)
        if path.suffix == SUFFIX:
            self._flipped_rows = _rows_at(path, position)
        self.machine.files.flip_bit(path, position, dice.randrange(8))
        self._promises.damages += 1
        self.record("fault", f"flipped a bit of {path.relative_to(self.machine.topics)} at {position}")
        if not self._daemon.is_running:
            self._lose_flipped_rows()  # a power cut before the flip may have taken the index
            # Without the index, new readers see rows behind a damaged synced length only after the recovery.
            for reader in self._readers:
                reader.reset()

    def _lose_claimed_rows(self, ends: Mapping[str, int]) -> None:
        """Excuse what lying syncs lost at the ends of topics if neither index nor synced length names it.

        ``ends`` are the ends before the power cut.
        """
        lost = {path.relative_to(self.machine.topics).parts[0] for path in self.machine.files.lost_to_lies}
        self._promises.damages += bool(lost)
        self._promises.has_lies |= bool(lost)
        for topic in sorted(lost):
            self.record("machine", f"lying syncs lost content of {topic}")
            self._promises.has_lost_books |= topic == LEDGER_TOPIC
            if topic not in TOPICS:
                continue
            self._take_answers()
            end, stored = _rest_of_topic(self.machine.topics / topic)
            self._promises.lose_end(topic, end, ends[topic], stored)

    def _lose_flipped_rows(self) -> None:
        """Excuse the rows of the flipped batch if nothing on the disk tells them from a write that the cut tore.

        The index, the journal of copies and the synced length of a last segment are written and not synced.
        """
        if self._flipped_rows is None:
            return
        files, rows = self._flipped_rows
        is_last = files.data.exists() and segment_files.first_offsets(OS.names(files.directory))[-1] == files.first
        if rows and is_last and _scan(files).end <= min(rows):
            self._take_answers()
            self._promises.lose(files.topic, rows)
            self.record("machine", f"lost {len(rows)} flipped rows at the end of {files.topic}")

    def _take_answers(self) -> None:
        # Order: an answer that its sender has not looked at yet is excused too.
        for sender in self._senders:
            if isinstance(sender, ApiSender):
                sender.take_answer()

    def _stop_faults(self) -> None:
        files = self.machine.files
        files.free = files.stop_after = files.kill_after = None
        files.lying_syncs = 0
        files.failing.clear()
        self._kill_daemon_at = self._kill_receiver_at = -1
        self._slow_ms = self._world.lost_answers = 0

    def _interrupt(self, operation: str) -> None:
        """Let another process take a step within a file operation of the daemon."""
        if self._is_nested or not self._daemon.is_running:
            return
        self.machine.clock.advance(self._slow_ms / 1000)
        if self._dice.random() >= NESTED_SHARE:
            return
        self._is_nested = True
        try:
            with another_process():
                processes: list[FolderReader | Sender] = [*self._readers, *self._senders]
                process = self._dice.choice(processes)
                if isinstance(process, FolderReader):
                    process.step()
                else:
                    process.step(at_once=True)
        finally:
            self._is_nested = False

    def _take_step(self) -> None:
        self.machine.clock.advance(self._dice.choice([0.0001, 0.001, 0.01, 0.1, 1.0]))
        if not self._daemon.is_running and self._dice.random() < 0.3:
            self._start_daemon()
        if self._dice.random() < WRITEBACK_SHARE:
            self.machine.buffers.write_back()
        stopped = [receiver for receiver in self._receivers if not receiver.is_running]
        if stopped and self._dice.random() < 0.3:
            self._of_receiver(stopped[0], stopped[0].start)
        kind = self._dice.choices(("daemon", "sender", "receiver", "reader"), (10, 8, 4, 6))[0]
        if kind == "daemon" and self._daemon.is_running:
            self._of_daemon(self._dice.choice(self._daemon_steps()))
        elif kind == "sender":
            self._send(self._dice.choice(self._senders))
        elif kind == "receiver":
            receiver = self._dice.choice(self._receivers)
            if receiver.is_running:
                self._of_receiver(receiver, receiver.step)
        else:
            self._read()

    def _daemon_steps(self) -> list[Callable[[], None]]:
        daemon = self._daemon
        drains = [lambda name=receiver.name: daemon.drain(name) for receiver in self._receivers]
        return [daemon.commit, daemon.commit, *drains, *drains, self._maintain, self._land]

    def _maintain(self) -> None:
        self._daemon.work_if_due()
        if EXPIRING in self._daemon.log.names():
            self._check_expired(TopicReader(self.machine.topics / EXPIRING).gaps())

    def _check_expired(self, gaps: Iterable[Gap]) -> None:
        newest = self.machine.clock.micros() - round(STALE_AFTER_S * 1e6)
        self._promises.check_expired(EXPIRING, gaps, newest)

    def _land(self) -> None:
        self._lander.step(self._dice.choice(sorted(self._lander.posts)))

    def _send(self, sender: Sender) -> None:
        if isinstance(sender, ListenerSender):
            receiver = self._receivers[0] if sender.name == "lines" else self._receivers[1]
            self._of_receiver(receiver, sender.step)
        else:
            self._of_daemon(sender.step)

    def _read(self) -> None:
        readers: list[FolderReader | StreamReader | CursorReader] = [*self._readers, *self._streams, *self._cursors]
        reader = self._dice.choice(readers)
        if isinstance(reader, FolderReader):
            reader.step()
        else:
            self._of_daemon(reader.step)

    def _start_daemon(self) -> None:
        # Marked before it runs: other processes take steps within the start as well.
        if self._of_daemon(self._daemon.start):
            self.record("daemon", "started")
            for reader in self._readers:
                reader.check_disk()
        else:
            self._daemon.is_running = False

    def _of_daemon(self, step: Callable[[], None]) -> bool:
        """Take a step of the daemon's process, which may die in it; report whether it neither died nor failed."""
        lines, self._kill_daemon_at = self._kill_daemon_at, -1
        try:
            if lines >= 0:
                with killed_after(lines, self.machine.files.refuse):
                    step()
                raise Killed
            step()
        except Killed:
            self._end_daemon()
            return False
        except (LogError, ApiError, OSError) as error:
            self.record("daemon", f"error: {error}")
            return False
        return True

    def _end_daemon(self) -> None:
        files = self.machine.files
        self._daemon.die()
        for stream in self._streams:
            stream.reset()
        if files.stop_after is None:
            self.record("daemon", "killed")
            return
        self.record("machine", "power cut")
        for receiver in self._receivers:
            receiver.die()
        ends = {topic: self._visible_end(topic) for topic in TOPICS}
        self.machine.cut_power()
        if files.torn_index is not None:
            self.record("machine", f"tore {files.torn_index.relative_to(self.machine.topics)}")
        self._promises.cut_power()
        self._lose_claimed_rows(ends)
        self._lose_flipped_rows()
        for reader in self._readers:
            reader.reset()

    def _visible_end(self, topic: str) -> int:
        try:
            return TopicReader(self.machine.topics / topic).end
        except (FileNotFoundError, CorruptBatch):
            return 0

    def _of_receiver(self, receiver: Receiver, step: Callable[[], None]) -> None:
        lines, self._kill_receiver_at = self._kill_receiver_at, -1
        try:
            if lines >= 0:
                with killed_after(lines, lambda: None):
                    step()
                raise Killed
            step()
        except Killed:
            self.record(receiver.name, "killed")
            receiver.die()

    def _come_to_rest(self, is_last: bool = False) -> None:
        """Stop the faults, let everything be stored and read, and check it. Raises Broken."""
        self._stop_faults()
        self._world.accepts_messages = is_last
        for _ in range(MAX_QUIET_ROUNDS):
            if self._is_at_rest():
                break
            self._take_round()
        else:
            waiting = [sender.name for sender in self._senders if not sender.is_idle]
            raise Broken(f"no rest after {MAX_QUIET_ROUNDS} rounds without faults: {waiting} wait")
        # The next sweep recovers the topics that a start on a full disk could not, and nobody has used since.
        self._daemon.log.sweep()
        self._check()
        self._world.accepts_messages = True
        self.record("check", "everything is kept so far")

    def _take_round(self) -> None:
        self.machine.clock.advance(0.5)
        if not self._daemon.is_running:
            self._start_daemon()
        for receiver in self._receivers:
            self._of_receiver(receiver, receiver.step if receiver.is_running else receiver.start)
        if self._daemon.is_running:
            for step in self._daemon_steps():
                # A death that was planned before the faults stopped may come only now.
                if self._daemon.is_running:
                    self._of_daemon(step)
        for sender in self._senders:
            self._send(sender)
        # Limit: a round with all readers takes twice the time; at rest everything is read anyway.
        self._dice.choice(self._readers).step()

    def _is_at_rest(self) -> bool:
        # Looking at the daemon opens topics, and a death that was planned before the faults stopped may come there.
        is_idle: list[bool] = []
        return (
            self._daemon.is_running
            and self._of_daemon(lambda: is_idle.append(self._daemon.is_idle))
            and is_idle[0]
            and self._lander.is_idle
            and all(receiver.is_idle for receiver in self._receivers)
            and all(sender.is_idle for sender in self._senders)
        )

    def _check(self) -> None:
        for sender in self._senders:
            if isinstance(sender, ListenerSender):
                sender.confirm_written()
        stored: dict[str, set[bytes]] = {}
        with_gaps = set()
        if self._promises.damages:
            for name in self._daemon.log.names(internal=True):
                self._daemon.log.topic(name, internal=True).verify()
        for topic in self._daemon.log.names():
            reader = TopicReader(self.machine.topics / topic)
            gaps, end = reader.gaps(), reader.end
            rows = dict(rows_of(batch.batch for batch in reader.read(0)))
            self._promises.check_topic(topic, rows, gaps, end)
            stored[topic] = {payload for _, payload in rows.values()}
            with_gaps |= {topic} if gaps else set()
            if topic == EXPIRING:
                self._check_expired(gaps)
        for topic in TOPICS:
            stored.setdefault(topic, set())
        self._promises.check_transactions(stored, with_gaps)
        self._check_cursors()
        self._check_balance()
        self._check_listeners()

    def _check_cursors(self) -> None:
        for (topic, name), offsets in self._promises.cursors.items():
            offset = Cursors(self.machine.files, self.machine.topics / topic).offsets().get(name)
            # The file of a cursor and its copy were damaged, or an older copy is left.
            is_older = self._promises.damages and (offset is None or offset < max(filter(None, offsets), default=1))
            if offset not in offsets and not is_older:
                raise Broken(f"cursor {name} of {topic} is at {offset}, not at one of {offsets}")

    def _check_listeners(self) -> None:
        topics = self._daemon.log.names()
        routes = {route.source: route for route in self._daemon.ledger.balance().routes if route.handler == LOG}
        for receiver in self._receivers:
            reader = TopicReader(self.machine.topics / receiver.topic)
            # A batch that a power cut tore is a gap; its frames may be stored again behind it.
            stored = reader.end - len(offsets_in(reader.gaps())) if receiver.topic in topics else 0
            route = routes.get(receiver.name)
            lost = (route.policy_drop, route.corrupt) if route else (0, 0)
            self._promises.check_listener(receiver.published, stored, *lost)

    def _check_balance(self) -> None:
        balance = self._daemon.ledger.balance()
        document = balance.document()
        # Rows that were landed before they were lost are landed and no longer logged.
        if abs(balance.unaccounted) > self._promises.lost and not self._promises.has_lost_books:
            raise Broken(f"the balance does not close: {document}")
        posts = [post for topic in self._lander.posts for post in self._lander.posts[topic]]
        rebuilt = rebuild_balance(
            self.machine.topics,
            self.machine.buffers.folder,
            [receiver.name for receiver in self._receivers],
            posts,
            lambda: self._daemon.ledger.balance().document(),
        )
        if rebuilt["differs"] and not self._promises.has_lost_books:
            raise Broken(f"the rebuilt balance differs: {rebuilt['differs']}")
        self._daemon.stop()
        self._daemon.start()
        if changed := differences(document, self._daemon.ledger.balance().document()):
            raise Broken(f"the balance changes by a restart: {changed}")
