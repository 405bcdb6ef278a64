"""Record the bytes of real senders in ``vectors/syslog_senders.json``.

    python -m tests.wire.record_syslog_senders NODE

``NODE``: a folder in which ``npm install winston winston-syslog`` was run. The daemons come from
``tests.syslog_daemons``; ``logger``, ``node`` and ``java`` must be installed. Bytes are kept as texts in Latin-1.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.java.jars import Library, fetch
from tests import syslog_daemons as daemons

OUT = Path(__file__).parent / "vectors" / "syslog_senders.json"
TEXTS = ("first message", "second: with a colon", "third one, grüße")
TRACE = "Traceback (most recent call last):\n  File x\nValueError: no"
PATIENCE = 15.0

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
LOGBACK = (
    Library("ch.qos.logback", "logback-classic", "1.5.18", alone=True),
    Library("ch.qos.logback", "logback-core", "1.5.18", alone=True),
    Library("org.slf4j", "slf4j-api", "2.0.17", alone=True),
)
LOGBACK_XML = """<configuration>
  <appender name="S" class="ch.qos.logback.classic.net.SyslogAppender">
    <syslogHost>127.0.0.1</syslogHost><port>%s</port><facility>USER</facility>
    <suffixPattern>shop[77]: %%msg</suffixPattern>
  </appender>
  <root level="INFO"><appender-ref ref="S"/></root>
</configuration>"""
SAY_JAVA = r"""public class Say {
    public static void main(String[] arguments) throws Exception {
        org.slf4j.Logger log = org.slf4j.LoggerFactory.getLogger("shop");
        String[] texts = {"first message", "second: with a colon", "third one, gr\u00fc\u00dfe"};
        for (String text : texts) log.info(text);
        Thread.sleep(300);
    }
}"""
WINSTON = """
const winston = require('winston'); require('winston-syslog');
const to = new winston.transports.Syslog({
  host: '127.0.0.1', port: %(port)s, protocol: '%(protocol)s4', app_name: 'shop', pid: 77, localhost: 'vm',
  facility: 'user', type: '%(form)s', eol: '%(end)s', format: winston.format.printf(i => i.message)});
const log = winston.createLogger({levels: winston.config.syslog.levels, transports: [to]});
for (const text of ['first message', 'second: with a colon', 'third one, grüße']) log.info(text);
setTimeout(() => process.exit(0), 700);
"""


class Recorder:
    """Takes what comes to a port of its own."""

    def __init__(self, protocol: str) -> None:
        self.protocol, self.pieces = protocol, list[bytes]()
        self.received = time.monotonic()
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
                self.received = time.monotonic()

    def wait_for_pieces(self, enough: Callable[[bytes], bool]) -> list[str]:
        """Return the datagrams, or the bytes of the connections, once ``enough`` has arrived and no more follows."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if enough(b"".join(self.pieces)) and time.monotonic() - self.received > 0.5:
                break
            time.sleep(0.05)
        pieces = self.pieces if self.protocol == "udp" else [b"".join(self.pieces)]
        return [piece.decode("latin-1") for piece in pieces]


def has_all_texts(data: bytes) -> bool:
    return all(text.encode() in data for text in TEXTS)


def rsyslog(kind: str) -> dict[str, Any]:
    protocol, options = RSYSLOG_KINDS[kind]
    recorder = Recorder(protocol)
    long = tuple(f"{text} {'x' * 200}" for text in TEXTS) if "compressed" in kind else TEXTS
    with tempfile.TemporaryDirectory() as name, daemons.rsyslog(Path(name), [action(recorder.port, options)]) as log:
        daemons.log_texts(log, long)
        enough = (lambda _: len(recorder.pieces) == len(TEXTS)) if "compressed" in kind else has_all_texts
        return recorded(kind, recorder, enough)


def action(port: int, options: str) -> str:
    return f'action(type="omfwd" target="127.0.0.1" port="{port}" {options})'


def syslog_ng(kind: str) -> dict[str, Any]:
    protocol, driver = SYSLOG_NG_KINDS[kind]
    recorder = Recorder(protocol)
    drivers = [driver.format(port=recorder.port, iso=ISO)]
    with tempfile.TemporaryDirectory() as name, daemons.syslog_ng(Path(name), drivers) as log:
        daemons.log_texts(log, TEXTS)
        return recorded(kind, recorder, has_all_texts)


def winston(node: Path, protocol: str, form: str) -> dict[str, Any]:
    recorder = Recorder(protocol)
    end = "" if protocol == "udp" else r"\n"
    script = WINSTON % {"port": recorder.port, "protocol": protocol, "form": form, "end": end}
    # Its RFC 5424 has UTC with the offset of the zone behind it, so it is right in UTC alone.
    zone = os.environ | ({"TZ": "UTC"} if form == "5424" else {})
    subprocess.run(["node", "-e", script], cwd=node, check=True, env=zone)
    return recorded(f"winston {protocol}, {form}", recorder, has_all_texts)


def logback() -> dict[str, Any]:
    recorder = Recorder("udp")
    jars = [str(jar) for library in LOGBACK for jar in fetch(library)]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "logback.xml").write_text(LOGBACK_XML % recorder.port)
        (Path(name) / "Say.java").write_text(SAY_JAVA)
        configured = f"-Dlogback.configurationFile={name}/logback.xml"
        subprocess.run(["java", "-cp", ":".join(jars), configured, f"{name}/Say.java"], check=True)
    return recorded("logback udp", recorder, has_all_texts)


def logger(kind: str) -> dict[str, Any]:
    protocol, options = LOGGER_KINDS[kind]
    recorder = Recorder(protocol)
    for text in TEXTS:
        command = ["logger", "--server", "127.0.0.1", "--port", str(recorder.port), f"--{protocol}", *options]
        subprocess.run([*command, "--tag", "shop", "--id=77", "--priority", "user.info", text], check=True)
    return recorded(kind, recorder, has_all_texts)


def recorded(kind: str, recorder: Recorder, enough: Callable[[bytes], bool]) -> dict[str, Any]:
    pieces = recorder.wait_for_pieces(enough)
    print(kind, pieces)
    return {"sender": kind, "protocol": recorder.protocol, "received": int(time.time()), "pieces": pieces}


def main(node: Path) -> None:
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    recorded = [rsyslog(kind) for kind in RSYSLOG_KINDS]
    recorded += [syslog_ng(kind) for kind in SYSLOG_NG_KINDS]
    recorded += [logger(kind) for kind in LOGGER_KINDS]
    recorded.append(logback())
    recorded += [winston(node, protocol, form) for protocol in ("udp", "tcp") for form in ("BSD", "5424")]
    OUT.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
