"""HTTP routes of monitoring: configuration, clock, balance over time, watermarks, events, and the ledger."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.server.api.monitoring import MAX_EVENTS, MonitoringApi, whole_number
from penstock.server.http.described_routes import DescribedRoute
from penstock.server.http.request_bodies import json_object
from penstock.server.reading.query import LAST_OFFSET


def monitoring_routes(reports: MonitoringApi) -> list[DescribedRoute]:
    """Return the routes of monitoring and the ledger, and the route that verifies a range of a topic."""
    calls = _Routes(reports)
    route, verify = partial(DescribedRoute, tag="ledger"), "/topic/{topic}/verify"
    return [
        route("/config", "GET", calls._config, "The configuration in force"),
        route("/balance/series", "GET", calls._series, "The balance over time", query="SeriesQuery"),
        route("/clock", "GET", calls._clock, "Report whether the system clock is plausible"),
        route("/clock", "POST", calls._accept, "Accept the system clock"),
        route("/watermarks", "GET", calls._watermarks, "Time up to which tables are complete"),
        route("/events", "GET", calls._events, "Recorded events, newest first", query="EventsQuery"),
        route("/senders", "GET", calls._senders, "Senders of listeners, the largest first", query="SendersQuery"),
        route("/ledger", "GET", calls._landed, "What has landed, by topic", query="TierQuery"),
        route("/ledger", "POST", calls._post, "Post absolute counts", body="LedgerPost"),
        route(verify, "POST", calls._verify, "Verify checksums of a range", query="VerifyQuery"),
    ]


class _Routes:
    # The methods' names are part of the operation ids in the OpenAPI document, so they stay as they are.

    def __init__(self, reports: MonitoringApi) -> None:
        self._reports = reports

    def _config(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        return self._reports.config()

    def _series(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        query = request.query_params
        return self._reports.series(whole_number(query, "since", 0), max(whole_number(query, "step", 60), 1))

    def _clock(self, request: Request) -> dict[str, Any]:
        """Name in ``text`` what waits after a jump, and for how long; needs the right ``monitor``."""
        request.state.caller.check_monitor()
        return self._reports.clock()

    def _accept(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_admin()
        origin = request.client.host if request.client else ""
        return self._reports.accept_clock(request.state.caller.name, origin)

    def _watermarks(self, request: Request) -> dict[str, Any]:
        return self._reports.watermarks(request.state.caller)

    def _events(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        query = request.query_params
        return self._reports.events(whole_number(query, "since", 0), whole_number(query, "limit", MAX_EVENTS))

    def _senders(self, request: Request) -> dict[str, Any]:
        request.state.caller.check_monitor()
        return self._reports.senders(request.query_params)

    def _landed(self, request: Request) -> dict[str, Any]:
        # A poster of counts may read them without the right to monitor.
        if not request.state.caller.ledger:
            request.state.caller.check_monitor()
        return self._reports.counts_of_tier(request.query_params.get("tier", "landed"))

    async def _post(self, request: Request) -> dict[str, Any]:
        # Order: the right before the body, so that a refused caller costs no memory.
        request.state.caller.check_ledger()
        document = await json_object(request)
        request.state.caller.check_post(document)
        return await run_in_threadpool(self._reports.post, document)

    def _verify(self, topic: str, request: Request) -> dict[str, Any]:
        begin, end = (whole_number(request.query_params, name, 0, LAST_OFFSET) for name in ("begin", "end"))
        return self._reports.verify(topic, begin, end, request.state.caller)
