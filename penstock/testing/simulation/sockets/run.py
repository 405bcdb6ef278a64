"""A run with sockets: senders, a network, the real receive loops and codecs, log buffers and the log daemon.

Start at ``simulate_sockets``. The disk does not fail: other runs have these faults.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.log import LogError, TopicSettings
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.faults import Fault, by_step
from penstock.testing.simulation.machine import Killed, Machine, another_process, interrupted_after, killed_after
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken, Promises
from penstock.testing.simulation.run import WRITEBACK_SHARE
from penstock.testing.simulation.sockets import promises
from penstock.testing.simulation.sockets.faults import FIRST_OF_POWER_CUTS, SocketKind, draw_socket_faults
from penstock.testing.simulation.sockets.kernel import DatagramSocket, Kernel
from penstock.testing.simulation.sockets.listeners import SocketListener
from penstock.testing.simulation.sockets.replacements import SOCKET_ROOMS, simulated_receivers
from penstock.testing.simulation.sockets.senders import (
    COMMANDER,
    FLOOD,
    DatagramSender,
    GelfSender,
    Network,
    PlogSender,
    SyslogSender,
    gelf_message,
    plog_line,
    syslog_message,
)
from penstock.testing.simulation.sockets.stream_senders import (
    MAX_LINE,
    STATISTICS_BYTES,
    CommandSender,
    ForwardSender,
    StreamSender,
    counted_octets,
    lines,
    nul_ended,
)
from penstock.testing.simulation.sockets.streams import SEND_BUFFER_BYTES, ListeningSocket
from penstock.testing.simulation.stepped_run import SteppedRun

SOCKET_STEPS, SOCKET_MESSAGES = 250, 30
"""Steps of a run, and messages of each sender."""
MAX_QUIET_ROUNDS = 600
LOW_LIMIT_SHARE, NO_COMMANDS_SHARE = 0.3, 0.4
"""Shares of seeds with a low limit of unfinished bytes, and without a sender of commands over TCP."""
MAX_CALLS_OF_ROUND = 60
"""Calls of a receiver's round before which the kernel may write pages to the disk."""
SETTLE_S = 70.0
"""Silence after which no fragment waits, and no sender's ids are remembered."""
BUFFER_BYTES = 24_000
"""The buffer of a UDP socket; a burst overruns it."""
SETTINGS = TopicSettings(segment_size_limit=20_000, rotate_after=600, stale_after=1e9)


