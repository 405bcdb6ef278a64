"""What happens to the pipe during a drill; each disaster ends when all of it works again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.drill.faults import Faults
from penstock.drill.pipe import DrillPipe, datagrams_of
from penstock.drill.senders import DatagramSender, Sender
from penstock.testing.damage import damage_one

PATIENCE = 60.0
"""Seconds after which a pipe that is not back has failed."""
YEAR, DAY = 365 * 86400.0, 86400.0


@dataclass(frozen=True)
class Scene:
    """What a disaster works on."""

    pipe: DrillPipe
    senders: Sequence[Sender]
    dice: random.Random


def kill_process(scene: Scene) -> str:
    """SIGKILL of one process."""
    name, pid = _one_of(scene)
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    scene.pipe.wait_back({name: pid}, PATIENCE)
    return f"{name} killed; back after {time.monotonic() - begun:.1f} s"


def stop_process(scene: Scene) -> str:
    """SIGSTOP of one process, for some seconds."""
    name, pid = _one_of(scene)
    seconds = scene.dice.uniform(0.5, 3)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    scene.pipe.wait_back({}, PATIENCE)
    return f"{name} stopped for {seconds:.1f} s"


def kill_all(scene: Scene) -> str:
    """SIGKILL of everything at once, and a start."""
    _kill_all(scene)
    return f"all processes killed; back after {_start(scene):.1f} s"


def damage_file(scene: Scene) -> str:
    """Everything is killed, a file is damaged, everything is started."""
    _kill_all(scene)
    done = damage_one(scene.pipe.settings.data_dir, scene.dice)
    return f"{done}; back after {_start(scene):.1f} s"


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
DISASTERS: tuple[Disaster, ...] = (
    kill_process,
    kill_process,
    kill_process,
    stop_process,
    kill_all,
    damage_file,
    full_disk,
    failing_disk,
    clock_ahead,
    clock_back,
    start_ahead,
    start_full,
)
"""As often as each stands here."""


def _one_of(scene: Scene) -> tuple[str, int]:
    running = [(name, pid) for name, pid in sorted(scene.pipe.pids().items()) if pid]
    return scene.dice.choice(running)


def _kill_all(scene: Scene) -> None:
    """What waits in a socket dies with the supervisor, so that datagrams are held back while it is away."""
    senders = [sender for sender in scene.senders if isinstance(sender, DatagramSender)]
    for sender in senders:
        sender.hold()
    end = time.monotonic() + 5
    while time.monotonic() < end and not all(_has_come(scene.pipe, sender) for sender in senders):
        time.sleep(0.1)
    scene.pipe.kill_all()


def _has_come(pipe: DrillPipe, sender: Sender) -> bool:
    return datagrams_of(pipe.balance(), sender.name) >= sender.sent


def _start(scene: Scene) -> float:
    seconds = scene.pipe.start(PATIENCE)
    for sender in scene.senders:
        sender.go_on()
    return seconds


def _start_with(scene: Scene, faults: Faults, said: str) -> str:
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
