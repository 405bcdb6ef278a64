"""The container builder of this machine."""

from __future__ import annotations

import functools
import shutil
import subprocess

NONE = "no container builder (podman, docker) answers here: examples/Containerfile is NOT BUILT"


@functools.cache
def builder() -> str:
    """Return the name of the builder that answers; empty without one."""
    return next((name for name in ("podman", "docker") if shutil.which(name) and _answers(name)), "")


def _answers(name: str) -> bool:
    try:
        return subprocess.run([name, "info"], capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
