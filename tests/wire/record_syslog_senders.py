"""Records what real senders put on the wire, into ``vectors/syslog_senders.json``.

    python -m tests.wire.record_syslog_senders ROOT

``ROOT``: a folder that the packages rsyslog and syslog-ng-core, with what they need, are unpacked in (``apt-get
download`` and ``dpkg -x``); ``logger`` is the machine's own. Bytes are kept as texts in Latin-1.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "vectors" / "syslog_senders.json"
TEXTS = ("first message", "second: with a colon", "third one, grüße")
TRACE = "Traceback (most recent call last):\n  File x\nValueError: no"
PATIENCE = 15.0

RSYSLOG = """
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log.sock" CreatePath="on" UseSysTimeStamp="off")
template(name="withlf" type="string" string="<%PRI%>%TIMESTAMP:::date-rfc3339% %HOSTNAME% %syslogtag%%msg%\\n")
action(type="omfwd" target="127.0.0.1" port="{port}" {options})
"""
RSYSLOG_KINDS = {
    "rsyslog udp, traditional": ("udp", 'protocol="udp" template="RSYSLOG_TraditionalForwardFormat"'),
    "rsyslog udp, default": ("udp", 'protocol="udp"'),
    "rsyslog udp, RFC 5424": ("udp", 'protocol="udp" template="RSYSLOG_SyslogProtocol23Format"'),
    "rsyslog udp, a template that ends with LF": ("udp", 'protocol="udp" template="withlf"'),
    "rsyslog udp, compressed": ("udp", 'protocol="udp" ziplevel="9"'),
    "rsyslog tcp": ("tcp", 'protocol="tcp"'),
    "rsyslog tcp, octet-counted": ("tcp", 'protocol="tcp" TCP_Framing="octet-counted"'),
    "rsyslog tcp, octet-counted, a template that ends with LF": (
        "tcp",
        'protocol="tcp" TCP_Framing="octet-counted" template="withlf"',
    ),
}
SYSLOG_NG = """@version: 3.38
options {{ keep-hostname(yes); flush-lines(1); }};
source s {{ unix-dgram("{folder}/log.sock"); }};
destination d {{ {driver} }};
log {{ source(s); destination(d); }};
"""
ISO = r"<$PRI>$ISODATE $HOST $MSGHDR$MSG\n"
SYSLOG_NG_KINDS = {
    "syslog-ng network udp": ("udp", 'network("127.0.0.1" port({port}) transport("udp"));'),
    "syslog-ng network udp, ISO": ("udp", 'network("127.0.0.1" port({port}) transport("udp") template("{iso}"));'),
    "syslog-ng network tcp": ("tcp", 'network("127.0.0.1" port({port}) transport("tcp"));'),
    "syslog-ng syslog udp": ("udp", 'syslog("127.0.0.1" port({port}) transport("udp"));'),
    "syslog-ng syslog tcp": ("tcp", 'syslog("127.0.0.1" port({port}) transport("tcp"));'),
}
LOGGER_KINDS = {
    "logger udp": ("udp", []),
    "logger udp, RFC 3164": ("udp", ["--rfc3164"]),
    "logger tcp": ("tcp", []),
    "logger tcp, RFC 3164": ("tcp", ["--rfc3164"]),
    "logger tcp, octet-counted": ("tcp", ["--octet-count"]),
}


class Recorder:
    """Takes what comes to a port of its own."""

    def __init__(self, protocol: str) -> None:
        self.protocol, self.pieces = protocol, list[bytes]()
        self.heard = time.monotonic()
        kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
        self._sock = socket.socket(socket.AF_INET, kind)
        self._sock.bind(("127.0.0.1", 0))
        if protocol == "tcp":
            self._sock.listen()
        self.port = self._sock.getsockname()[1]
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            source = self._sock
            if self.protocol == "tcp":
                source, _ = self._sock.accept()
            while data := source.recv(65_536):
                self.pieces.append(data)
                self.heard = time.monotonic()

    def take(self, enough: Callable[[bytes], bool]) -> list[str]:
        """The datagrams, or the bytes of the connections, once ``enough`` has come and no more follows."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if enough(b"".join(self.pieces)) and time.monotonic() - self.heard > 0.5:
                break
            time.sleep(0.05)
        pieces = self.pieces if self.protocol == "udp" else [b"".join(self.pieces)]
        return [piece.decode("latin-1") for piece in pieces]