def simulate_sockets(
    seed: int,
    *,
    steps: int = SOCKET_STEPS,
    messages: int = SOCKET_MESSAGES,
    faults: Iterable[int] | None = None,
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number. Files are in memory if possible."""
    with run_folder() as folder:
        run = SocketsRun(seed, folder, steps, messages, by_step(draw_socket_faults(seed, steps), faults))
        with run.simulated_processes():
            run.execute()
        return run.outcome


def _listener(name: str, protocol: str, **more: Any) -> ListenerConfig:
    log = {"type": "log", "topic": name, "overflow": "drop" if protocol == "udp" else "block"}
    return ListenerConfig.model_validate(
        {"name": name, "protocol": protocol, "handlers": [log], "max_line": MAX_LINE, **more}
    )


_Sender = DatagramSender | StreamSender | ForwardSender | CommandSender
_Compose = Callable[[str, int, bytes], bytes]
_Frame = Callable[[bytes], bytes]
_CONNECTIONS: dict[str, list[tuple[_Compose, _Frame]]] = {
    "lines": [(plog_line, lines), (plog_line, lines)],
    "octets": [(syslog_message, counted_octets), (syslog_message, lines)],
    "documents": [(gelf_message, nul_ended), (gelf_message, lines)],
}
"""Messages and framing of each sender over connections, by listener."""


class SocketsRun(SteppedRun):
    """A run, with its processes, sockets and senders."""

    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: list[Fault]) -> None:
        super().__init__(seed, steps, Machine(folder, seed), faults, random.Random(f"{seed} socket schedule"))
        self._kernel = Kernel()
        self._is_nested = self._has_lost_power = self._cuts_power_with_receiver = False
        self._may_lose_power = any(fault.number >= FIRST_OF_POWER_CUTS for fault in faults)
        self.promises = Promises()
        self._writebacks = random.Random(f"{seed} writebacks")
        self._kill_receiver_at = self._kill_daemon_at = -1
        self._daemon_rests_until = 0
        self._make_listeners(seed)
        self._make_senders(seed, messages)
        self.daemon = Daemon(self.machine, [listener.name for listener in self.listeners], SETTINGS, {})

    def _make_listeners(self, seed: int) -> None:
        dice = random.Random(f"{seed} listeners")
        limits = {"max_connections": 4, "max_unfinished": 2_000} if dice.random() < 0.5 else {}
        # Draws of their own: recorded runs keep their numbers.
        if random.Random(f"{seed} unfinished").random() < LOW_LIMIT_SHARE:
            limits = {"max_unfinished": 700}
        idle = {"idle_timeout": 20} if dice.random() < 0.5 else {}
        defrag = {"defrag": {"max_size": 3_000}} if dice.random() < 0.3 else {}
        configs = [
            _listener("plog", "udp", commands_from=[f"{COMMANDER}/32"], **defrag),
            _listener("syslog", "udp", codec="syslog"),
            _listener("lines", "tcp", commands_from=[f"{COMMANDER}/32"], **limits, **idle),
            _listener("octets", "tcp", codec="syslog", **limits, **idle),
            _listener("gelf", "udp", codec="gelf"),
            _listener("documents", "tcp", codec="gelf", **limits, **idle),
            _listener("forward", "tcp", codec="forward"),
        ]
        self.listeners = []
        for config in configs:
            streams = random.Random(f"{seed} {config.name} streams")
            sock = (
                DatagramSocket(self._kernel, BUFFER_BYTES)
                if config.protocol == "udp"
                else ListeningSocket(
                    self._kernel, streams, STATISTICS_BYTES if config.name == "lines" else SEND_BUFFER_BYTES
                )
            )
            self.listeners.append(SocketListener(self.machine, config, sock, self._let_others_run))

    def _make_senders(self, seed: int, messages: int) -> None:
        def dice(name: str) -> random.Random:
            return random.Random(f"{seed} {name}")

        socks = {listener.name: listener.sock for listener in self.listeners}
        self._networks = [
            Network(sock, dice(f"{name} network")) for name, sock in socks.items() if isinstance(sock, DatagramSocket)
        ]
        streams = {name: sock for name, sock in socks.items() if isinstance(sock, ListeningSocket)}
        self._datagram_senders: list[DatagramSender] = [
            *(
                PlogSender(f"plog{n}", self._networks[0], dice(f"plog{n}"), (f"10.0.0.{n}", 5_000 + n), messages)
                for n in (1, 2)
            ),
            SyslogSender("syslog1", self._networks[1], dice("syslog1"), ("10.0.1.1", 514), messages),
            GelfSender("gelf1", self._networks[2], dice("gelf1"), ("10.0.5.1", 12_201), messages),
        ]
        self.stream_senders = {
            listener: [
                StreamSender(
                    f"{listener}{n}", streams[listener], dice(f"{listener}{n}"), (f"10.0.2.{n}", 9), messages, *how
                )
                for n, how in enumerate(kinds, 1)
            ]
            for listener, kinds in _CONNECTIONS.items()
        }
        self.forward_senders = [
            ForwardSender(
                f"forward{n}",
                streams["forward"],
                self.machine.clock,
                dice(f"forward{n}"),
                (f"10.0.4.{n}", 9),
                messages,
                lambda payloads: promises.check_acknowledged(self, payloads),
            )
            for n in (1, 2)
        ]

        # As above: only some of the seeds have this sender.
        commands = dice("commands")
        is_present = commands.random() >= NO_COMMANDS_SHARE
        commander = CommandSender("commands", streams["lines"], commands, (COMMANDER, 9), messages)
        self._commanders = [commander] if is_present else []

    @property
    def _connection_senders(self) -> list[StreamSender]:
        return [sender for senders in self.stream_senders.values() for sender in senders]

    @property
    def _senders(self) -> list[_Sender]:
        return [*self._datagram_senders, *self._connection_senders, *self.forward_senders, *self._commanders]

    def simulated_processes(self) -> contextlib.AbstractContextManager[None]:
        """Give the rooms the virtual time, and receivers the sockets of the simulated kernel."""
        return simulated_receivers(self.machine, self._kernel, self._dice, self._let_others_run)

    def _end_processes(self) -> None:
        self.daemon.die()
        for listener in self.listeners:
            listener.die()

    def _inject(self, fault: Fault) -> None:
        dice, amount, now = self._dice, fault.amount, self.machine.clock.monotonic()
        network = dice.choice(self._networks)
        sender = dice.choice(self._connection_senders)
        listener = dice.choice(self.listeners)
        match fault.kind:
            case SocketKind.KILL_RECEIVER:
                self._kill_receiver_at = amount
            case SocketKind.KILL_DAEMON:
                self._kill_daemon_at = amount
            case SocketKind.RELOAD:
                self._reload(listener)
            case SocketKind.STOP_RECEIVER:
                listener.rest_until = self._step + amount
            case SocketKind.STOP_DAEMON:
                self._daemon_rests_until = self._step + amount
            case SocketKind.LOSE:
                network.losses = amount
            case SocketKind.REPEAT:
                network.repeats = amount
            case SocketKind.DELAY:
                network.delays = amount
            case SocketKind.CUT:
                dice.choice(self._networks[:2]).cuts = min(amount, 5)
            case SocketKind.BURST:
                dice.choice(self._datagram_senders).bursts = amount
            case SocketKind.RESET | SocketKind.VANISH:
                peers: list[StreamSender | ForwardSender] = [sender, *self.forward_senders]
                dice.choice(peers).reset(fault.kind is SocketKind.VANISH)
            case SocketKind.DEAF:
                dice.choice(self.forward_senders).reads_from = now + amount
            case SocketKind.REST:
                sender.rest_until = now + amount
            case SocketKind.FLOOD:
                self._flood(amount)
            case SocketKind.NO_DESCRIPTOR:
                if isinstance(listener.sock, ListeningSocket):
                    listener.sock.failing_accepts = min(amount, 5)
            case SocketKind.CLOCK_JUMP:
                self.machine.clock.jump(amount)
            case SocketKind.PAUSE:
                self.machine.clock.advance(amount)
            case SocketKind.POWER_CUT:
                self.machine.files.stop_after = amount
            case SocketKind.POWER_CUT_OF_RECEIVER:
                self._kill_receiver_at, self._cuts_power_with_receiver = amount, True

    def _flood(self, connections: int) -> None:
        listening = self._dice.choice([listener.sock for listener in self.listeners if listener.name in _CONNECTIONS])
        assert isinstance(listening, ListeningSocket)
        for number in range(connections):
            with contextlib.suppress(ConnectionRefusedError):
                listening.connect((f"10.1.0.{number}", 9)).peer_send(FLOOD[: self._dice.randint(0, len(FLOOD))])

    def _reload(self, listener: SocketListener) -> None:
        if listener.is_running:
            self._of_receiver(listener, listener.stop)
            listener.die()
            self.record(listener.name, "reloaded")

    def _stop_faults(self) -> None:
        self._kill_daemon_at = self._kill_receiver_at = -1
        self._cuts_power_with_receiver = False
        self._daemon_rests_until = 0
        self.machine.files.stop_after = None
        for network in self._networks:
            network.settle()
        for listener in self.listeners:
            listener.rest_until = 0
            if isinstance(listener.sock, ListeningSocket):
                listener.sock.failing_accepts = 0
        for sender in self._connection_senders:
            sender.rest_until = 0.0
        for forward in self.forward_senders:
            forward.reads_from = 0.0

    def _let_others_run(self) -> None:
        """Let another process take a step while a receiver sleeps or waits for room."""
        if self._is_nested:
            return
        self._is_nested = True
        try:
            with another_process():
                if self._dice.random() < 0.6:
                    self._step_daemon()
                else:
                    self._send(self._dice.choice(self._senders))
        finally:
            self._is_nested = False
        if self._has_lost_power:
            for listener in self.listeners:
                listener.skip_handlers()
            raise Killed

    def _cut_power(self) -> None:
        """Let the machine lose what is not on its disk, once all processes have ended."""
        self._has_lost_power = self._cuts_power_with_receiver = False
        self.record("machine", "power cut")
        self.promises.cut_power()
        for listener in self.listeners:
            listener.lose_power()
        self.machine.cut_power()

    def _take_step(self) -> None:
        if self._may_lose_power and self._writebacks.random() < WRITEBACK_SHARE:
            self.machine.buffers.write_back()
        self.machine.clock.advance(self._dice.choice([0.0001, 0.001, 0.01, 0.1, 1.0]))
        kind = self._dice.choices(("daemon", "sender", "receiver"), (8, 8, 10))[0]
        if kind == "daemon":
            self._step_daemon()
        elif kind == "sender":
            self._send(self._dice.choice(self._senders))
        else:
            self._step_receiver(self._dice.choice(self.listeners))

    def _send(self, sender: _Sender) -> None:
        if isinstance(sender, StreamSender) and self.machine.clock.monotonic() < sender.rest_until:
            return
        with contextlib.suppress(ConnectionResetError):
            sender.step()

    def _step_receiver(self, listener: SocketListener) -> None:
        if self._step >= listener.rest_until:
            self._of_receiver(listener, listener.step if listener.is_running else listener.start)

    def _of_receiver(self, listener: SocketListener, step: Callable[[], None]) -> None:
        limit = -1
        # A receiver with nothing to read would hardly do anything before it dies.
        if listener.sock.is_readable or not listener.is_running:
            limit, self._kill_receiver_at = self._kill_receiver_at, -1
        try:
            if limit >= 0:
                with killed_after(limit, listener.skip_handlers, SOCKET_ROOMS):
                    step()
                raise Killed
            if self._may_lose_power and self._writebacks.random() < WRITEBACK_SHARE:
                # The kernel writes pages at any time, also within a round.
                calls = self._writebacks.randrange(MAX_CALLS_OF_ROUND)
                with interrupted_after(calls, self.machine.buffers.write_back, ("ingest", "handover")):
                    step()
            else:
                step()
            return
        except Killed:
            self.record(listener.name, "killed")
        # Order: behind the handler, whose error refers to the frames of the dead process and to its files.
        listener.die()
        if self._has_lost_power or self._cuts_power_with_receiver:
            self.daemon.die()
            self._cut_power()

    def _step_daemon(self) -> None:
        if self._step < self._daemon_rests_until:
            return
        if not self.daemon.is_running:
            if self._dice.random() < 0.3 and not self._of_daemon(self.daemon.start):
                self.daemon.die()
            return
        drains = [lambda name=listener.name: self.daemon.drain(name) for listener in self.listeners]
        self._of_daemon(self._dice.choice([self.daemon.commit, *drains, self.daemon.work_if_due]))

    def _of_daemon(self, step: Callable[[], None]) -> bool:
        limit, self._kill_daemon_at = self._kill_daemon_at, -1
        try:
            if limit >= 0:
                with killed_after(limit, self.machine.files.refuse):
                    step()
                raise Killed
            step()
        except Killed:
            self.daemon.die()
            if self.machine.files.stop_after is None:
                self.record("daemon", "killed")
            elif self._is_nested:
                self._has_lost_power = True  # the receiver that waits ends first
            else:
                self._cut_power()
            return False
        except (LogError, OSError) as error:
            self.record("daemon", f"error: {error}")
            return False
        return True

    def _come_to_rest(self, is_last: bool = False) -> None:
        """Stop the faults, let everything be stored, and check it. Raises Broken."""
        self._stop_faults()
        for _ in range(MAX_QUIET_ROUNDS):
            if self._is_at_rest(is_last):
                break
            self._take_round(is_last)
        else:
            waiting = [sender.name for sender in self._senders if not sender.is_idle]
            raise Broken(f"no rest after {MAX_QUIET_ROUNDS} rounds without faults: {waiting} wait")
        self.machine.clock.advance(SETTLE_S)
        for _ in range(MAX_QUIET_ROUNDS):
            self._take_round(False)
            if self._is_at_rest(False):
                break
        promises.check(self)
        self.record("check", "everything is kept so far")

    def _take_round(self, is_sending: bool) -> None:
        self.machine.clock.advance(0.6)
        if not self.daemon.is_running:
            self._of_daemon(self.daemon.start)
        for network in self._networks:
            network.settle()
        # Several at once: each round takes a tick of every receiver.
        for sender in self._senders * 3:
            if is_sending or (isinstance(sender, ForwardSender) and not sender.is_idle):
                self._send(sender)
        for listener in self.listeners:
            self._step_receiver(listener)
            self._of_running_daemon(partial(self.daemon.drain, listener.name))
        self._of_running_daemon(self._commit_all)
        self._of_running_daemon(self.daemon.work_if_due)

    def _of_running_daemon(self, step: Callable[[], None]) -> None:
        # A death that was planned before the faults stopped may come only now.
        if self.daemon.is_running:
            self._of_daemon(step)

    def _commit_all(self) -> None:
        while self.daemon.committers.has_work:
            self.daemon.commit()

    def _is_at_rest(self, is_last: bool) -> bool:
        return (
            self.daemon.is_running
            and self.daemon.is_idle
            and all(listener.is_idle for listener in self.listeners)
            and (not is_last or all(sender.is_idle for sender in self._senders))
        )
