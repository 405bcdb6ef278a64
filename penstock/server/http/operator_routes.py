"""HTTP routes of operators: the alarms with their acknowledgements and mutes, and the change log."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.files.change_log import DEFAULT_LIMIT, MAX_LIMIT, ChangeLog
from penstock.server.alarms.register import MAX_TEXT_CHARS, AlarmRegister
from penstock.server.api.monitoring import whole_number
from penstock.server.http.described_routes import DescribedRoute
from penstock.server.http.request_bodies import json_object
from penstock.slogd.errors import BadRequest

MAX_LABELS = 10
LAST_TIME_S = 253_402_300_799
"""Limit: the end of the year 9999, the last time that has a text."""


def operator_routes(register: AlarmRegister, changes: ChangeLog) -> list[DescribedRoute]:
    """Return the routes of operators."""
    calls = _Routes(register, changes)
    route, alarm = partial(DescribedRoute, tag="alarms"), "/alarms/{alarm}"
    return [
        route("/alarms", "GET", calls.alarms, "Rules, their state and history"),
        route(f"{alarm}/acknowledge", "POST", calls.acknowledge, "Acknowledge alarms", body="AcknowledgeBody"),
        route(f"{alarm}/mute", "POST", calls.mute, "Mute alarms until a time", body="MuteBody"),
        route("/changes", "GET", calls.changes, "What people changed, newest first", query="ChangesQuery"),
    ]


class _Routes:
    def __init__(self, register: AlarmRegister, changes: ChangeLog) -> None:
        self._register, self._changes = register, changes

    def alarms(self, request: Request) -> dict[str, Any]:
        """Return each rule with its condition, what fires or is pending, and mutes; needs the right ``monitor``."""
        request.state.caller.check_monitor()
        return self._register.document()

    async def acknowledge(self, alarm: str, request: Request) -> dict[str, Any]:
        """Acknowledged alarms are not delivered again until they end and begin again; needs the right ``admin``."""
        request.state.caller.check_admin()
        document = await json_object(request)
        labels, note, (person, origin) = _labels(document), _text(document, "note"), _author(document, request)
        number = await run_in_threadpool(self._register.acknowledge, alarm, labels, person, note)
        await self._record(person, origin, f"acknowledge {alarm}", labels, note)
        return {"acknowledged": number}

    async def mute(self, alarm: str, request: Request) -> dict[str, Any]:
        """Muted alarms are not delivered; needs the right ``admin``."""
        request.state.caller.check_admin()
        document = await json_object(request)
        labels, note, (person, origin) = _labels(document), _text(document, "note"), _author(document, request)
        until = document.get("until")
        if isinstance(until, bool) or not isinstance(until, int | float) or not 0 <= until <= LAST_TIME_S:
            raise BadRequest("until is a time in seconds since the epoch")
        await run_in_threadpool(self._register.mute, alarm, labels, math.floor(until), person, note)
        await self._record(person, origin, f"mute {alarm} until {math.floor(until)}", labels, note)
        return {}

    async def _record(self, person: str, origin: str, change: str, labels: dict[str, str], note: str) -> None:
        words = ", ".join(f"{name}={text}" for name, text in labels.items())
        details = {name: text for name, text in (("labels", words), ("note", note)) if text}
        await run_in_threadpool(self._changes.record, person, change, origin, **details)

    def changes(self, request: Request) -> dict[str, Any]:
        """Return the newest changes; needs the right ``admin``."""
        request.state.caller.check_admin()
        return {"changes": self._changes.newest(whole_number(request.query_params, "limit", DEFAULT_LIMIT, MAX_LIMIT))}


def _author(document: dict[str, Any], request: Request) -> tuple[str, str]:
    """Return who makes a change, and from where.

    A caller with a token is named by the token. Penstock's own processes, and all callers while there are no tokens,
    name the person.
    """
    caller, address = request.state.caller, request.client.host if request.client else ""
    if caller.name:
        return caller.name, address
    return _text(document, "by") or "somebody", _text(document, "from") or address


def _labels(document: dict[str, Any]) -> dict[str, str]:
    labels = document.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise BadRequest("labels is an object of texts")
    # Limit: mutes with their labels are saved; a rule has three labels at most, and names are shorter.
    if len(labels) > MAX_LABELS or any(len(text) > MAX_TEXT_CHARS for pair in labels.items() for text in pair):
        raise BadRequest(f"labels has more than {MAX_LABELS} names, or a text of more than {MAX_TEXT_CHARS} characters")
    return labels


def _text(document: dict[str, Any], name: str) -> str:
    text = document.get(name, "")
    if not isinstance(text, str):
        raise BadRequest(f"{name} is a text")
    return text
