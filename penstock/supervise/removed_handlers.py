"""Handlers that were taken out of the configuration: what waits for them in the log buffers has a fate too.

Done before anything is started, so that nobody else moves a reader at this time. The log daemon is never left
out: it empties all log buffers, those of listeners that are gone among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.handover.paths import LOG, handlers_in, listeners_in


def settle_removed(folder: Path, configured: Mapping[str, set[str]]) -> None:
    """Counts what waits for handlers that are not ``configured`` (by listener) as dropped, and reports each of them."""
    for listener in listeners_in(folder):
        gone = set(handlers_in(folder, listener)) - configured.get(listener, set()) - {LOG}
        if gone:
            from penstock.supervise.waiting_frames import see_off  # with Arrow, which takes time to load

            see_off(folder, listener, sorted(gone))
