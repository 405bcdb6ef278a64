"""Checks of ``penstock doctor`` beyond receive buffers: addresses, disk, Java, memory, clock, file descriptors.

A check is a function of the settings that yields findings.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.config import ListenerConfig, Settings
from penstock.files.disk_space import local_disks
from penstock.ingest.sockets import CannotListen, check_address, check_listener
from penstock.java.runtime import NoJava, find_java
from penstock.log.plausible_clock import load_clock_state
from penstock.supervise.instances import running_supervisor

TERMS = 3
"""Terms of a log buffer, each ``buffer.term_length`` long."""
SPARE_BYTES = 1 << 30
"""Free space below which the disk may be full before anybody reacts."""
FILES_NEEDED = 4096
"""Four for each of 256 topics with open files (a quarter of all), and the connections of senders and readers."""
MEMORY_NEEDED = 2_500_000_000
"""Bytes of the pipeline at full rate and of all other processes, see docs/sizing.md."""
CGROUP_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of a control group's limit: version 2, version 1."""
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
    "fuse.glusterfs",
    "lustre",
    "afs",
)
"""File systems whose locks and shared mappings are not coherent between machines."""
MOUNTS = Path("/proc/self/mounts")
TIME_ERROR = 5
"""Return value of adjtimex(2) for a clock that is not synchronised."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check; ``advice`` is the remedy, empty if all is well."""

    check: str
    state: Literal["good", "warning", "bad"]
    text: str
    advice: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def addresses(settings: Settings) -> Iterator[Finding]:
    """Check that all addresses are free, or that a penstock of this data directory uses them."""
    running_pid = running_supervisor(settings.data_dir)
    if running_pid is not None:
        yield Finding("addresses", "good", f"penstock runs on this data directory (process {running_pid})")
        return
    for listener in settings.listener:
        yield _listener_address(listener)
    addresses = {**settings.log.addresses, **settings.sql.addresses, "console.http": settings.console.http}
    for key, address in addresses.items():
        yield _address(key, address)


def _listener_address(listener: ListenerConfig) -> Finding:
    check = f"address of listener {listener.name!r}"
    try:
        check_listener(listener)
    except CannotListen as error:
        return Finding(check, "bad", _reason(error), _listener_advice(listener))
    return Finding(check, "good", f"{listener.protocol} {listener.address_text} can be listened on")


def _address(key: str, address: str) -> Finding:
    try:
        check_address(key, address)
    except CannotListen as error:
        return Finding(f"address {key}", "bad", _reason(error), _port_advice("tcp", int(address.rpartition(":")[2])))
    return Finding(f"address {key}", "good", f"{address} can be listened on")


def _reason(error: CannotListen) -> str:
    return str(error).partition(": ")[2]


def _listener_advice(listener: ListenerConfig) -> str:
    if listener.is_local:
        return f"find the process that uses it: ss -xlp src {listener.path}; or configure another path"
    return _port_advice(listener.transport, listener.port)


def _port_advice(protocol: str, port: int) -> str:
    kind = "u" if protocol == "udp" else "t"
    return f"find the process that uses it: ss -{kind}lpn 'sport = :{port}'; or configure another port"


def disk(settings: Settings) -> Iterator[Finding]:
    """Check that the data directory is writable, on a local disk, and has free space."""
    folder = _nearest_folder(settings.data_dir)
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = f"sudo chown {os.getuid()}:{os.getgid()} {folder}; or configure another data_dir"
        yield Finding("data_dir", "bad", f"{folder} cannot be written by this user", advice)
    else:
        yield Finding("data_dir", "good", f"{settings.data_dir} can be written")
    yield _check_space(settings, folder)
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        text = f"{folder} is on a network file system ({kind}): locks and mapped files may not hold"
        yield Finding("file system", "bad", text, "put data_dir on a local disk: -o data_dir=/var/lib/penstock")
    else:
        yield Finding("file system", "good", kind or "local")


