"""The console's process: ``python -m penstock.console.main``, with its settings as JSON on standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, app, ui

from penstock.config import Settings, split_address
from penstock.config.browser_access import CONSOLE_POLICY, BrowserAccess, SecurityHeaders
from penstock.config.daemon_access import Access
from penstock.console.daemon_poll import Daemon
from penstock.console.login import COOKIE, LoggedIn, Sessions, login_router
from penstock.console.pages import (
    alarms,
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
from penstock.console.people import Person
from penstock.console.search_input import OFFSET_PATTERN
from penstock.console.theme import STATIC
from penstock.process.kernel import die_with_parent
from penstock.sql.quarantine_states import State
from penstock.sql.quarantined import Selection

NAME = "Penstock"
RECONNECT_TIMEOUT_S = 10.0
"""A page whose connection was interrupted for longer is loaded again, without its messages and rows."""


DaemonOfUser = Callable[[], Daemon]
"""Returns the daemon with the token of the user who opens the page."""


def run(settings: Settings) -> None:
    """Serve the pages until SIGTERM or SIGINT."""
    access = Access(settings)
    daemon = Daemon(access.http_url, access.headers, access.verify)
    sessions = Sessions()

    def daemon_of_user() -> Daemon:
        token = sessions.token(ui.context.client.request.cookies.get(COOKIE, ""))
        return daemon.for_person(Person(token=token)) if token else daemon

    # Order: the login wraps the pages, so it is added before the checks of host and headers, which wrap it.
    if settings.security.tokens:
        app.include_router(login_router(daemon, sessions))
        app.add_middleware(LoggedIn, sessions=sessions)
        app.on_startup(lambda: sessions.end_revoked_sessions(daemon))
    host, port = split_address(settings.console.http)
    app.add_middleware(BrowserAccess, names=(*settings.security.hosts, host))
    # Order: last, so that it is the outermost one and refusals have the headers too.
    app.add_middleware(SecurityHeaders, policy=CONSOLE_POLICY)
    _add_pages(daemon_of_user, settings)
    _add_pages_with_parameters(daemon_of_user, settings)
    _add_not_found_page(daemon_of_user)
    app.on_startup(daemon.poll_forever)
    ui.run(
        host=host,
        port=port,
        title=NAME,
        favicon=STATIC / "icon.svg",
        language="en-US",
        dark=None,  # as the browser prefers
        reconnect_timeout=RECONNECT_TIMEOUT_S,
        tailwind=False,
        reload=False,
        show=False,
        show_welcome_message=False,
    )


def _add_pages(daemon_of_user: DaemonOfUser, settings: Settings) -> None:
    ui.page("/", title=NAME)(lambda: overview.build(daemon_of_user(), settings))
    ui.page("/listeners", title=f"Listeners - {NAME}")(lambda: listeners.build(daemon_of_user(), settings))
    ui.page("/pipeline", title=f"Pipeline - {NAME}")(lambda: pipeline.build(daemon_of_user(), settings))
    ui.page("/kafka", title=f"Kafka - {NAME}")(lambda: kafka.build(daemon_of_user()))
    ui.page("/alarms", title=f"Alarms - {NAME}")(lambda: alarms.build(daemon_of_user()))

    @ui.page("/configuration", title=f"Configuration - {NAME}")
    async def _configuration() -> None:
        await configuration.build(daemon_of_user())


def _add_pages_with_parameters(daemon_of_user: DaemonOfUser, settings: Settings) -> None:
    # Parameters are text: a bad one must show a page, not FastAPI's error.

    @ui.page("/topics", title=f"Topics - {NAME}")
    def _topics(begin: str = "0") -> None:
        topics.build(daemon_of_user(), settings, int(begin) if OFFSET_PATTERN.fullmatch(begin) else 0)

    @ui.page("/topic/{name}", title=f"Topic - {NAME}")
    def _topic(
        name: str,
        q: str = "",
        where: Annotated[tuple[str, ...], Query()] = (),
        view: str = "",
        offset: str = "",
    ) -> None:
        topic.build(daemon_of_user(), name, topic.PageAddress(q.strip(), where, view, offset.strip()))

    @ui.page("/sql", title=f"SQL - {NAME}")
    def _sql(q: str = "") -> None:
        sql.build(daemon_of_user(), settings, q)

    @ui.page("/quarantine", title=f"Quarantine - {NAME}")
    def _quarantine(
        reason: str = "", topic: str = "", shape: str = "", before: str = "", state: State = State.OPEN
    ) -> None:
        quarantine.build(daemon_of_user(), settings, Selection(reason, topic, shape), before, state)

    @ui.page("/find", title=f"Find - {NAME}")
    def _find_page(q: str = "") -> None:
        find.build(daemon_of_user(), settings, q.strip())


def _add_not_found_page(daemon_of_user: DaemonOfUser) -> None:
    @app.exception_handler(HTTPStatus.NOT_FOUND)
    def _respond_not_found(request: Request, _: Exception) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("Not Found\n", HTTPStatus.NOT_FOUND)
        with Client(ui.page("", title=f"No such page - {NAME}"), request=request) as client:
            not_found.build(daemon_of_user(), request.url.path)
        return client.build_response(request, HTTPStatus.NOT_FOUND)


def main() -> None:
    """Read the settings from standard input and serve; called by the parent process only."""
    # Crash: a killed parent must not leave a console behind that holds the port.
    die_with_parent()
    run(Settings.model_validate(json.load(sys.stdin)))


if __name__ in {"__main__", "__mp_main__"}:
    main()