@contextmanager
def running(command: list[str], root: Path, ready: Path) -> Iterator[None]:
    """A daemon of the unpacked packages, once the socket that it reads is there."""
    paths = (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu", root / "usr/lib/syslog-ng")
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, paths))}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def say(path: Path, texts: tuple[str, ...]) -> None:
    """Log ``texts`` as a program of this machine does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for text in texts:
            stamp = time.strftime("%b %e %H:%M:%S")
            sock.sendto(f"<14>{stamp} shop[77]: {text}".encode(), str(path))
            time.sleep(0.1)


def all_said(data: bytes) -> bool:
    return all(text.encode() in data for text in TEXTS)


def rsyslog(root: Path, kind: str) -> dict[str, Any]:
    protocol, options = RSYSLOG_KINDS[kind]
    recorder = Recorder(protocol)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conf").write_text(RSYSLOG.format(folder=folder, port=recorder.port, options=options))
        modules = root / "usr/lib/x86_64-linux-gnu/rsyslog"
        command = [
            str(root / "usr/sbin/rsyslogd"),
            "-n",
            "-f",
            f"{folder}/conf",
            "-i",
            f"{folder}/pid",
            "-M",
            str(modules),
        ]
        long = tuple(f"{text} {'x' * 200}" for text in TEXTS) if "compressed" in kind else TEXTS
        with running(command, root, folder / "log.sock"):
            say(folder / "log.sock", long)
            enough = (lambda _: len(recorder.pieces) == len(TEXTS)) if "compressed" in kind else all_said
            return recorded(kind, recorder, enough)


def syslog_ng(root: Path, kind: str) -> dict[str, Any]:
    protocol, driver = SYSLOG_NG_KINDS[kind]
    recorder = Recorder(protocol)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = SYSLOG_NG.format(folder=folder, driver=driver.format(port=recorder.port, iso=ISO))
        (folder / "conf").write_text(text)
        command = [
            str(root / "usr/sbin/syslog-ng"),
            "-F",
            "--no-caps",
            "-f",
            f"{folder}/conf",
            "-R",
            f"{folder}/persist",
        ]
        command += ["-p", f"{folder}/pid", "-c", f"{folder}/ctl", f"--module-path={root}/usr/lib/syslog-ng/3.38"]
        with running(command, root, folder / "log.sock"):
            say(folder / "log.sock", TEXTS)
            return recorded(kind, recorder, all_said)


def logger(kind: str) -> dict[str, Any]:
    protocol, options = LOGGER_KINDS[kind]
    recorder = Recorder(protocol)
    for text in TEXTS:
        command = ["logger", "--server", "127.0.0.1", "--port", str(recorder.port), f"--{protocol}", *options]
        subprocess.run([*command, "--tag", "shop", "--id=77", "--priority", "user.info", text], check=True)
    return recorded(kind, recorder, all_said)


def recorded(kind: str, recorder: Recorder, enough: Callable[[bytes], bool]) -> dict[str, Any]:
    pieces = recorder.take(enough)
    print(kind, pieces)
    return {"sender": kind, "protocol": recorder.protocol, "received": int(time.time()), "pieces": pieces}


def main(root: Path) -> None:
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    found = [rsyslog(root, kind) for kind in RSYSLOG_KINDS]
    found += [syslog_ng(root, kind) for kind in SYSLOG_NG_KINDS]
    found += [logger(kind) for kind in LOGGER_KINDS]
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
