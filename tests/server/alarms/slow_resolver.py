"""A program for namespaces of its own: delivers alarms to a host name that its resolver knows after ten seconds.

Prints the seconds until another destination has tried every alarm, and until the delivery has ended.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from penstock.config.keys.alarms import AlarmsConfig
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.testing.pipe import wait_until

RESOLVES_AFTER_S = 10.0
ALARM = {
    "alarm": "A",
    "state": "begins",
    "severity": "critical",
    "summary": "7 lost",
    "value": 7,
    "advice": "",
    "at": "2026-11-22T01:15:20+00:00",
    "host": "web-1",
    "receipt": "7 lost of 9",
}
ALARMS = 20
"""More than asyncio's default pool has threads."""


def answer_slowly(server: socket.socket) -> None:
    """Answer each question with 127.0.0.1, ten seconds later."""
    while True:
        question, client = server.recvfrom(512)
        header = question[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, 1, 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + bytes([127, 0, 0, 1])
        timer = threading.Timer(RESOLVES_AFTER_S, server.sendto, [header + question[12:] + record, client])
        timer.daemon = True
        timer.start()


def main() -> None:
    """Run in a network and mount namespace, as root of it, in an empty folder."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30\n")
    subprocess.run(["mount", "--bind", "resolv.conf", "/etc/resolv.conf"], check=True)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    threading.Thread(target=answer_slowly, args=[server], daemon=True).start()

    # Nothing listens on port 9: an alarm for Slack fails as soon as its name is resolved, from the file of hosts.
    config = AlarmsConfig(webhook="http://slow.example:9/", slack="http://localhost:9/", timeout=60, retry_for=0)
    delivery = AlarmDelivery(config)
    begin = time.monotonic()
    delivery.start()
    for number in range(ALARMS):
        delivery.enqueue({**ALARM, "labels": {"listener": str(number)}})
    wait_until(lambda: delivery.counts["failed"] == ALARMS, 60)
    others = time.monotonic() - begin
    begin = time.monotonic()
    delivery.stop()
    delivery.join()
    json.dump({"others": others, "stop": time.monotonic() - begin}, sys.stdout)


if __name__ == "__main__":
    main()
