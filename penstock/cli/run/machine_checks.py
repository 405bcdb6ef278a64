"""What the doctor looks at beyond the listeners' sockets: addresses, disk, Java, clock, descriptors.

A check is a function of the settings that gives findings.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.config import ListenerConfig, Settings
from penstock.ingest.sockets import CannotListen, check_address, open_socket
from penstock.java.runtime import NoJava, find_java
from penstock.log.plausible_clock import load_clock_state
from penstock.supervise.reload import running_supervisor

TERMS = 3
"""Of a log buffer."""
SPARE_BYTES = 1 << 30
"""Room on the disk below which there is not much time left to do something about it."""
FILES_NEEDED = 4096
"""Three for each of the 200 topics whose files are kept open, and the connections of senders and readers."""
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "lustre", "afs")
"""File systems whose locks and shared mappings other machines may not see, or see late."""
MOUNTS = Path("/proc/self/mounts")
TIME_ERROR = 5
"""What adjtimex(2) returns for a clock that nobody synchronises (TIME_ERROR)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``advice`` is what to do, empty where all is well."""

    check: str
    state: Literal["good", "warning", "bad"]
    text: str
    advice: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def addresses(settings: Settings) -> Iterator[Finding]:
    """Whether all addresses can be listened on, or a penstock of this data directory does."""
    ours = running_supervisor(settings.data_dir)
    if ours is not None:
        yield Finding("addresses", "good", f"penstock runs on this data directory (process {ours})")
        return
    for listener in settings.listener:
        yield _listener_address(listener)
    for key, address in {**settings.log.addresses, "console.http": settings.console.http}.items():
        yield _address(key, address)


def _listener_address(listener: ListenerConfig) -> Finding:
    check = f"address of listener {listener.name!r}"
    try:
        open_socket(listener).close()
    except CannotListen as error:
        return Finding(check, "bad", _reason(error), _who_has(listener.transport, listener.port))
    return Finding(check, "good", f"{listener.protocol} {listener.host}:{listener.port} can be listened on")


def _address(key: str, address: str) -> Finding:
    try:
        check_address(key, address)
    except CannotListen as error:
        return Finding(f"address {key}", "bad", _reason(error), _who_has("tcp", int(address.rpartition(":")[2])))
    return Finding(f"address {key}", "good", f"{address} can be listened on")


def _reason(error: CannotListen) -> str:
    return str(error).partition(": ")[2]


def _who_has(protocol: str, port: int) -> str:
    kind = "u" if protocol == "udp" else "t"
    return f"see who has it: ss -{kind}lpn 'sport = :{port}'; or give it another port"


def disk(settings: Settings) -> Iterator[Finding]:
    """Whether the data directory can be written, has room, and lies on a disk of this machine."""
    folder = _nearest(settings.data_dir)
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = f"sudo chown {os.getuid()}:{os.getgid()} {folder}; or another data_dir"
        yield Finding("data_dir", "bad", f"{folder} cannot be written by this user", advice)
    else:
        yield Finding("data_dir", "good", f"{settings.data_dir} can be written")
    yield _room(settings, folder)
    kind = file_system(folder)
    if kind in NETWORK:
        text = f"{folder} is on a network file system ({kind}): locks and mapped files may not hold"
        yield Finding("file system", "bad", text, "put data_dir on a local disk: -o data_dir=/var/lib/penstock")
    else:
        yield Finding("file system", "good", kind or "local")


def _room(settings: Settings, folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    made = sum(path.stat().st_blocks * 512 for path in settings.buffers.glob("*.logbuffer"))
    needed = max(TERMS * settings.buffer.term_length * len(settings.listener) - made, 0)
    text = f"{free:,} bytes free on {folder}; log buffers take {needed:,} more"
    if free < needed:
        advice = f"make room (du -xh --max-depth=2 {folder} | sort -h), or a smaller buffer: -o buffer.term_length=4MiB"
        return Finding("disk", "bad", text, advice)
    if free - needed < SPARE_BYTES:
        advice = f"make room (du -xh --max-depth=2 {folder} | sort -h), or set log.topic_defaults.retain_bytes"
        return Finding("disk", "warning", text, advice)
    return Finding("disk", "good", text)


def _nearest(path: Path) -> Path:
    """The folder, or the one that it would be made in."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """The kind of file system that a folder is on; empty where nobody says."""
    if not mounts.exists():
        return ""
    kinds = {}
    for line in os.fsdecode(mounts.read_bytes()).splitlines():
        _, at, kind, *_ = [*line.split(" "), "", ""]
        kinds[Path(at.replace("\\040", " "))] = kind
    real = folder.resolve()
    return next((kinds[path] for path in (real, *real.parents) if path in kinds), "")


def java(_: Settings) -> Iterator[Finding]:
    """Whether there is a Java for Spark."""
    try:
        found = find_java()
    except NoJava as error:
        advice = (
            "sudo apt install openjdk-21-jre-headless; or: pip install 'penstock-pipe[java]'; "
            "or: penstock up --no-spark"
        )
        yield Finding("Java", "bad", str(error).partition(":")[0], advice)
    else:
        yield Finding("Java", "good", f"Java {found.version} in {found.home}")


def clock(_: Settings) -> Iterator[Finding]:
    """Whether somebody keeps the clock right: buckets of the balance, retention and watermarks go by it."""
    state = clock_state()
    if state is None:
        yield Finding("clock", "warning", "the kernel does not say whether it is synchronised", "timedatectl status")
    elif state == TIME_ERROR:
        text = "nobody synchronises it: minutes of the balance may not be those of the senders"
        yield Finding("clock", "warning", text, "sudo timedatectl set-ntp true; or: sudo apt install chrony")
    else:
        yield Finding("clock", "good", "synchronised")


def clock_jump(settings: Settings) -> Iterator[Finding]:
    """Whether the clock says what it should by what the log daemon kept."""
    state = load_clock_state(settings.topics)
    text = state.text()
    if text:
        what, _, advice = text.rpartition(": ")
        yield Finding("clock", "bad", what, advice)


def clock_state() -> int | None:
    """What adjtimex(2) answers; None where it cannot be asked."""
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if adjtimex is None:
        return None
    state = int(adjtimex(ctypes.create_string_buffer(256)))  # a struct timex of zeros: nothing is set
    return state if state >= 0 else None


def descriptors(_: Settings) -> Iterator[Finding]:
    """Whether the log daemon may open as many files as it may need."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= FILES_NEEDED:
        shown = "any number of" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield Finding("file descriptors", "good", f"{shown} files may be open at once")
        return
    text = f"only {hard:,} files may be open at once: connections and topics take {FILES_NEEDED:,}"
    advice = f"ulimit -Hn {FILES_NEEDED} before the start (as root), or LimitNOFILE=65536 in the systemd unit"
    yield Finding("file descriptors", "warning", text, advice)


MACHINE: Sequence[Check] = (addresses, disk, java, clock, clock_jump, descriptors)
