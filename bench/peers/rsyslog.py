"""rsyslog, which takes datagrams."""

from __future__ import annotations

from bench.peers.datagrams import dropped
from bench.peers.peer import Started


class Rsyslog(Started):
    """From UDP to /dev/null."""

    name, program = "rsyslog", "rsyslogd"

    def command(self) -> list[str]:
        config = self.folder / "rsyslog.conf"
        config.write_text(
            f'module(load="imudp" batchSize="128")\ninput(type="imudp" address="127.0.0.1" port="{self.port}" '
            'rcvbufSize="16m")\nmain_queue(queue.size="1000000")\n*.* action(type="omfile" file="/dev/null")\n'
        )
        return [str(self.path()), "-n", "-f", str(config), "-i", str(self.folder / "pid")]

    @property
    def udp(self) -> tuple[str, int]:
        """Where it takes datagrams."""
        return "127.0.0.1", self.port

    def listens(self) -> bool:
        return dropped(self.port) is not None
