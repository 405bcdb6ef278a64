"""The time since the machine was started, as a name."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Names the time since the machine was started; empty where the kernel does not say."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
