"""A panel that sends a message of one's own into a topic."""

from __future__ import annotations

import base64
import json
import time
from html import escape
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from nicegui import ui

from penstock.console.daemon_poll import Away, Daemon
from penstock.console.theme import Html, panel

LONGEST = 500_000
"""Characters that are taken from the page."""


def sample() -> str:
    """An event."""
    event = {"type": "test", "uuid": str(uuid4()), "timestamp": int(time.time() * 1000), "data": {"hello": "penstock"}}
    return json.dumps(event)


def marks(text: str) -> dict[str, str]:
    """The annotations of ``user=vip-1, test=yes``. Raises ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not name=value")
        found[name.strip()] = value.strip()
    return found


async def send(daemon: Daemon, topic: str, text: str, annotations: dict[str, str]) -> int:
    """Append a message; its offset. Raises Away."""
    entry: dict[str, Any] = {"raw_bytes": base64.b64encode(text.encode()).decode(), "annotations": annotations}
    answer = await daemon.ask("POST", f"/topic/{quote(topic, safe='')}/logs", json={"logs": [entry]})
    return int(answer.get("offsets", ["0"])[0])


def send_panel(daemon: Daemon, topic: str = "") -> None:
    """The panel; for a topic that is asked for where none is named."""
    with panel("Send a test message", "through the HTTP API, with your rights in this console"):
        named = ui.input("topic", value=topic or "events").props("dense outlined").style("min-width:200px")
        named.set_visibility(not topic)
        text = ui.textarea("message", value=sample()).props(f"outlined autogrow maxlength={LONGEST}")
        text.classes("w-full query")
        beside = ui.input("annotations: name=value, name=value").props("dense outlined").classes("w-full")
        with ui.row().classes("items-center").style("gap:14px"):
            button = ui.button("send").props("outline no-caps dense")
            answer = Html()

    async def go() -> None:
        button.disable()
        answer.show('<div class="dim" role="status">Sending...</div>')
        to = topic or (named.value or "").strip()
        try:
            offset = await send(daemon, to, (text.value or "")[:LONGEST], marks(beside.value or ""))
        except (Away, ValueError) as error:
            answer.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        finally:
            button.enable()
        place = f"{to}:{offset}"
        answer.show(
            f'<div class="good" role="status">stored as {escape(place)} &middot; '
            f'<a href="/find?q={quote(place)}">where is it?</a></div>'
        )
        text.set_value(sample() if '"type": "test"' in (text.value or "") else text.value)

    button.on_click(go)