def _check_space(settings: Settings, folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    allocated = sum(path.stat().st_blocks * 512 for path in settings.buffers.glob("*.logbuffer"))
    missing = max(TERMS * settings.buffer.term_length * len(settings.listener) - allocated, 0)
    text = f"{free:,} bytes free on {folder}; log buffers take {missing:,} more"
    if free < missing:
        advice = f"free space (du -xh --max-depth=2 {folder} | sort -h), or use: -o buffer.term_length=4MiB"
        return Finding("disk", "bad", text, advice)
    limit = max((disk.limit for disk in local_disks([folder], *settings.alarms.disk_limits)), default=0)
    if free - missing < max(limit, SPARE_BYTES):
        advice = (
            f"free space (du -xh --max-depth=2 {folder} | sort -h), or lower log.topic_defaults.retain_bytes, "
            "stale_after and pipeline.retention"
        )
        return Finding("disk", "warning", text, advice)
    return Finding("disk", "good", text)


def _nearest_folder(path: Path) -> Path:
    """Return the folder, or the existing folder in which it would be created."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that holds a folder; empty if unknown."""
    if not mounts.exists():
        return ""
    kinds = {}
    for line in os.fsdecode(mounts.read_bytes()).splitlines():
        _, mount_point, kind, *_ = [*line.split(" "), "", ""]
        kinds[Path(mount_point.replace("\\040", " "))] = kind
    real = folder.resolve()
    return next((kinds[path] for path in (real, *real.parents) if path in kinds), "")


def java(_: Settings) -> Iterator[Finding]:
    """Check that a Java for Spark is installed."""
    try:
        runtime = find_java()
    except NoJava as error:
        advice = (
            "sudo apt install openjdk-21-jre-headless; or: pip install 'penstock-pipe[java]'; "
            "or: penstock up --no-spark"
        )
        yield Finding("Java", "bad", str(error).partition(":")[0], advice)
    else:
        yield Finding("Java", "good", f"Java {runtime.version} in {runtime.home}")


def memory(_: Settings) -> Iterator[Finding]:
    """Check that the pipeline fits into the memory of the machine and of the container."""
    limit = memory_limit()
    text = f"{limit:,} bytes may be used"
    if limit >= MEMORY_NEEDED:
        yield Finding("memory", "good", text)
        return
    advice = (
        'raise the limit (docker run --memory, MemoryMax of systemd), lower pipeline.spark."driver.memory", '
        "or: penstock up --no-spark"
    )
    yield Finding("memory", "warning", f"{text}: with Spark up to {MEMORY_NEEDED:,} are needed", advice)


def memory_limit(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process and its children may use: of the machine, or fewer in a control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                own = root / controllers / path.strip("/")
                # A container sees its own group as the root, while the path may be that of the machine.
                folders = [own, *own.parents][: len(own.parts) - len(root.parts) + 1]
                limits += [limit for folder in folders for limit in _limits_in(folder)]
    return min(limits)


def _limits_in(folder: Path) -> Iterator[int]:
    for name in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            yield int((folder / name).read_text())


def clock(_: Settings) -> Iterator[Finding]:
    """Check that the clock is synchronised: minutes of the balance, retention and watermarks depend on it."""
    state = clock_state()
    if state is None:
        yield Finding("clock", "warning", "the kernel does not say whether it is synchronised", "timedatectl status")
    elif state == TIME_ERROR:
        text = "it is not synchronised: minutes of the balance may differ from those of the senders"
        yield Finding("clock", "warning", text, "sudo timedatectl set-ntp true; or: sudo apt install chrony")
    else:
        yield Finding("clock", "good", "synchronised")


def clock_jump(settings: Settings) -> Iterator[Finding]:
    """Check the clock against the state that the log daemon stored."""
    state = load_clock_state(settings.topics)
    text = state.text()
    if text:
        problem, _, advice = text.rpartition(": ")
        yield Finding("clock", "bad", problem, advice)


def clock_state() -> int | None:
    """Return the result of adjtimex(2); None if it fails or is missing."""
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if adjtimex is None:
        return None
    # A struct timex of zeros sets nothing.
    state = int(adjtimex(ctypes.create_string_buffer(256)))
    return state if state >= 0 else None


def descriptors(_: Settings) -> Iterator[Finding]:
    """Check that the log daemon may open enough files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= FILES_NEEDED:
        limit = "any number of" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield Finding("file descriptors", "good", f"{limit} files may be open at once")
        return
    text = f"only {hard:,} files may be open at once: connections and topics take {FILES_NEEDED:,}"
    advice = f"ulimit -Hn {FILES_NEEDED} before the start (as root), or LimitNOFILE=65536 in the systemd unit"
    yield Finding("file descriptors", "warning", text, advice)


MACHINE_CHECKS: Sequence[Check] = (addresses, disk, java, memory, clock, clock_jump, descriptors)
