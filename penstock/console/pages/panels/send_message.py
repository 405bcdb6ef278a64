"""A panel that appends a test message to a topic."""

from __future__ import annotations

import base64
import json
import time
from html import escape
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from nicegui import ui

from penstock.console.components.theme import Html, panel, viewer_note
from penstock.console.daemon_poll import Daemon
from penstock.errors import PenstockError

MAX_MESSAGE_CHARS = 500_000
"""Limit of the text that the page sends over its websocket."""


def sample() -> str:
    """Return a valid event with a new uuid."""
    event = {"type": "test", "uuid": str(uuid4()), "timestamp": int(time.time() * 1000), "data": {"hello": "penstock"}}
    return json.dumps(event)


def parse_annotations(text: str) -> dict[str, str]:
    """Return the annotations of ``user=vip-1, test=yes``. Raises ValueError."""
    annotations: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, text_of_name = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not of the form name=value")
        annotations[name.strip()] = text_of_name.strip()
    return annotations


async def send(daemon: Daemon, topic: str, text: str, annotations: dict[str, str]) -> int:
    """Append a message and return its offset. Raises DaemonUnavailable."""
    # Base64: JSON carries bytes only so.
    entry: dict[str, Any] = {"raw_bytes": base64.b64encode(text.encode()).decode(), "annotations": annotations}
    response = await daemon.request("POST", f"/topic/{quote(topic, safe='')}/logs", json={"logs": [entry]})
    return int(response.get("offsets", ["0"])[0])


def send_panel(daemon: Daemon, topic: str = "") -> None:
    """Build the panel, for operators; without ``topic`` the user chooses one."""
    if not daemon.person.is_operator:
        viewer_note(daemon.person, "send test messages")
        return
    with panel("Send a test message", "through the HTTP API, with the rights of your login"):
        topic_field = ui.input("topic", value=topic or "events").props("dense outlined").style("min-width:200px")
        topic_field.set_visibility(not topic)
        text = ui.textarea("message", value=sample()).props(f"outlined autogrow maxlength={MAX_MESSAGE_CHARS}")
        text.classes("w-full query")
        annotations_field = ui.input("annotations: name=value, name=value").props("dense outlined").classes("w-full")
        with ui.row().classes("items-center").style("gap:14px"):
            button = ui.button("send").props("outline no-caps dense")
            outcome = Html()

    async def send_message() -> None:
        button.disable()
        outcome.show('<div class="dim" role="status">Sending...</div>')
        target_topic = topic or (topic_field.value or "").strip()
        try:
            offset = await send(
                daemon,
                target_topic,
                (text.value or "")[:MAX_MESSAGE_CHARS],
                parse_annotations(annotations_field.value or ""),
            )
        except (PenstockError, ValueError) as error:
            outcome.show(f'<div class="bad" role="alert">{escape(str(error))}</div>')
            return
        finally:
            button.enable()
        position = f"{target_topic}:{offset}"
        await daemon.record(f"send a message to {position}")
        outcome.show(
            f'<div class="good" role="status">stored as {escape(position)} &middot; '
            f'<a href="/find?q={quote(position)}">trace</a></div>'
        )
        # A new uuid, so that the next message is not a duplicate; a text of the user stays.
        text.set_value(sample() if '"type": "test"' in (text.value or "") else text.value)

    button.on_click(send_message)
