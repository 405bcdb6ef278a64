"""The console's process: ``python -m penstock.console.main``, its task on standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, app, ui

from penstock.config import Settings, split_address
from penstock.config.browser_access import CONSOLE_POLICY, BrowserAccess, SecurityHeaders
from penstock.config.daemon_access import Access
from penstock.console.asked import HERE
from penstock.console.daemon_poll import Daemon
from penstock.console.login import COOKIE, LoggedIn, Sessions, login_router
from penstock.console.pages import (
    configuration,
    find,
    kafka,
    listeners,
    not_found,
    overview,
    pipeline,
    quarantine,
    sql,
    topic,
    topics,
)
from penstock.console.theme import STATIC
from penstock.process.kernel import die_with_parent
from penstock.sql.quarantined import Selection

NAME = "Penstock"


Seen = Callable[[], Daemon]
"""The daemon as who opens a page may see it."""


def run(settings: Settings) -> None:
    """Serve the pages until SIGTERM or SIGINT."""
    access = Access(settings)
    daemon = Daemon(access.http_url, access.headers, access.verify)
    sessions = Sessions()

    def seen() -> Daemon:
        token = sessions.token(ui.context.client.request.cookies.get(COOKIE, ""))
        return daemon.seen_by(token) if token else daemon

    if settings.security.tokens:
        app.include_router(login_router(daemon, sessions))
        app.add_middleware(LoggedIn, sessions=sessions)
        app.on_startup(lambda: sessions.keep(daemon))
    host, port = split_address(settings.console.http)
    app.add_middleware(BrowserAccess, names=(*settings.security.hosts, host))
    # Order: last, so that it is the outermost one and refusals have the headers too.
    app.add_middleware(SecurityHeaders, policy=CONSOLE_POLICY)
    _pages(seen, settings)
    _pages_of_queries(seen, settings)
    _no_such_page(seen)
    app.on_startup(daemon.watch)
    ui.run(
        host=host,
        port=port,
        title=NAME,
        favicon=STATIC / "icon.svg",
        dark=None,
        tailwind=False,
        reload=False,
        show=False,
        show_welcome_message=False,
    )


def _pages(seen: Seen, settings: Settings) -> None:
    """Those that are asked for nothing but themselves."""
    ui.page("/", title=NAME)(lambda: overview.build(seen(), settings))
    ui.page("/listeners", title=f"Listeners - {NAME}")(lambda: listeners.build(seen()))
    ui.page("/pipeline", title=f"Pipeline - {NAME}")(lambda: pipeline.build(seen(), settings))
    ui.page("/sql", title=f"SQL - {NAME}")(lambda: sql.build(seen(), settings))
    ui.page("/kafka", title=f"Kafka - {NAME}")(lambda: kafka.build(seen()))

    @ui.page("/configuration", title=f"Configuration - {NAME}")
    async def _configuration() -> None:
        await configuration.build(seen())


def _pages_of_queries(seen: Seen, settings: Settings) -> None:
    """Those whose address says what of them."""

    @ui.page("/topics", title=f"Topics - {NAME}")
    def _topics(begin: str = "0") -> None:
        topics.build(seen(), int(begin) if HERE.fullmatch(begin) else 0)

    @ui.page("/topic/{name}", title=f"Topic - {NAME}")
    def _topic(name: str, q: str = "", offset: str = "") -> None:
        topic.build(seen(), name, q.strip(), offset.strip())

    @ui.page("/quarantine", title=f"Quarantine - {NAME}")
    def _quarantine(reason: str = "", topic: str = "", shape: str = "", before: str = "") -> None:
        quarantine.build(seen(), settings, Selection(reason, topic, shape), before)

    @ui.page("/find", title=f"Find - {NAME}")
    def _find(q: str = "") -> None:
        find.build(seen(), settings, q.strip())


def _no_such_page(seen: Seen) -> None:
    @app.exception_handler(HTTPStatus.NOT_FOUND)
    def _lost(request: Request, _: Exception) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("Not Found\n", HTTPStatus.NOT_FOUND)
        with Client(ui.page("", title=f"No such page - {NAME}"), request=request) as client:
            not_found.build(seen(), request.url.path)
        return client.build_response(request, HTTPStatus.NOT_FOUND)


def main() -> None:
    """As a child: the settings stand on standard input."""
    die_with_parent()
    run(Settings.model_validate(json.load(sys.stdin)))


if __name__ in {"__main__", "__mp_main__"}:
    main()
