"""Runs whose listeners have a second handler: forwarders that die, hang and refuse, next to the log.

Start at ``simulate_forwarding``. The draws of its forwarders are their own: a seed has the same messages and faults of
the log as in ``run.simulate``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.counts import Origin
from penstock.handover.positions.accounts import read_account
from penstock.ledger.handler_deliveries import handler_deliveries
from penstock.sinks.forwarder import MAX_ATTEMPTS, Forwarder
from penstock.sinks.handler import Delivered
from penstock.testing.simulation.faults import MAX_LINES, Fault, by_step, draw_faults
from penstock.testing.simulation.machine import ROOMS, Killed, Machine, killed_after
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.receiver import Receiver
from penstock.testing.simulation.run import MESSAGES, STEPS, Run

HANDLER = "console"
FORWARDER_ROOMS = (*ROOMS, "sinks")
FIRST_OF_FORWARDERS, FORWARDER_RATE = 4_000, 0.03
"""Number of the first fault of a forwarder, and their number in a step."""
MAX_STEPS_AWAY = 80


class ForwarderKind(StrEnum):
    """Kinds of faults of forwarders; ``amount`` of a fault is explained at each."""

    KILL = "kill a forwarder after so many lines of code"
    REFUSE = "let a handler raise so many times"
    STOP = "let a forwarder take no step for so many steps"


def simulate_forwarding(
    seed: int,
    *,
    steps: int = STEPS,
    messages: int = MESSAGES,
    faults: Iterable[int] | None = None,
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number. Files are in memory if possible."""
    drawn = by_step([*draw_faults(seed, steps), *_draw_forwarder_faults(seed, steps)], faults)
    with run_folder() as folder:
        run = ForwardingRun(seed, folder, steps, messages, drawn)
        with run.machine.running(FORWARDER_ROOMS):
            run.execute()
        return run.outcome


def _draw_forwarder_faults(seed: int, steps: int) -> list[Fault]:
    dice = random.Random(f"{seed} forwarder faults")
    faults: list[Fault] = []
    for step in range(steps):
        if dice.random() < FORWARDER_RATE:
            kind = dice.choice([*ForwarderKind, ForwarderKind.KILL])
            amounts = {
                ForwarderKind.KILL: int(MAX_LINES ** dice.random()),
                ForwarderKind.REFUSE: dice.randint(1, 2 * MAX_ATTEMPTS),
                ForwarderKind.STOP: dice.randint(1, MAX_STEPS_AWAY),
            }
            faults.append(Fault(FIRST_OF_FORWARDERS + len(faults), step, kind, amounts[kind]))
    return faults


@dataclass(slots=True)
class _Sink:
    """A destination: the copies of each message that it took, of which the answer may be lost."""

    accepted: Counter[bytes] = field(default_factory=Counter)
    refusals: int = 0

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Take a batch. Raises OSError while it refuses."""
        if self.refusals:
            self.refusals -= 1
            raise OSError("the destination refuses")
        payloads: list[Any] = batch.column("payload").to_pylist()
        self.accepted.update(payloads)
        return Delivered(batch.num_rows)


class SimulatedForwarder:
    """The lives of a listener's forwarder, each after the last."""

    def __init__(self, machine: Machine, receiver: Receiver) -> None:
        self.receiver = receiver
        self.sink = _Sink()
        self.rest_until = 0
        """The step before which it takes none."""
        self._machine = machine
        self._life: Forwarder | None = None
        self._steps: Iterator[Callable[[], None]] | None = None

    def step(self) -> None:
        """Start, or read one group of frames."""
        if self._life is None:
            self._life = Forwarder(self._machine.buffers.folder, self.receiver.name, HANDLER, self.sink, None)
            self._steps = self._life.rounds()
            self._machine.buffers.write_back_created()
        assert self._steps is not None
        next(self._steps)

    def die(self) -> None:
        """End as by SIGKILL."""
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]  # a generator
        if self._life is not None:
            self._life.close()
        self._life = self._steps = None

    @property
    def is_idle(self) -> bool:
        """Report whether each message has a fate."""
        account = read_account(self._machine.buffers.folder, self.receiver.name, HANDLER)
        return not account.in_flight and self.receiver.has_read_all(1)


