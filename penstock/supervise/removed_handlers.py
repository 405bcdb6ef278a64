"""Settles removed handlers: the messages that wait for them in the log buffers get a fate.

Order: while no receiver of the listener runs, so that no other process moves a reader. The log daemon's reader is
never removed: it drains all log buffers, also the buffers of removed listeners.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.handover.paths import LOG, handlers_in, listeners_in


def settle_removed_handlers(folder: Path, configured: Mapping[str, set[str]]) -> None:
    """Count what waits for handlers that are not ``configured`` (by listener) as dropped, and log each of them."""
    for listener in listeners_in(folder):
        removed = set(handlers_in(folder, listener)) - configured.get(listener, set()) - {LOG}
        if removed:
            from penstock.supervise.waiting_frames import drop_waiting_frames  # imports Arrow, which is slow to load

            drop_waiting_frames(folder, listener, sorted(removed))
