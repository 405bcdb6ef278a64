"""One host of many: datagrams of its own programs (``/dev/log``), and what relaying costs both sides.

``net.unix.max_dgram_qlen`` limits the datagrams that wait in the socket, so it is a figure, too.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.log import TopicReader
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import cpu, cpu_of_all

SENDERS, PER_SENDER, SIZE = 10, 300_000, 200
RELAYED, LINE = 1_000_000, 256
WAIT_S = 600
LOCAL_SOCKET = """
[[listener]]
name = "local"
protocol = "unix_datagram"
path = "{path}"
codec = "{codec}"
handlers = [{{type = "{handler}"}}]
"""
RELAYING = """
[[listener]]
name = "events"
protocol = "tcp"
port = 0
handlers = [{{type = "log", topic = "events"}}]
[[relay]]
name = "up"
to = "{central}"
host = "edge"
topic = ["events"]
"""
SEND = """
import socket, sys
path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
datagram = b"<13>Nov 26 12:00:00 shop[4711]: ".ljust(size, b"m")
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.connect(path)
for _ in range(count):
    sock.send(datagram)
"""
"""A program that waits while the socket is full, as syslog(3) does."""
SEND_IN_C = Path(__file__).with_name("local_sender.c")
"""The same; where a C compiler is installed, because Python takes more CPU to send than Penstock to receive."""


def measure() -> dict[str, Any]:
    """All figures."""
    qlen = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    figures: dict[str, Any] = {"dev_log_max_dgram_qlen": qlen}
    for codec, handler in (("raw", "discard"), ("syslog", "log")):
        figures |= {f"dev_log_{codec}_{name}": figure for name, figure in _local_socket(codec, handler).items()}
    return figures | _relay()


def _local_socket(codec: str, handler: str) -> dict[str, float]:
    """Rate of ten programs, and the CPU of the programs, of the receiver and of the log."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path, pipe = f"{folder}/log", Pipe(Path(folder))
        pipe.configure(LOCAL_SOCKET.format(path=path, codec=codec, handler=handler))
        pipe.start()
        try:
            sender = _sender(folder)
            command = [*sender, path, str(PER_SENDER), str(SIZE)]
            subprocess.run(command, check=True)  # once, because the pages of the log buffer are new
            pipe.settled(WAIT_S)
            processes = pipe.pid("receiver local"), pipe.pid("log daemon")
            before, began = [cpu(pid) for pid in processes], time.perf_counter()
            sending = resource.getrusage(resource.RUSAGE_CHILDREN)
            senders = [subprocess.Popen(command) for _ in range(SENDERS)]
            if any(sender.wait(WAIT_S) for sender in senders):
                raise RuntimeError("a sender failed")
            seconds = time.perf_counter() - began
            sent = resource.getrusage(resource.RUSAGE_CHILDREN)
            pipe.settled(WAIT_S)
            spent = [cpu(pid) - start for pid, start in zip(processes, before, strict=True)]
            accepted = pipe.counts("local")["accepted"] - PER_SENDER
        finally:
            pipe.stop()
    count = SENDERS * PER_SENDER
    return {
        "accepted_share": accepted / count,
        "senders_are_in_c": sender[0] != sys.executable,
        "messages_per_s": round(count / seconds),
        "sender_cpu_us_per_message": round(
            (sent.ru_utime + sent.ru_stime - sending.ru_utime - sending.ru_stime) / count * 1e6, 2
        ),
        "receiver_cpu_us_per_message": round(spent[0] / count * 1e6, 2),
        "log_cpu_us_per_message": round(spent[1] / count * 1e6, 2),
    }


def _sender(folder: str) -> list[str]:
    """Return the command of a sender, without its arguments."""
    if (compiler := shutil.which("cc")) is None:
        return [sys.executable, "-c", SEND]
    subprocess.run([compiler, "-O2", "-o", f"{folder}/sender", str(SEND_IN_C)], check=True)
    return [f"{folder}/sender"]


def _relay() -> dict[str, float]:
    """CPU of both sides for messages that had waited on the host."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for name in ("central", "host"):
            (Path(folder) / name).mkdir()
        central, host = Pipe(Path(folder) / "central"), Pipe(Path(folder) / "host")
        host.configure(RELAYING.format(central=central.grpc))
        try:
            central.start()
            host.start()
            host.lines(b"first\n", "events")
            wait_until(lambda: _arrived(central) == 1, WAIT_S, "the first message arrives")
            with host.paused("relay up"):
                host.lines((b"m" * (LINE - 1) + b"\n") * RELAYED, "events")
                host.settled(WAIT_S)
                relay, own_log = host.pid("relay up"), host.pid("log daemon")
                assert central.process is not None
                before = cpu(relay), cpu(own_log), cpu_of_all(central.process.pid)
                began = time.perf_counter()
            # Its files are read, because an answer of the central side would be counted as its CPU.
            topic = TopicReader(central.data_dir / "topics" / "events")
            wait_until(lambda: topic.end == RELAYED + 1, WAIT_S, "all messages arrive", pause=0.2)
            seconds = time.perf_counter() - began
            after = cpu(relay), cpu(own_log), cpu_of_all(central.process.pid)
        finally:
            host.stop()
            central.stop()
    names = ("relay_cpu_us_per_message", "relay_host_log_cpu_us_per_message", "relay_central_cpu_us_per_message")
    spent = {
        name: round((end - start) / RELAYED * 1e6, 2) for name, start, end in zip(names, before, after, strict=True)
    }
    return {**spent, "relay_messages_per_s": round(RELAYED / seconds)}


def _arrived(central: Pipe) -> int:
    return sum(topic["end"] for topic in central.balance()["topics"] if topic["topic"] == "events")
