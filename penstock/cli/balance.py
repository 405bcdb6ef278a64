"""``penstock balance``: what became of every message."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group
from rich.text import Text

from penstock.cli.common import ask_daemon, console, fail
from penstock.cli.options import AsJson, Reached
from penstock.cli.progress import Progress
from penstock.cli.tables.wait import moment
from penstock.config import parse_time
from penstock.config.daemon_access import Access
from penstock.counts import LOST_BEFORE, Counts, Name
from penstock.ledger.event_words import event_line
from penstock.ledger.receipt import receipt
from penstock.ledger.receipt_words import bar, reasons, sentence, unknown, verdict

if TYPE_CHECKING:
    from penstock.config.daemon_keys import DaemonKeys
    from penstock.landing.table.row_counts import Tallies

By = Literal["listener", "topic", "type", "host"]
TIMES = "a time such as 14:00 or 2026-01-31T14:00, or an age such as 1h"
EVERY = 1.0
LINES, WIDTH = 6, 80
"""Of a receipt."""


def balance(
    where: Reached,
    as_json: AsJson = False,
    bucket: Annotated[
        int | None, typer.Option(help="One minute alone: its start in seconds since the epoch.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option(help=f"From then on: {TIMES}.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help=f"Up to then: {TIMES}.", show_default=False)] = None,
    by: Annotated[By | None, typer.Option(help="A line for each; type and host: of what has landed.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All books, with every count.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Compute it anew from log buffers, segments, gaps and tables, and compare."),
    ] = False,
) -> None:
    """Print the receipt: what became of every message; the exit status is 1 when something is unaccounted for."""
    if watch and rebuild:
        fail("--watch: goes with the running daemon, not with --rebuild", 2)
    if bucket is not None and (since or until):
        fail("--bucket: is one minute alone, and goes with neither --since nor --until", 2)
    ask = Ask(where, _parameters(bucket, since, until), by, rebuild, full)
    if watch:
        sys.exit(_watch(ask, as_json))
    document = ask.now()
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        ask.show(document, console.print)
    sys.exit(status_of(document))


def _parameters(bucket: int | None, since: str | None, until: str | None) -> dict[str, str]:
    """Of ``/balance``, or the end with what is wrong."""
    now = time.time()
    found = {} if bucket is None else {"bucket": str(bucket)}
    try:
        if since is not None:
            found["since"] = str(math.floor(moment_or_age(since, now, "--since")))
        if until is not None:
            found["until"] = str(math.ceil(moment_or_age(until, now, "--until")))
    except ValueError as error:
        fail(error, 2)
    return found


def moment_or_age(text: str, now: float, option: str) -> float:
    """Seconds since the epoch, 0 at least: ``14:00`` or ``2026-01-31T14:00``, or ``90s``, ``2h`` before ``now``.

    Raises ValueError, which names ``option``.
    """
    if text.strip()[-1:].isalpha():
        with contextlib.suppress(ValueError):
            return max(0.0, now - float(str(parse_time(text))))
    try:
        return max(0.0, moment(text, option))
    except (ValueError, OverflowError):
        raise ValueError(f"{option}: {text!r} is not {TIMES}") from None


class Ask:
    """What was asked for; ``now`` may be called again and again."""

    def __init__(
        self, where: DaemonKeys, parameters: dict[str, str], by: By | None, rebuild: bool, full: bool = False
    ) -> None:
        self._where, self._parameters, self._by, self._rebuild = where, parameters, by, rebuild
        self.full = full
        self._tallies: Tallies | None = None

    def now(self) -> dict[str, Any]:
        """The balance with its receipt, and with ``by`` where it was asked for."""
        document = self._rebuilt() if self._rebuild else ask_daemon(self._where, "/balance", **self._parameters)
        document |= {"receipt": receipt(document).document()}
        return document | ({"by": self._by, "rows": self._rows(document)} if self._by else {})

    def show(self, document: dict[str, Any], out: Callable[[Any], None]) -> None:
        """Print it for people: the receipt, or the table that was asked for; the books where these were."""
        if self._by or self.full:
            from penstock.cli.balance_tables import ByTable, show  # rich's tables take a moment to import

        if self._by:
            out(ByTable(self._by, document["rows"]))
        else:
            for line in receipt_lines(document, self._last_event(), stretch=bool(self._parameters)):
                out(Text(line))
        if self.full and not self._by:
            show(document, out)
        for line in document.get("differs", []):
            out(Text(f"differs: {line}"))
        if self._by or self.full:
            out(Text(f"unaccounted: {document['unaccounted']}", style="bold"))
            out(Text(document.get("clock", ""), style="red"))

    def _last_event(self) -> str:
        if self._rebuild or self._parameters:
            return ""
        events = ask_daemon(self._where, "/events", limit="1")["events"]
        return f"last event: {event_line(events[0])}" if events else ""

    def _rebuilt(self) -> dict[str, Any]:
        from penstock.ledger.rebuild import rebuild_balance
        from penstock.proof.table_posts import table_posts  # it needs pyarrow's dataset

        settings = self._where.load_all()
        listeners = [listener.name for listener in settings.listener]
        posts = table_posts(settings)
        return rebuild_balance(settings.topics, settings.buffers, listeners, posts, self._running, self._within())

    def _running(self) -> dict[str, Any] | None:
        """The balance of the running daemon; None where none runs."""
        with contextlib.suppress(OSError):
            status, body = Access(self._where).request("/balance", parameters=self._parameters)
            return dict(json.loads(body)) if status < 400 else None
        return None

    def _within(self) -> int | range | None:
        given = {name: int(text) for name, text in self._parameters.items()}
        if not given:
            return None
        from penstock.ledger.balance import LAST, minutes  # it brings the log along

        return given["bucket"] if "bucket" in given else minutes(given.get("since", 0), given.get("until", LAST))

    def _rows(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        if self._by == "listener":
            return by_listener(document)
        if self._by == "topic":
            return by_topic(document)
        return self._landed()

    def _landed(self) -> list[dict[str, Any]]:
        """Landed rows by type or host, most first."""
        from penstock.landing.table.row_counts import Tallies  # Parquet takes a moment to import
        from penstock.landing.table_paths import Layout

        within = self._within()
        if self._tallies is None:
            span = range(within, within + 1) if isinstance(within, int) else within
            self._tallies = Tallies(Layout.of(self._where.load_all().tables), str(self._by), span)
        with Progress("counting") as progress:
            counted = self._tallies.now(lambda number, of: progress.tell(f"{number} of {of} files"))
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return [{"kind": kind, str(self._by): value, "rows": rows} for (kind, value), rows in ordered]


def by_listener(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each route of a listener (or an API): what it lost before, and what became of what it accepted."""
    from penstock.cli.balance_tables import FATES, OPEN

    counts = {listener["name"]: listener["counts"] for listener in document["listeners"]}
    rows = []
    for route in document["routes"]:
        own = Counts(counts.get(route["source"], {}))
        lost = {name.rstrip("."): own.total(name) for name in (*LOST_BEFORE, Name.SKIPPED_BYTES)}
        way = {name: route[name] for name in ("handler", "accepted", *FATES, *OPEN)}
        rows.append({"listener": route["source"], **lost, **way})
    return rows


