"""A program that delivers alarms to a host name that its resolver knows after ten seconds.

It makes namespaces for a resolver of its own. Where the kernel permits none, getaddrinfo takes ten seconds instead.
Prints the seconds until another destination has tried every alarm, and until the delivery has ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
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
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, PRIVATE = 0x1000, 0x44000
"""``PRIVATE`` is MS_REC | MS_PRIVATE: what is mounted stays in the namespace."""
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter_namespaces() -> bool:
    """Become root in a network and mount namespace; report whether the kernel permits it.

    It needs a process with one thread, and neither ``unshare`` nor ``ip``.
    """
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(CLONE_NEWNS | CLONE_NEWNET | (CLONE_NEWUSER if uid else 0)):
        return False
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    return not _LIBC.mount(b"none", b"/", None, PRIVATE, None)


def answer_slowly(server: socket.socket) -> None:
    """Answer each question with 127.0.0.1, ten seconds later."""
    while True:
        question, client = server.recvfrom(512)
        header = question[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, 1, 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + bytes([127, 0, 0, 1])
        timer = threading.Timer(RESOLVES_AFTER_S, server.sendto, [header + question[12:] + record, client])
        timer.daemon = True
        timer.start()


def resolve_by(server: socket.socket) -> None:
    """Let this namespace resolve names by ``server``, which gets port 53 of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    Path("resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30\n")
    if _LIBC.mount(b"resolv.conf", b"/etc/resolv.conf", None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), "the resolver's file cannot be replaced")
    server.bind(("127.0.0.1", 53))
    threading.Thread(target=answer_slowly, args=[server], daemon=True).start()


SLOW_LOOKUPS = f"""
import socket, time
fast = socket.getaddrinfo
def look_up(host, *rest, **options):
    if host == "slow.example":
        time.sleep({RESOLVES_AFTER_S})
        host = "127.0.0.1"
    return fast(host, *rest, **options)
socket.getaddrinfo = look_up
"""


def delay_lookups() -> None:
    """Let getaddrinfo take ten seconds for a name, as with a slow resolver, in the processes that deliver."""
    Path("sitecustomize.py").write_text(SLOW_LOOKUPS)
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])


def main() -> None:
    """Run in an empty folder, as a process of its own."""
    if enter_namespaces():
        resolve_by(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    else:
        delay_lookups()
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
