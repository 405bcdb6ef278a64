"""A run with groups of Kafka's protocol. Start at ``simulate_groups``.

The draws of groups are their own: a seed has the same messages and faults of the log as in ``simulation.run``.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from penstock.log import TopicReader
from penstock.log.cursors import Cursors
from penstock.server.api import entries
from penstock.server.kafka.entries import produce
from penstock.server.kafka.groups import group_state, groups
from penstock.server.kafka.groups.group_offsets import cursor_of
from penstock.testing.simulation.faults import Fault, by_step, draw_faults
from penstock.testing.simulation.groups.administrators import Administrator, Visitors
from penstock.testing.simulation.groups.event_loop import SimulatedThreads
from penstock.testing.simulation.groups.members import Member, Network
from penstock.testing.simulation.groups.promises import AllPromises
from penstock.testing.simulation.groups.server import KafkaServer
from penstock.testing.simulation.machine import another_process, replaced
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken, offsets_in, rows_of
from penstock.testing.simulation.run import EXPIRING, MESSAGES, NESTED_SHARE, STEPS, Run

GROUPS = {
    "billing": (("orders", "bills", "lines"), 3),
    "Audit, \u00fc": (("orders", EXPIRING), 2),
}
"""Topics and number of members of each group. The name of one is not valid for a cursor."""
FIRST_OF_GROUPS, GROUP_RATE = 5_000, 0.04
"""Number of the first fault of a member, and their number in a step."""
MAX_STEPS_AWAY = 80
ACTIONS_PER_STEP = 4
MAX_GROUPS, MAX_MEMBERS, MAX_MEMBER_BYTES = 5, 5, 2_000
"""Limits in a run, so that it reaches them."""


class GroupKind(StrEnum):
    """Kinds of faults of groups; ``amount`` of a fault is explained at each."""

    DIE = "let a member die silently for so many steps"
    STOP = "let a member take no step for so many steps"
    VISIT = "let so many visitors come"
    STICK = "let a call on a thread be stuck for so many steps of threads"
    END = "stop the log daemon while requests are under way, of which so many go on"


def simulate_groups(
    seed: int,
    *,
    steps: int = STEPS,
    messages: int = MESSAGES,
    faults: Iterable[int] | None = None,
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number. Files are in memory if possible."""
    return run_seed(GroupsRun, seed, steps, messages, faults)


def run_seed(kind: type[GroupsRun], seed: int, steps: int, messages: int, faults: Iterable[int] | None) -> Outcome:
    """Return the outcome of a seed's run of this kind, as ``simulate_groups``."""
    with run_folder() as folder:
        run = kind(seed, folder, steps, messages, _draw_all_faults(seed, steps, faults))
        with run.machine.running(), _simulated_groups(seed):
            run.execute()
        return run.outcome


