"""Disasters of a drill: each changes the running pipe and returns once all of it works again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.drill.faults import Faults
from penstock.drill.pipe import DrillPipe, datagrams_of
from penstock.drill.senders import DatagramSender, Sender
from penstock.testing.damage import damage
from penstock.testing.processes import stopped

RECOVERY_TIMEOUT_S = 60.0
"""Limit for the pipe to come back; after that the drill has failed."""
YEAR_S, DAY_S = 365 * 86400.0, 86400.0


@dataclass(frozen=True)
class Scene:
    """The pipe and the senders that disasters act on, ``damages`` per damage, and a tally of the disasters so far."""

    pipe: DrillPipe
    senders: Sequence[Sender]
    dice: random.Random
    damages: int = 1
    tally: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)

    def summary(self) -> str:
        """Summarize the disasters so far in words."""
        disasters = ", ".join(f"{count:,} {noun}" for noun, count in sorted(self.tally.items()))
        kinds = f" in {len(self.kinds)} kinds of files" if self.kinds else ""
        starts = self.pipe.starts
        return f"{disasters}{kinds}, {len(starts):,} starts, the slowest {max(starts, default=0):.1f} s".lstrip(", ")


def kill_process(scene: Scene) -> str:
    """Kill one process with SIGKILL."""
    name, pid = _choose_process(scene)
    os.kill(pid, signal.SIGKILL)
    scene.tally["kills"] += 1
    started_at = time.monotonic()
    scene.pipe.wait_back({name: pid}, RECOVERY_TIMEOUT_S)
    return f"{name} killed; back after {time.monotonic() - started_at:.1f} s"


def stop_process(scene: Scene) -> str:
    """Suspend one process with SIGSTOP for some seconds."""
    name, pid = _choose_process(scene)
    seconds = scene.dice.uniform(0.5, 3)
    with stopped(pid):
        time.sleep(seconds)
    scene.pipe.wait_back({}, RECOVERY_TIMEOUT_S)
    return f"{name} stopped for {seconds:.1f} s"


def kill_all(scene: Scene) -> str:
    """Kill all processes at once with SIGKILL, then start them."""
    _hold_senders(scene)
    _kill_all(scene)
    return f"all processes killed; back after {_start(scene):.1f} s"


def damage_files(scene: Scene) -> str:
    """Kill or end all processes, damage one or several files, start the processes."""
    _hold_senders(scene)
    if scene.dice.random() < 0.5:
        scene.pipe.halt()
    else:
        _kill_all(scene)
    injuries = damage(scene.pipe.settings.data_dir, scene.dice, scene.damages)
    scene.tally.update(injury.how for injury in injuries)
    scene.kinds.update(injury.kind for injury in injuries)
    return f"{'; '.join(injury.words for injury in injuries)}; back after {_start(scene):.1f} s"


def full_disk(scene: Scene) -> str:
    """Let writes fail for some seconds as on a full disk."""
    return _fault(scene, Faults(full=True), "the disk was full for {:.1f} s")


def failing_disk(scene: Scene) -> str:
    """Let every sync fail for some seconds."""
    return _fault(scene, Faults(failing=True), "the disk failed to sync for {:.1f} s")


def clock_ahead(scene: Scene) -> str:
    """Set the wall clock a year ahead for some seconds."""
    return _fault(scene, Faults(clock=YEAR_S), "the clock was a year ahead for {:.1f} s")


def clock_back(scene: Scene) -> str:
    """Set the wall clock a day back for some seconds."""
    return _fault(scene, Faults(clock=-DAY_S), "the clock was a day behind for {:.1f} s")


def start_ahead(scene: Scene) -> str:
    """Start all processes while the wall clock is a year ahead."""
    return _start_with(scene, Faults(clock=YEAR_S), "started with the clock a year ahead for {:.1f} s")


def start_full(scene: Scene) -> str:
    """Start all processes on a full disk."""
    return _start_with(scene, Faults(full=True), "started on a disk that was full for {:.1f} s")


def kill_pipeline(scene: Scene) -> str:
    """Kill the pipeline's driver with SIGKILL; its JVM ends with it."""
    pipeline = scene.pipe.pipeline
    assert pipeline
    if pipeline.pid:
        os.kill(pipeline.pid, signal.SIGKILL)
        scene.tally["kills"] += 1
    scene.pipe.wait_back({}, RECOVERY_TIMEOUT_S)
    return "the pipeline killed"


