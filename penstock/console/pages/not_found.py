"""What is shown where there is no page."""

from __future__ import annotations

from nicegui import ui

from penstock.console.daemon_poll import Daemon
from penstock.console.theme import frame, panel

LONGEST = 200


def build(daemon: Daemon, path: str) -> None:
    """The page."""
    with frame("", daemon), panel("There is no such page"):
        ui.label(path[:LONGEST]).classes("dim")
        ui.link("The pipe", "/")
        ui.label("Or look for a message: key /, then its uuid, its place (topic:offset), a time or any text.")
