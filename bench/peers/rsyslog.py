"""rsyslog, which takes datagrams and syncs its file, as Penstock syncs its log."""

from __future__ import annotations

import json
from typing import NamedTuple

from bench.peers.datagrams import dropped
from bench.peers.peer import Started
from bench.peers.penstock import SETTLE_S
from penstock.testing.pipe import wait_until

BATCH = 4096
"""Messages of one batch, and so of one sync; rsyslog's default of 1,024 costs it a third of its rate."""
BUFFER = "1m"
"""Bytes of one write, and so of one sync: omfile syncs each write. Its default of 4 KiB costs three times the CPU."""
CONFIG = """
module(load="impstats" interval="1" format="json" resetCounters="off" log.syslog="off" log.file="{folder}/statistics")
module(load="imudp" batchSize="128")
input(type="imudp" address="127.0.0.1" port="{port}" rcvbufSize="16m")
main_queue(queue.size="1000000" queue.dequeueBatchSize="{batch}")
*.* action(type="omfile" file="{folder}/messages" sync="on" ioBufferSize="{buffer}")
"""
PARSED_CONFIG = """
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="{port}")
main_queue(queue.size="1000000" queue.dequeueBatchSize="{batch}")
template(name="fields" type="list" option.jsonf="on") {{
  property(outname="time" name="timereported" dateFormat="rfc3339" format="jsonf")
  property(outname="severity" name="syslogseverity" format="jsonf")
  property(outname="facility" name="syslogfacility" format="jsonf")
  property(outname="host" name="hostname" format="jsonf")
  property(outname="app" name="app-name" format="jsonf")
  property(outname="pid" name="procid" format="jsonf")
  property(outname="id" name="msgid" format="jsonf")
  property(outname="data" name="structured-data" format="jsonf")
  property(outname="message" name="msg" format="jsonf")
}}
if $inputname == "imtcp" then
  action(type="omfile" file="{folder}/messages" template="fields" sync="on" ioBufferSize="{buffer}")
"""
"""Each line as JSON with the fields of RFC 5424; Penstock reads the parameters one by one, too."""


class Rsyslog(Started):
    """From UDP to a file that is synced after each batch."""

    name, program = "rsyslog", "rsyslogd"
    config = CONFIG

    def command(self) -> list[str]:
        config = self.folder / "rsyslog.conf"
        config.write_text(self.config.format(folder=self.folder, port=self.port, batch=BATCH, buffer=BUFFER))
        return [str(self.path()), "-n", "-f", str(config), "-i", str(self.folder / "pid")]

    @property
    def udp(self) -> tuple[str, int]:
        """Return the address at which it takes datagrams."""
        return "127.0.0.1", self.port

    def listens(self) -> bool:
        return dropped(self.port) is not None

    def settle(self) -> None:
        wait_until(lambda: not self._queues().waiting, SETTLE_S, "rsyslog's queue is empty")

    def discarded(self) -> int:
        """Return the messages that its queues have discarded so far, as of the last second."""
        return self._queues().discarded

    def _queues(self) -> Queues:
        statistics = self.folder / "statistics"
        return queues(statistics.read_text().splitlines() if statistics.exists() else [])


class RsyslogParsed(Rsyslog):
    """From TCP to a synced file of JSON, each line parsed."""

    name, config = "rsyslog_tcp", PARSED_CONFIG

    @property
    def tcp(self) -> tuple[str, int]:
        """Return the address at which it takes lines."""
        return "127.0.0.1", self.port

    def listens(self) -> bool:
        return Started.listens(self)

    def stored(self, expected: int = 0) -> int:
        """Return the lines in its file, once there are ``expected`` ones."""
        file, counted, read = self.folder / "messages", 0, 0

        def count() -> int:
            nonlocal counted, read
            if file.exists():
                with file.open("rb") as opened:
                    opened.seek(read)
                    while part := opened.read(1 << 20):
                        counted, read = counted + part.count(b"\n"), read + len(part)
            return counted

        wait_until(lambda: count() >= expected, SETTLE_S, "all lines are written")
        return counted


class Queues(NamedTuple):
    """Messages in rsyslog's queues, and those that they have discarded."""

    waiting: int
    discarded: int


def queues(lines: list[str]) -> Queues:
    """Return the totals of all queues from the lines of impstats; the last line of each queue counts."""
    newest: dict[str, Queues] = {}
    for line in lines:
        if '"core.queue"' in line and line.rstrip().endswith("}"):
            counters = json.loads(line[line.index("{") :])
            discarded = int(counters["discarded.full"]) + int(counters["discarded.nf"])
            newest[counters["name"]] = Queues(int(counters["size"]), discarded)
    return Queues(sum(q.waiting for q in newest.values()), sum(q.discarded for q in newest.values()))
