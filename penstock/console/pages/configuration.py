"""The configuration in force."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Any

from nicegui import ui

from penstock.console.daemon_poll import Away, Daemon
from penstock.console.theme import Html, frame, panel, table


async def build(daemon: Daemon) -> None:
    """The page."""
    with frame("/configuration", daemon):
        try:
            keys: list[dict[str, str]] = (await daemon.get("/config"))["keys"]
        except Away as error:
            ui.label(str(error)).classes("bad")
            return
        with panel("Configuration in force", "changed keys are bold; a secret shows as ********"):
            find = ui.input(placeholder="find a key or a word").props("dense outlined clearable").classes("w-full")
            shown = Html()
        find.on_value_change(lambda: shown.show(listing(keys, find.value or "")))
        shown.show(listing(keys, ""))


def listing(keys: list[dict[str, Any]], wanted: str) -> str:
    """The keys that contain ``wanted``, by group, as HTML."""
    found = [key for key in keys if wanted.lower() in f"{key['name']} {key['value']} {key['meaning']}".lower()]
    parts = []
    for group, of_group in groupby(found, lambda key: key["name"].rpartition(".")[0]):
        rows = [_row(key) for key in of_group]
        parts.append(
            f'<h3 class="title">{escape(group) or "general"}</h3>'
            + table(["key", "value", "default", "meaning"], rows, stack=True)
        )
    return "".join(parts) or '<div class="dim">No key has this.</div>'


def _row(key: dict[str, Any]) -> list[str]:
    changed = key["default"] != "" and key["value"] != key["default"]
    name, value = escape(key["name"].rpartition(".")[2]), escape(key["value"])
    if changed:
        name, value = f"<b>{name}</b>", f"<b>{value}</b>"
    return [name, value, escape(key["default"]) if changed else "", escape(key["meaning"])]
