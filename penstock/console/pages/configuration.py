"""The configuration page: every key in force, searchable."""

from __future__ import annotations

from html import escape
from typing import Any

from nicegui import ui

from penstock.console.components.theme import Html, frame, long_text, panel, table
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.wording import exact
from penstock.files.change_log import FIELDS

SHOWN_CHANGES = 100


async def build(daemon: Daemon) -> None:
    """Build the page."""
    with frame("/configuration", daemon):
        try:
            keys: list[dict[str, str]] = (await daemon.get("/config"))["keys"]
        except DaemonUnavailable as error:
            ui.label(str(error)).classes("bad")
            return
        with panel("Configuration in force", "changed keys are bold; a secret shows as ********"):
            search_box = (
                ui.input(placeholder="find a key or a word").props("dense outlined clearable").classes("w-full")
            )
            listing_html = Html()
        with panel("Changes", f"who changed what and from where, the newest {SHOWN_CHANGES}"):
            changes_html = Html()
            try:
                changes_html.show(changes_table((await daemon.get("/changes", limit=SHOWN_CHANGES))["changes"]))
            except DaemonUnavailable as error:
                changes_html.show(f'<div class="dim">{escape(str(error))}</div>')
        search_box.on_value_change(lambda: listing_html.show(listing(keys, search_box.value or "")))
        listing_html.show(listing(keys, ""))


def listing(keys: list[dict[str, Any]], query: str) -> str:
    """Return the keys that contain ``query``, by group, as HTML: groups are closed unless something is searched or
    changed.
    """
    # The daemon masks secrets, so neither this page nor its search can reveal one.
    matches = [key for key in keys if query.lower() in f"{key['name']} {key['value']} {key['meaning']}".lower()]
    # The keys of a group may be apart from each other, such as the ones without a group.
    groups: dict[str, list[dict[str, Any]]] = {}
    for key in matches:
        groups.setdefault(key["name"].rpartition(".")[0], []).append(key)
    parts = []
    for group, in_group in groups.items():
        changed = sum(map(_is_changed, in_group))
        note = f"{exact(len(in_group))} {'key' if len(in_group) == 1 else 'keys'}" + (
            f", {exact(changed)} changed" if changed else ""
        )
        rows = table(["key", "value", "default", "meaning"], [_row(key) for key in in_group], stack=True)
        parts.append(
            f'<details class="group"{" open" if query or changed else ""}><summary><h3 class="title">'
            f'{escape(group) or "general"}</h3> <span class="dim">{note}</span></summary>'
            f'<div class="short-rows">{rows}</div></details>'
        )
    return "".join(parts) or '<div class="dim">No key matches.</div>'


def changes_table(changes: list[dict[str, str]]) -> str:
    """Return a row for each change of the change log."""
    rows = [
        [
            f'<span class="nw">{escape(change["at"][:19].replace("T", " "))}</span>',
            *(f'<span class="long">{escape(change[name])}</span>' for name in ("who", "what", "from")),
            long_text(_details(change)),
        ]
        for change in changes
    ]
    if not rows:
        return '<div class="dim">Nobody has changed anything yet.</div>'
    return table(["time (UTC)", "who", "what", "from", "details"], rows, stack=True)


def _details(change: dict[str, str]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in change.items() if name not in FIELDS)


def _is_changed(key: dict[str, Any]) -> bool:
    return bool(key["default"] != "" and key["value"] != key["default"])


def _row(key: dict[str, Any]) -> list[str]:
    changed = _is_changed(key)
    name, text = escape(key["name"].rpartition(".")[2]), escape(key["value"])
    if changed:
        name, text = f"<b>{name}</b>", f"<b>{text}</b>"
    return [name, text, escape(key["default"]) if changed else "", escape(key["meaning"])]
