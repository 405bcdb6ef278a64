"""What happens to the pipe during a drill; each disaster ends when all of it works again."""

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

PATIENCE = 60.0
"""Seconds after which a pipe that is not back has failed."""
YEAR, DAY = 365 * 86400.0, 86400.0


@dataclass(frozen=True)
class Scene:
    """What a disaster works on, how many files are damaged at once, and what has been done."""

    pipe: DrillPipe
    senders: Sequence[Sender]
    dice: random.Random
    damages: int = 1
    tally: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)

    def told(self) -> str:
        """What has been done so far, in words."""
        done = ", ".join(f"{count:,} {what}" for what, count in sorted(self.tally.items()))
        kinds = f" in {len(self.kinds)} kinds of files" if self.kinds else ""
        starts = self.pipe.starts
        return f"{done}{kinds}, {len(starts):,} starts, the slowest {max(starts, default=0):.1f} s".lstrip(", ")


def kill_process(scene: Scene) -> str:
    """SIGKILL of one process."""
    name, pid = _one_of(scene)
    os.kill(pid, signal.SIGKILL)
    scene.tally["kills"] += 1
    begun = time.monotonic()
    scene.pipe.wait_back({name: pid}, PATIENCE)
    return f"{name} killed; back after {time.monotonic() - begun:.1f} s"


def stop_process(scene: Scene) -> str:
    """SIGSTOP of one process, for some seconds."""
    name, pid = _one_of(scene)
    seconds = scene.dice.uniform(0.5, 3)
    with stopped(pid):
        time.sleep(seconds)
    scene.pipe.wait_back({}, PATIENCE)
    return f"{name} stopped for {seconds:.1f} s"


def kill_all(scene: Scene) -> str:
    """SIGKILL of everything at once, and a start."""
    _hold(scene)
    _kill_all(scene)
    return f"all processes killed; back after {_start(scene):.1f} s"


def damage_files(scene: Scene) -> str:
    """Everything is killed, or ends in order; a file is damaged, or several; everything is started."""
    _hold(scene)
    if scene.dice.random() < 0.5:
        scene.pipe.halt()
    else:
        _kill_all(scene)
    done = damage(scene.pipe.settings.data_dir, scene.dice, scene.damages)
    scene.tally.update(one.how for one in done)
    scene.kinds.update(one.kind for one in done)
    return f"{'; '.join(one.words for one in done)}; back after {_start(scene):.1f} s"


def full_disk(scene: Scene) -> str:
    """No room on the disk for some seconds."""
    return _fault(scene, Faults(full=True), "the disk was full for {:.1f} s")


def failing_disk(scene: Scene) -> str:
    """No sync succeeds for some seconds."""
    return _fault(scene, Faults(failing=True), "the disk failed to sync for {:.1f} s")


def clock_ahead(scene: Scene) -> str:
    """The wall clock is a year ahead for some seconds."""
    return _fault(scene, Faults(clock=YEAR), "the clock was a year ahead for {:.1f} s")


def clock_back(scene: Scene) -> str:
    """The wall clock is a day behind for some seconds."""
    return _fault(scene, Faults(clock=-DAY), "the clock was a day behind for {:.1f} s")


def start_ahead(scene: Scene) -> str:
    """Everything is started while the wall clock is a year ahead."""
    return _start_with(scene, Faults(clock=YEAR), "started with the clock a year ahead for {:.1f} s")


def start_full(scene: Scene) -> str:
    """Everything is started on a full disk."""
    return _start_with(scene, Faults(full=True), "started on a disk that was full for {:.1f} s")


def kill_pipeline(scene: Scene) -> str:
    """SIGKILL of the pipeline's driver; its JVM ends with it."""
    pipeline = scene.pipe.pipeline
    assert pipeline
    if pipeline.pid:
        os.kill(pipeline.pid, signal.SIGKILL)
        scene.tally["kills"] += 1
    scene.pipe.wait_back({}, PATIENCE)
    return "the pipeline killed"


def kill_kafka(scene: Scene) -> str:
    """SIGKILL of Kafka's broker, which comes back."""
    kafka = scene.pipe.kafka
    assert kafka
    kafka.kill()
    seconds = scene.dice.uniform(1, 5)
    time.sleep(seconds)
    kafka.start()
    return f"Kafka's broker killed, and away for {seconds:.1f} s"


Disaster = Callable[[Scene], str]


class Sort(StrEnum):
    """Of disasters; a drill may be of some of them only."""

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
"""As often as each stands here."""


def disasters_of(sorts: Sequence[Sort], spark: bool, kafka: bool) -> list[Disaster]:
    """Those of some sorts, of all where none is named, with pipeline and broker where there are any."""
    found = [one for sort in sorts or Sort for one in DISASTERS[sort]]
    if Sort.KILL in (sorts or Sort):
        found += [kill_pipeline] * spark + [kill_kafka] * kafka
    return found


def _one_of(scene: Scene) -> tuple[str, int]:
    running = [(name, pid) for name, pid in sorted(scene.pipe.pids().items()) if pid]
    return scene.dice.choice(running)


def _kill_all(scene: Scene) -> None:
    scene.pipe.kill_all()
    scene.tally["kills"] += 1


def _hold(scene: Scene) -> None:
    """What waits in a socket dies with the supervisor, so that datagrams are held back while it is away."""
    senders = [sender for sender in scene.senders if isinstance(sender, DatagramSender)]
    for sender in senders:
        sender.hold()
    end = time.monotonic() + 5
    while time.monotonic() < end and not all(_has_come(scene.pipe, sender) for sender in senders):
        time.sleep(0.1)


def _has_come(pipe: DrillPipe, sender: DatagramSender) -> bool:
    return datagrams_of(pipe.balance(), sender.name) >= sender.datagrams


def _start(scene: Scene) -> float:
    seconds = scene.pipe.start(PATIENCE)
    for sender in scene.senders:
        sender.go_on()
    return seconds


def _start_with(scene: Scene, faults: Faults, said: str) -> str:
    _hold(scene)
    _kill_all(scene)
    scene.pipe.faults(faults)
    scene.pipe.launch()
    seconds = scene.dice.uniform(2, 5)
    time.sleep(seconds)
    scene.pipe.faults(Faults())
    return f"{said.format(seconds)}; back after {_start(scene):.1f} s"


def _fault(scene: Scene, faults: Faults, said: str) -> str:
    seconds = scene.dice.uniform(1, 4)
    scene.pipe.faults(faults)
    time.sleep(seconds)
    scene.pipe.faults(Faults())
    scene.pipe.wait_back({}, PATIENCE)
    return said.format(seconds)
