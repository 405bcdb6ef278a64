"""``penstock serve``, as it is measured beside a peer: with no more than what the peer does, too."""

from __future__ import annotations

from pathlib import Path

from bench.peers.peer import Peer
from penstock.testing.pipe import Pipe, wait_until

SETTLE_S = 60.0
LOG_ALONE = "listener = []\n"
RECEIVER = """
[[listener]]
name = "udp"
protocol = "udp"
port = 0
so_rcvbuf = "16MiB"
codec = "{codec}"
"""


class Penstock(Peer):
    """Supervisor and log."""

    name = "penstock"
    listeners = LOG_ALONE
    appends_with, reads_with = ("append_load",), ("read_load",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._pipe = Pipe(self.folder)
        self._pipe.configure(self.listeners)
        self._pipe.start()
        self.address = self._pipe.grpc

    @property
    def pid(self) -> int:
        assert self._pipe.process
        return self._pipe.process.pid

    def ready(self) -> bool:
        return self._pipe.answers()

    def stop(self) -> None:
        self._pipe.stop()


class PenstockReceiving(Penstock):
    """The same with a receiver, which writes into the synced log."""

    listeners = RECEIVER.format(codec="plog")

    def settle(self) -> None:
        self._pipe.settled(SETTLE_S)

    def discarded(self) -> int:
        counts = self._pipe.counts("udp")
        return sum(count for name, count in counts.items() if name.startswith(("policy_drop", "handler_failed")))

    @property
    def udp(self) -> tuple[str, int]:
        """Where it takes datagrams."""
        return self._pipe.address("udp")


class PenstockSyslog(PenstockReceiving):
    """The same with each message parsed as syslog."""

    name = "penstock_syslog"
    listeners = RECEIVER.format(codec="syslog")


class PenstockSyslogTcp(Penstock):
    """With a receiver of lines that parses each as syslog; senders wait while the log is behind."""

    name = "penstock_syslog_tcp"
    listeners = """
[[listener]]
name = "lines"
protocol = "tcp"
port = 0
codec = "syslog"
handlers = [{ type = "log", overflow = "block" }]
"""

    def stored(self, expected: int = 0) -> int:
        """Return the lines in the log, once there are ``expected`` ones."""
        wait_until(lambda: self._pipe.counts("lines")["accepted"] >= expected, SETTLE_S, "all lines are accepted")
        self._pipe.settled(SETTLE_S)
        return self._pipe.counts("lines")["accepted"]

    @property
    def tcp(self) -> tuple[str, int]:
        """Where it takes lines."""
        return self._pipe.address("lines")
