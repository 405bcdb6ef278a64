"""The base of runs: steps with their faults, times of rest in which everything is checked, and the trace."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.machine import Machine
from penstock.testing.simulation.outcome import Outcome

QUIET_SHARE = 0.004
"""Share of steps before which everything comes to rest and is checked."""


class SteppedRun(ABC):
    """A run of a number of steps on a machine. ``schedule`` decides which process takes the next one."""

    def __init__(self, seed: int, steps: int, machine: Machine, faults: list[Fault], schedule: random.Random) -> None:
        self.outcome = Outcome(seed, faults=faults)
        self.machine = machine
        self._steps, self._step, self._faults, self._dice = steps, 0, faults, schedule

    def record(self, process: str, text: str) -> None:
        """Add a line to the trace."""
        self.outcome.record(self._step, self.machine, process, text)

    def execute(self) -> None:
        """Run all steps and the checks."""
        try:
            with self.outcome.ending():
                for step in range(self._steps):
                    self._step = step
                    self._inject_faults()
                    if self._dice.random() < QUIET_SHARE:
                        self._come_to_rest()
                    self._take_step()
                self._come_to_rest(is_last=True)
        finally:
            self._end_processes()
        self.record("end", self.outcome.broken or "everything is kept")

    def _inject_faults(self) -> None:
        while self._faults and self._faults[0].step <= self._step:
            fault, *self._faults = self._faults
            self.record("fault", str(fault))
            self._inject(fault)

    @abstractmethod
    def _inject(self, fault: Fault) -> None:
        """Let a fault happen."""

    @abstractmethod
    def _take_step(self) -> None:
        """Let one process take a step."""

    @abstractmethod
    def _come_to_rest(self, is_last: bool = False) -> None:
        """Stop the faults, let everything be stored, and check it. Raises Broken."""

    @abstractmethod
    def _end_processes(self) -> None:
        """End all processes."""