def by_topic(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A topic's messages with what became of them."""
    return [
        {"topic": topic["topic"], "logged": topic["logged"], **topic["fates"]}
        | {name: topic[name] for name in ("pending", "unaccounted")}
        for topic in document["topics"]
    ]


def status_of(document: dict[str, Any]) -> int:
    """Exit status: 1 where something is unaccounted for, or a rebuilt balance differs."""
    return 1 if document["unaccounted"] or document.get("differs") else 0


def receipt_lines(document: dict[str, Any], last: str = "", stretch: bool = False) -> list[str]:
    """Six lines of 80 characters at most, the verdict first; ``last`` is a line to end with where there is room.

    With ``stretch`` it is the receipt of some minutes, of which no sender reports.
    """
    seen, width = receipt(document), min(WIDTH, console.width)
    lines = [verdict(seen), *textwrap.wrap(sentence(seen), width), bar(seen, width)]
    lost = f"lost: {reasons(seen.losses_by_reason(), skipped_bytes=seen.skipped_bytes)}" if seen.lost else ""
    senders = "" if stretch else unknown(seen)
    for line in (document.get("clock", ""), lost, senders, last):
        if line and len(lines) < LINES:
            lines.append(shortened(line, width))
    return lines


def shortened(text: str, width: int) -> str:
    """``text`` in so many characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _watch(ask: Ask, as_json: bool) -> int:
    """Show it every second (as JSON: a line each) until Ctrl-C; the exit status."""
    from rich.live import Live

    document: dict[str, Any] = {"unaccounted": 0}
    screen = contextlib.nullcontext() if as_json else Live(console=console, auto_refresh=False)
    try:
        with screen as live:
            while True:
                document = ask.now()
                if live is None:
                    print(json.dumps(document), flush=True)
                else:
                    live.update(_drawn(ask, document), refresh=True)
                time.sleep(EVERY)
    except KeyboardInterrupt:
        return status_of(document)


def _drawn(ask: Ask, document: dict[str, Any]) -> Group:
    parts: list[Any] = []
    ask.show(document, parts.append)
    return Group(*parts)
