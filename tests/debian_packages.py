"""Foreign programs from Debian packages: unpacked once into the user's cache folder with their missing libraries, and
run as a user; only what needs more is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from penstock.java.runtime import cache_folder


class CannotFetchDebian(RuntimeError):
    """The system is not Debian, or its packages cannot be downloaded."""


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """Return the cache's folder ``name`` with unpacked packages. Raises CannotFetchDebian."""
    folder = cache_folder() / name
    if not folder.is_dir():
        if shutil.which("apt-get") is None:
            raise CannotFetchDebian(f"{', '.join(packages)} are fetched from Debian, which this machine is not")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as into:
            _fetch(packages, Path(into))
            try:
                (Path(into) / "root").rename(folder)
            except OSError:
                # Another process has been quicker.
                if not folder.is_dir():
                    raise
    return folder


def install(*packages: str) -> None:
    """Install packages if this process may: as root, on Debian."""
    if os.geteuid() or shutil.which("apt-get") is None:
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "apt-get.lock").open("w") as lock:
        # Lock: apt-get ends at once while another process of tests updates its lists.
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", *packages]):
            program = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command]
            subprocess.run(program, env=environment, capture_output=True, check=False, timeout=900)


def library_environment(root: Path) -> dict[str, str]:
    """Return an environment in which programs of the unpacked packages find their libraries."""
    libraries = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu"), root / "usr/lib/syslog-ng"]
    return os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def _fetch(packages: Sequence[str], into: Path) -> None:
    dependencies = _run("apt-cache", "depends", "--no-recommends", "--no-suggests", *packages).split("\n")
    needed = {line.rpartition(" ")[2] for line in dependencies if line.startswith("  Depends: lib")}
    missing = [name for name in sorted(needed) if not _run("dpkg-query", "-W", "-f", "${Version}", name, check=False)]
    _run("apt-get", "download", *packages, *missing, cwd=into)
    for package in into.glob("*.deb"):
        _run("dpkg", "-x", str(package), str(into / "root"))


def _run(*command: str, check: bool = True, cwd: Path | None = None) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    if completed.returncode and check:
        raise CannotFetchDebian(f"{' '.join(command)}: {completed.stderr}")
    return completed.stdout
