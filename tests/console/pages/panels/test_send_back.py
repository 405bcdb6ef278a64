"""The panel that sends quarantined messages back, without a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nicegui import Client, ui

from penstock.config import Settings
from penstock.console.daemon_poll import Daemon
from penstock.console.pages.panels.send_back import SendBackPanel
from penstock.console.people import Person
from penstock.sql.quarantined import Extent, Selection


def test_panel_of_an_ended_login_shows_why_it_sends_nothing(tmp_path: Path) -> None:
    reloads: list[str] = []

    async def reload() -> None:
        reloads.append("lists")

    async def send() -> SendBackPanel:
        daemon = Daemon("http://127.0.0.1:1").for_person(Person("ann"), lambda: False)
        unused: Any = object()  # tables that the panel must not reach
        with Client(ui.page("/"), request=None):
            panel = SendBackPanel(daemon, Settings(data_dir=tmp_path), Selection("", "", ""), reload)
            await panel._send_selection(Extent(1, 1, 0, None), unused)
        return panel

    panel = asyncio.run(send())
    assert 'role="alert">your login has ended or changed: load the page again<' in panel._message._text
    assert not panel._is_sending
    # Part of a selection may have been sent before an error.
    assert reloads == ["lists"]