class ForwardingRun(Run):
    """A run of the pipe with a forwarder for each listener."""

    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: list[Fault]) -> None:
        super().__init__(seed, folder, steps, messages, faults)
        self._forwarder_dice = random.Random(f"{seed} forwarders")
        self._forwarders = [SimulatedForwarder(self.machine, receiver) for receiver in self._receivers]
        self._kill_forwarder_at = -1

    def make_receivers(self) -> list[Receiver]:
        handlers = [{"type": HANDLER, "overflow": "drop"}]
        return [
            Receiver(self.machine, "tcp", "lines", True, handlers),
            Receiver(self.machine, "udp", "datagrams", False, handlers),
        ]

    def _end_processes(self) -> None:
        super()._end_processes()
        for forwarder in self._forwarders:
            forwarder.die()

    def _inject(self, fault: Fault) -> None:
        match fault.kind:
            case ForwarderKind.KILL:
                self._kill_forwarder_at = fault.amount
            case ForwarderKind.REFUSE:
                self._forwarder_dice.choice(self._forwarders).sink.refusals = fault.amount
            case ForwarderKind.STOP:
                self._forwarder_dice.choice(self._forwarders).rest_until = self._step + fault.amount
            case _:
                super()._inject(fault)

    def _stop_faults(self) -> None:
        super()._stop_faults()
        self._kill_forwarder_at = -1
        for forwarder in self._forwarders:
            forwarder.sink.refusals = forwarder.rest_until = 0

    def _take_step(self) -> None:
        forwarder = self._forwarder_dice.choice(self._forwarders)
        if self._step >= forwarder.rest_until:
            self._of_forwarder(forwarder)
        super()._take_step()

    def _of_forwarder(self, forwarder: SimulatedForwarder) -> None:
        if not forwarder.receiver.life:
            return  # Penstock starts a forwarder once its receiver has made the log buffer
        lines, self._kill_forwarder_at = self._kill_forwarder_at, -1
        try:
            if lines >= 0:
                with killed_after(lines, lambda: None, FORWARDER_ROOMS):
                    forwarder.step()
                raise Killed
            forwarder.step()
        except Killed:
            self.record(f"forwarder of {forwarder.receiver.name}", "killed")
            forwarder.die()

    def _end_daemon(self) -> None:
        if self.machine.files.stop_after is not None:
            for forwarder in self._forwarders:
                forwarder.die()
        super()._end_daemon()

    def _take_round(self) -> None:
        super()._take_round()
        for forwarder in self._forwarders:
            self._of_forwarder(forwarder)

    def _is_at_rest(self) -> bool:
        return super()._is_at_rest() and all(forwarder.is_idle for forwarder in self._forwarders)

    def _of_receiver(self, receiver: Receiver, step: Callable[[], None]) -> None:
        super()._of_receiver(receiver, step)
        if receiver.is_running:
            self._check_routes_close(receiver)

    def _check_routes_close(self, receiver: Receiver) -> None:
        """Check that routes close at every moment, as before a forwarder has seen what a power cut took."""
        for delivery in handler_deliveries(self.machine.buffers.folder, [receiver.name]):
            route = delivery.route()
            if route.unaccounted:
                raise Broken(f"the route does not close: {route}")

    def _check(self) -> None:
        super()._check()
        for forwarder in self._forwarders:
            self._check_route(forwarder)

    def _check_route(self, forwarder: SimulatedForwarder) -> None:
        """Check that each message of the listener has one fate, and that no undelivered one counts as delivered."""
        receiver = forwarder.receiver
        routes = [
            route
            for route in self._daemon.ledger.balance().routes
            if (route.source, route.handler) == (receiver.name, HANDLER)
        ]
        published = receiver.published
        if self._promises.power_cuts or not (routes or published.complete):
            return  # a power cut takes frames, and the account of a forwarder
        if len(routes) != 1:
            raise Broken(f"listener {receiver.name} has {len(routes)} routes to its handler, not 1")
        route = routes[0]
        missing = sum((receiver.written - forwarder.sink.accepted).values())
        if not published.complete <= route.accepted <= published.complete + published.uncertain:
            raise Broken(f"the route {route} does not have the messages of {published}")
        if route.corrupt > published.uncertain:
            raise Broken(f"messages are corrupt without damage: {route}")
        if missing > route.policy_drop + route.handler_failed + route.corrupt:
            raise Broken(f"{missing} messages were not delivered: {route}")
