"""The console's process: ``python -m penstock.console.main``, its task on standard input."""

from __future__ import annotations

import json
import sys

from nicegui import app, ui

from penstock.config import Settings, split_address
from penstock.config.browser_access import BrowserAccess
from penstock.config.daemon_access import Access
from penstock.console.daemon_poll import Daemon
from penstock.console.login import COOKIE, LoggedIn, Sessions, login_router
from penstock.console.pages import configuration, find, kafka, listeners, overview, pipeline, sql, topics
from penstock.process.parent_death import die_with_parent

NAME = "Penstock"


def run(settings: Settings) -> None:
    """Serve the pages until SIGTERM or SIGINT."""
    access = Access(settings)
    daemon = Daemon(access.http_url, access.headers, access.verify)
    sessions = Sessions()

    def seen() -> Daemon:
        """The daemon as who opens a page may see it."""
        token = sessions.token(ui.context.client.request.cookies.get(COOKIE, ""))
        return daemon.seen_by(token) if token else daemon

    if settings.security.tokens:
        app.include_router(login_router(daemon, sessions))
        app.add_middleware(LoggedIn, sessions=sessions)
        app.on_startup(lambda: sessions.keep(daemon))
    host, port = split_address(settings.console.http)
    app.add_middleware(BrowserAccess, names=(*settings.security.hosts, host))
    ui.page("/", title=NAME)(lambda: overview.build(seen(), settings))
    ui.page("/listeners", title=f"Listeners - {NAME}")(lambda: listeners.build(seen()))
    ui.page("/topics", title=f"Topics - {NAME}")(lambda: topics.build(seen()))
    ui.page("/pipeline", title=f"Pipeline - {NAME}")(lambda: pipeline.build(seen(), settings))
    ui.page("/sql", title=f"SQL - {NAME}")(lambda: sql.build(seen(), settings))
    ui.page("/kafka", title=f"Kafka - {NAME}")(lambda: kafka.build(seen()))

    @ui.page("/topic/{name}", title=f"Topic - {NAME}")
    def _topic(name: str) -> None:
        topics.build_topic(seen(), name)

    @ui.page("/find", title=f"Find - {NAME}")
    def _find(q: str = "") -> None:
        find.build(seen(), settings, q.strip())

    @ui.page("/configuration", title=f"Configuration - {NAME}")
    async def _configuration() -> None:
        await configuration.build(seen())

    app.on_startup(daemon.watch)
    ui.run(
        host=host,
        port=port,
        title=NAME,
        dark=None,
        tailwind=False,
        reload=False,
        show=False,
        show_welcome_message=False,
    )


def main() -> None:
    """As a child: the settings stand on standard input."""
    die_with_parent()
    run(Settings.model_validate(json.load(sys.stdin)))


if __name__ in {"__main__", "__mp_main__"}:
    main()