def kill_kafka(scene: Scene) -> str:
    """Kill Kafka's broker with SIGKILL, and start it after some seconds."""
    kafka = scene.pipe.kafka
    assert kafka
    kafka.kill()
    seconds = scene.dice.uniform(1, 5)
    time.sleep(seconds)
    kafka.start()
    return f"Kafka's broker killed, and away for {seconds:.1f} s"


Disaster = Callable[[Scene], str]


class Sort(StrEnum):
    """A sort of disasters; a drill may be limited to some."""

    KILL = "kill"
    STOP = "stop"
    DAMAGE = "damage"
    DISK = "disk"
    CLOCK = "clock"


DISASTERS: dict[Sort, tuple[Disaster, ...]] = {
    Sort.KILL: (kill_process, kill_process, kill_process, kill_all),
    Sort.STOP: (stop_process,),
    Sort.DAMAGE: (damage_files,),
    Sort.DISK: (full_disk, failing_disk, start_full),
    Sort.CLOCK: (clock_ahead, clock_back, start_ahead),
}
"""Disasters by sort; one that is listed several times is chosen more often."""


def disasters_of(sorts: Sequence[Sort], spark: bool, kafka: bool) -> list[Disaster]:
    """Return the disasters of these sorts (all if empty), plus the ones of the pipeline and the broker if these run."""
    disasters = [disaster for sort in sorts or Sort for disaster in DISASTERS[sort]]
    if Sort.KILL in (sorts or Sort):
        disasters += [kill_pipeline] * spark + [kill_kafka] * kafka
    return disasters


def _choose_process(scene: Scene) -> tuple[str, int]:
    running = [(name, pid) for name, pid in sorted(scene.pipe.pids().items()) if pid]
    return scene.dice.choice(running)


def _kill_all(scene: Scene) -> None:
    scene.pipe.kill_all()
    scene.tally["kills"] += 1


def _hold_senders(scene: Scene) -> None:
    """Hold back the datagrams until every sent one has arrived."""
    # A socket's queue ends with the supervisor: datagrams in it would be lost without a count.
    senders = [sender for sender in scene.senders if isinstance(sender, DatagramSender)]
    for sender in senders:
        sender.hold()
    end = time.monotonic() + 5
    while time.monotonic() < end and not all(_has_arrived(scene.pipe, sender) for sender in senders):
        time.sleep(0.1)


def _has_arrived(pipe: DrillPipe, sender: DatagramSender) -> bool:
    return datagrams_of(pipe.balance(), sender.name) >= sender.datagrams


def _start(scene: Scene) -> float:
    seconds = scene.pipe.start(RECOVERY_TIMEOUT_S)
    for sender in scene.senders:
        sender.resume()
    return seconds


def _start_with(scene: Scene, faults: Faults, template: str) -> str:
    _hold_senders(scene)
    _kill_all(scene)
    scene.pipe.faults(faults)
    scene.pipe.launch()
    seconds = scene.dice.uniform(2, 5)
    time.sleep(seconds)
    scene.pipe.faults(Faults())
    return f"{template.format(seconds)}; back after {_start(scene):.1f} s"


def _fault(scene: Scene, faults: Faults, template: str) -> str:
    seconds = scene.dice.uniform(1, 4)
    scene.pipe.faults(faults)
    time.sleep(seconds)
    scene.pipe.faults(Faults())
    scene.pipe.wait_back({}, RECOVERY_TIMEOUT_S)
    return template.format(seconds)
