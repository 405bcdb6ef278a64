"""The real rsyslog and syslog-ng, from Debian packages."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.testing import wait_until
from tests.debian_packages import library_environment, unpacked

PACKAGES = ("rsyslog", "rsyslog-openssl", "syslog-ng-core")
HOST = "web-1"
PATIENCE = 15.0
RSYSLOG = """
global(localHostname="{host}" {tls})
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{log}" CreatePath="on" UseSysTimeStamp="off")
template(name="withlf" type="string" string="<%PRI%>%TIMESTAMP:::date-rfc3339% %HOSTNAME% %syslogtag%%msg%\\n")
{actions}
"""
SYSLOG_NG = """@version: {version}
options {{ keep-hostname(yes); flush-lines(1); }};
source s {{ unix-dgram("{log}" host-override("{host}")); }};
{destinations}
"""


@contextmanager
def rsyslog(
    folder: Path, actions: Sequence[str], ca: Path | None = None, identity: Sequence[Path] = ()
) -> Iterator[Path]:
    """A running rsyslog that does ``actions`` with what is written to the socket that it gives.

    ``ca``: whom it trusts by TLS; ``own``: its certificate and key.
    """
    log, config, root = folder / "rsyslog.sock", folder / "rsyslog.conf", unpacked("syslog-daemons", PACKAGES)
    names = ("CAFile", "CertFile", "KeyFile")
    tls = " ".join(f'defaultNetstreamDriver{n}="{p}"' for n, p in zip(names, (ca, *identity), strict=False) if p)
    config.write_text(RSYSLOG.format(host=HOST, log=log, tls=tls, actions="\n".join(actions)))
    modules = next(root.glob("usr/lib/*/rsyslog"))
    command = [root / "usr/sbin/rsyslogd", "-n", "-f", config, "-i", folder / "rsyslog.pid", "-M", modules]
    with _running(root, command, log):
        yield log


@contextmanager
def syslog_ng(folder: Path, drivers: Sequence[str]) -> Iterator[Path]:
    """Run a syslog-ng that sends the input of the yielded socket to ``drivers``."""
    log, config, root = folder / "syslog-ng.sock", folder / "syslog-ng.conf", unpacked("syslog-daemons", PACKAGES)
    modules = next(root.glob("usr/lib/syslog-ng/[0-9]*"))
    there = "".join(f"destination d{n} {{ {driver} }};\n" for n, driver in enumerate(drivers))
    there += "".join(f"log {{ source(s); destination(d{n}); }};\n" for n in range(len(drivers)))
    config.write_text(SYSLOG_NG.format(version=modules.name, host=HOST, log=log, destinations=there))
    files = ["-R", folder / "persist", "-p", folder / "syslog-ng.pid", "-c", folder / "syslog-ng.ctl"]
    command = [root / "usr/sbin/syslog-ng", "-F", "--no-caps", "-f", config, *files, f"--module-path={modules}"]
    with _running(root, command, log):
        yield log


@contextmanager
def _running(root: Path, command: Sequence[Path | str], ready: Path) -> Iterator[None]:
    """Run a daemon of the unpacked packages, and wait for its input socket."""
    process = subprocess.Popen(list(map(str, command)), env=library_environment(root), stdout=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, PATIENCE, f"{ready} exists")
        yield
    finally:
        process.terminate()
        process.wait()


def log_texts(log: Path, texts: Sequence[str]) -> list[float]:
    """Log ``texts`` like a program of this machine; return their times in seconds since the epoch."""
    times = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for text in texts:
            now = time.time()
            stamp = time.strftime("%b %e %H:%M:%S", time.localtime(now))
            sock.sendto(f"<14>{stamp} shop[77]: {text}".encode(), str(log))
            times.append(int(now))
            time.sleep(0.1)
    return times