class _Secrets:
    """The module ``secrets`` with numbers that a seed determines."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(f"{seed} secrets")

    def token_hex(self, size: int) -> str:
        return self._dice.randbytes(size).hex()

    def randbits(self, bits: int) -> int:
        return self._dice.getrandbits(bits)

    def randbelow(self, end: int) -> int:
        return self._dice.randrange(end)


@contextlib.contextmanager
def _simulated_groups(seed: int) -> Iterator[None]:
    """Give groups numbers that a seed determines, small limits, and an executor without threads."""
    with contextlib.ExitStack() as stack:
        for module, name, replacement in (
            (group_state, "secrets", _Secrets(seed)),
            (group_state, "MAX_MEMBERS", MAX_MEMBERS),
            (group_state, "MAX_MEMBER_BYTES", MAX_MEMBER_BYTES),
            (groups, "MAX_MEMBER_BYTES", MAX_MEMBER_BYTES),
            (groups, "MAX_GROUPS", MAX_GROUPS),
            (produce, "secrets", _Secrets(seed)),
            (entries, "ThreadPoolExecutor", SimulatedThreads),
        ):
            stack.enter_context(replaced(module, name, replacement))
        yield


def _draw_all_faults(seed: int, steps: int, only: Iterable[int] | None) -> list[Fault]:
    """Return the faults of a seed, of the log and of groups, or those with the numbers ``only``."""
    return by_step([*draw_faults(seed, steps), *_draw_group_faults(seed, steps)], only)


def _draw_group_faults(seed: int, steps: int) -> list[Fault]:
    dice = random.Random(f"{seed} group faults")
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < GROUP_RATE:
            kind = dice.choice(list(GroupKind))
            most = 6 if kind is GroupKind.VISIT else MAX_STEPS_AWAY
            faults.append(Fault(FIRST_OF_GROUPS + len(faults), step, kind, dice.randint(1, most)))
    return faults


class GroupsRun(Run):
    """A run of the pipe with groups of consumers."""

    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: list[Fault]) -> None:
        super().__init__(seed, folder, steps, messages, faults)
        self._server: KafkaServer | None = None
        self._server_life = 0
        self._group_dice = random.Random(f"{seed} groups")
        self._group_promises = AllPromises(lambda: self._daemon.life, lambda: bool(self._promises.damages))
        self._network = Network(self._world, self._current_server, random.Random(f"{seed} network"))
        self._members: dict[str, list[Member]] = {}
        for name, (topics, count) in GROUPS.items():
            promises = self._group_promises.group(name)
            self._members[name] = [
                Member(
                    f"{name} {number}",
                    self._network,
                    random.Random(f"{seed} {name} {number}"),
                    promises,
                    topics,
                    f"instance-{number}" if number == 0 else None,
                )
                for number in range(count)
            ]
        self._administrator = Administrator(self._network, random.Random(f"{seed} administrator"), tuple(GROUPS))
        self._visitors = Visitors(self._network, random.Random(f"{seed} visitors"), tuple(GROUPS))

    @property
    def _all_members(self) -> list[Member]:
        return [member for members in self._members.values() for member in members]

    def _end_processes(self) -> None:
        super()._end_processes()
        self._end_server()

    def _current_server(self) -> KafkaServer | None:
        """Return the server of the daemon's life, None while it does not run."""
        if self._server is not None and (not self._daemon.is_running or self._server_life != self._daemon.life):
            self._end_server()
        if self._server is None and self._daemon.is_running:
            self._server = KafkaServer(self.machine, self._daemon.api, self._group_promises.observe)
            self._server_life = self._daemon.life
        return self._server

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.die()
            self._server = None

    def _inject(self, fault: Fault) -> None:
        match fault.kind:
            case GroupKind.DIE:
                member = self._group_dice.choice(self._all_members)
                member.start()
                member.rest_until = self._step + fault.amount
            case GroupKind.STOP:
                self._group_dice.choice(self._all_members).rest_until = self._step + fault.amount
            case GroupKind.VISIT:
                for _ in range(fault.amount):
                    self._visitors.step()
            case GroupKind.STICK:
                if (server := self._current_server()) is not None:
                    server.threads.stick_for = fault.amount
            case GroupKind.END:
                if self._current_server() is not None and self._of_daemon(lambda: self._end_orderly(fault.amount)):
                    self.record("daemon", "stopped")
            case _:
                super()._inject(fault)

    def _end_orderly(self, calls: int) -> None:
        """Stop the daemon as by SIGTERM; requests that are under way find a closed log."""
        server = self._current_server()
        assert server is not None
        # No sender takes a step in between: a log that closes waits for appends, which nobody would commit.
        self._is_nested = True
        try:
            self._daemon.close()
            for _ in range(calls):
                server.threads.run_one(self._choose())
                server.turn()
        finally:
            self._is_nested = False
            self._daemon.die()

    def _stop_faults(self) -> None:
        super()._stop_faults()
        self._network.has_faults = False
        for member in self._all_members:
            member.rest_until = 0

    def _come_to_rest(self, is_last: bool = False) -> None:
        super()._come_to_rest(is_last)
        self._network.has_faults = True

    def _interrupt(self, operation: str) -> None:
        super()._interrupt(operation)
        # The event loop goes on while another thread of the daemon is within a file operation.
        server = self._server
        if server is None or self._is_nested or not self._daemon.is_running:
            return
        if self._group_dice.random() < NESTED_SHARE:
            self._is_nested = True
            try:
                with another_process():
                    server.turn()
            finally:
                self._is_nested = False

    def _take_step(self) -> None:
        for _ in range(ACTIONS_PER_STEP):
            self._take_group_step()
        super()._take_step()

    def _take_group_step(self) -> None:
        kind = self._group_dice.choices(("loop", "thread", "member", "network", "administrator"), (8, 5, 8, 1, 1))[0]
        server = self._current_server()
        if kind == "member":
            member = self._group_dice.choice(self._all_members)
            if self._step >= member.rest_until:
                member.step()
        elif kind == "network":
            self._network.step()
        elif kind == "administrator":
            self._administrator.step()
        elif server is not None:
            self._of_daemon(server.turn if kind == "loop" else lambda: server.threads.run_one(self._choose()))

    def _choose(self) -> int:
        return self._group_dice.randrange(8)

    def _end_daemon(self) -> None:
        self._end_server()
        super()._end_daemon()

    def _take_round(self) -> None:
        super()._take_round()
        for client in (*self._all_members, self._administrator):
            client.step()
            server = self._current_server()
            if server is not None:
                self._of_daemon(lambda server=server: server.settle(self._choose))  # type: ignore[misc]
            client.take_answer()

    def _is_at_rest(self) -> bool:
        return super()._is_at_rest() and all(map(self._group_rests, GROUPS))

    def _group_rests(self, name: str) -> bool:
        """Report whether all members are in one generation that owns all topics, and have committed everything."""
        topics, members = GROUPS[name][0], self._members[name]
        ends = {topic: self._visible_end(topic) for topic in topics}
        assigned = sorted(topic for member in members for topic in member.assigned)
        return assigned == sorted(topics) and all(member.is_idle(ends) for member in members)

    def _check(self) -> None:
        # Order: the pipe first, which verifies topics with damage.
        super()._check()
        for name in self._group_promises.groups:
            self._check_offsets(name)
        for name, (topics, _) in GROUPS.items():
            for topic in topics:
                self._check_processed(name, topic)

    def _check_offsets(self, name: str) -> None:
        group = self._group_promises.group(name)
        for topic, register in group.registers.items():
            offset = Cursors(self.machine.files, self.machine.topics / topic).offsets().get(cursor_of(name))
            group.check_offset(topic, offset, register.possible)

    def _check_processed(self, name: str, topic: str) -> None:
        """Check that the group has processed every row that it has passed, and no other rows. Raises Broken."""
        if topic in self._promises.shortened or topic not in self._daemon.log.names():
            return  # what lying syncs lost has changed the rows behind committed offsets
        processed = self._group_promises.group(name).processed[topic]
        reader = TopicReader(self.machine.topics / topic)
        gaps = offsets_in(reader.gaps())
        rows = dict(rows_of(batch.batch for batch in reader.read(0)))
        committed = Cursors(self.machine.files, reader.path).offsets().get(cursor_of(name), 0)
        if missed := {offset for offset in rows if offset < committed} - processed.keys():
            raise Broken(f"group {name} has never read offset {min(missed)} of {topic}, and has passed it")
        for offset, payload in processed.items():
            if offset not in gaps and (offset not in rows or rows[offset][1] != payload):
                raise Broken(f"group {name} has read {payload!r} at {offset} of {topic}, not {rows.get(offset)}")
