"""The console's process: ``python -m penstock.console.main``, with its settings as JSON on standard input."""

from __future__ import annotations

from penstock.process.tuning import tune

tune("console")  # first, see penstock.process.tuning

import contextlib
import json
import ssl
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, app, ui

from penstock.config import Settings, split_address
from penstock.config.browser_access import CONSOLE_POLICY, BrowserAccess, SecurityHeaders
from penstock.config.daemon_access import Access
from penstock.config.keys.console import ConsoleConfig
from penstock.config.keys.security.renewed_tls import RenewedContext
from penstock.console.components.search_input import OFFSET_PATTERN
from penstock.console.components.theme import STATIC
from penstock.console.daemon_poll import Daemon
from penstock.console.login import IS_CURRENT, PERSON, LoggedIn, LoginPage, Sessions, TrustedProxy, UsersFile
from penstock.console.pages import (
    alarms,
    audits,
    configuration,
    find,
    kafka,
    listeners,
    not_found,
    overview,
    pipeline,
    quarantine,
    senders,
    sql,
    table,
    topic,
    topics,
)
from penstock.errors import PenstockError
from penstock.files.change_log import ChangeLog
from penstock.landing.table_paths import Layout
from penstock.process.kernel import die_with_parent
from penstock.sql.quarantine_states import State
from penstock.sql.quarantined import Selection
from penstock.upkeep.quarantine.send_back import count_sent_back
from penstock.upkeep.repair.unreadable_files import unreadable_files

NAME = "Penstock"
RECONNECT_TIMEOUT_S = 10.0
"""A page whose connection was interrupted for longer is loaded again, without its messages and rows."""


DaemonOfUser = Callable[[], Daemon]
"""Returns the daemon with the token of the user who opens the page."""


def run(settings: Settings) -> None:
    """Serve the pages until SIGTERM or SIGINT."""
    access = Access(settings)
    changes = ChangeLog(settings.data_dir)
    facts = partial(table_facts, Layout.for_tables(settings.tables))
    daemon = Daemon(access.http_url, access.headers, access.verify, changes=changes, read_table_facts=facts)

    def daemon_of_user() -> Daemon:
        scope = ui.context.client.request.scope
        person = scope.get(PERSON)
        return daemon.for_person(person, scope[IS_CURRENT]) if person else daemon

    # Order: the login wraps the pages, so it is added before the checks of host and headers, which wrap it.
    _add_login(settings, daemon)
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
        # Otherwise uvicorn replaces the peer's address by X-Forwarded-For, and a browser could claim to be the proxy.
        proxy_headers=False,
        favicon=STATIC / "icon.svg",
        language="en-US",
        dark=None,  # as the browser prefers
        reconnect_timeout=RECONNECT_TIMEOUT_S,
        tailwind=False,
        reload=False,
        show=False,
        show_welcome_message=False,
        ssl_context_factory=_tls_factory(settings.console),
    )


def table_facts(layout: Layout) -> dict[str, Any]:
    """Return what the tables add to the balance; a fact that cannot be read is missing."""
    facts: dict[str, Any] = {}
    with contextlib.suppress(PenstockError, OSError):
        facts["sent_back"] = count_sent_back(layout)
    with contextlib.suppress(PenstockError, OSError):
        facts["unreadable"] = unreadable_files(layout)
    return facts


def _tls_factory(config: ConsoleConfig) -> Callable[..., ssl.SSLContext] | None:
    """Return uvicorn's factory of the console's TLS context, which follows renewed files; None without TLS."""

    def new_context() -> ssl.SSLContext:
        context = config.tls_context()
        assert context is not None, "asked for only if there is a certificate"
        return context

    paths = (config.tls_cert, config.tls_key)
    return (lambda *_: RenewedContext(new_context, paths)) if config.tls_cert else None


def _add_login(settings: Settings, daemon: Daemon) -> None:
    """Require a login if there are users, tokens or a proxy that names users."""
    config, tokens = settings.console, settings.security.tokens
    users = UsersFile(config.users) if config.users else None
    if not (users or tokens or config.trusted_user_header):
        return
    sessions, proxy = Sessions(), TrustedProxy.from_config(config, users)
    has_login = bool(users or tokens)
    if has_login:
        app.include_router(LoginPage(daemon, sessions, proxy, tokens, users).router())
        app.on_startup(lambda: sessions.end_revoked_sessions(daemon, users))
    app.add_middleware(LoggedIn, sessions=sessions, proxy=proxy, has_login=has_login)


def _add_pages(daemon_of_user: DaemonOfUser, settings: Settings) -> None:
    ui.page("/", title=NAME)(lambda: overview.build(daemon_of_user(), settings))
    ui.page("/listeners", title=f"Listeners - {NAME}")(lambda: listeners.build(daemon_of_user(), settings))
    ui.page("/pipeline", title=f"Pipeline - {NAME}")(lambda: pipeline.build(daemon_of_user(), settings))
    ui.page("/kafka", title=f"Kafka - {NAME}")(lambda: kafka.build(daemon_of_user()))
    ui.page("/senders", title=f"Senders - {NAME}")(lambda: senders.build_senders(daemon_of_user(), settings))
    ui.page("/hosts", title=f"Hosts - {NAME}")(lambda: senders.build_hosts(daemon_of_user()))
    ui.page("/alarms", title=f"Alarms - {NAME}")(lambda: alarms.build(daemon_of_user()))

    ui.page("/audits", title=f"Audits - {NAME}")(lambda: audits.build(daemon_of_user(), settings))

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

    @ui.page("/table/{name}", title=f"Table - {NAME}")
    def _table(name: str, q: str = "", where: Annotated[tuple[str, ...], Query()] = ()) -> None:
        table.build(daemon_of_user(), settings, name, where, q.strip())

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
