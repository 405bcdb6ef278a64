"""The page for an address without a page."""

from __future__ import annotations

from nicegui import ui

from penstock.console.components.theme import frame, panel
from penstock.console.daemon_poll import Daemon

MAX_PATH_CHARS = 200


def build(daemon: Daemon, path: str) -> None:
    """Build the page."""
    with frame("", daemon, "Page not found"), panel("No such page"):
        ui.label(path[:MAX_PATH_CHARS]).classes("dim")
        ui.link("To the first page", "/")
        ui.label("To find a message, press / and enter its uuid, its position (topic:offset), a time or any text.")
