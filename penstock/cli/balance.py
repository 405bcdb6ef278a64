"""``penstock balance``: the receipt, or the books behind it, from the running daemon or rebuilt from files.

Start at ``balance``; ``BalanceQuery`` gets and prints the document, ``receipt_lines`` formats the receipt.
"""

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

from penstock.cli.common import fail, query_daemon, terminal_width
from penstock.cli.host_balance import by_host_listener, differing_hosts, differing_over_kafka, has_missing
from penstock.cli.options import AsJson, DaemonConfigured, require_data
from penstock.cli.tables.wait import parse_moment
from penstock.config import parse_time
from penstock.config.daemon_access import Access
from penstock.counts import LOST_BEFORE, Counts, Name
from penstock.errors import PenstockError
from penstock.ledger.event_words import event_line, unwritten_text
from penstock.ledger.receipt import not_started_in, receipt
from penstock.ledger.receipt_words import bar, reasons, remarks, sentence, verdict

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.config.daemon_keys import DaemonKeys
    from penstock.landing.table.row_counts import RowCounts

By = Literal["listener", "topic", "type", "host"]
Rows = Literal[By, "relay"]
"""Rows of a balance; ``relay`` has the listeners of the hosts that relay to this one (``--hosts``)."""
TIMES = "a time such as 14:00 or 2026-01-31T14:00, or an age such as 1h"
WATCH_INTERVAL_S = 1.0
RECEIPT_LINES, RECEIPT_WIDTH = 6, 80
"""Maximum lines, and columns, of a receipt: it fits the smallest usual terminal. Long losses and remarks need more."""
MAX_REMARK_LINES = 3
MAX_LOSSES = 8
"""Reasons of losses that a receipt names; ``--full`` prints all."""
MAX_NOT_STARTED = 3
"""Limit: processes that cannot start whose reasons a receipt has; the verdict has their number."""


def balance(
    keys: DaemonConfigured,
    as_json: AsJson = False,
    bucket: Annotated[
        int | None,
        typer.Option(help="Balance of one minute, by its start in seconds since the epoch.", show_default=False),
    ] = None,
    since: Annotated[str | None, typer.Option(help=f"Start of the balance: {TIMES}.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help=f"End of the balance: {TIMES}.", show_default=False)] = None,
    by: Annotated[
        By | None, typer.Option(help="Print one row per listener, topic, or type or host of landed rows.")
    ] = None,
    hosts: Annotated[
        bool, typer.Option("--hosts", help="Print one row per listener of the hosts that relay to this one.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Print all books with every count.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print the balance every second until Ctrl-C.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Compute the balance from log buffers, segments, gaps and tables, and compare."),
    ] = False,
) -> None:
    """Print the receipt: the fate of every message.

    Exits with status 1 if a message is unaccounted for, a file of the tables cannot be read, or the counts of a host
    differ from what arrived.
    """
    if watch and rebuild:
        fail("--watch reads the running daemon and cannot be combined with --rebuild", 2)
    if bucket is not None and (since or until):
        fail("--bucket is one minute and cannot be combined with --since or --until", 2)
    if hosts and by:
        fail("--hosts prints rows of its own and cannot be combined with --by", 2)
    query = BalanceQuery(keys, _query_parameters(bucket, since, until), "relay" if hosts else by, rebuild, full)
    if watch:
        sys.exit(_watch(query, as_json))
    document = query.now()
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        query.show(document, _print)
    sys.exit(exit_status(document))


def _query_parameters(bucket: int | None, since: str | None, until: str | None) -> dict[str, str]:
    """Return the parameters of ``/balance``, or end the command with status 2."""
    now = time.time()
    parameters = {} if bucket is None else {"bucket": str(bucket)}
    try:
        if since is not None:
            parameters["since"] = str(math.floor(parse_moment_or_age(since, now, "--since")))
        if until is not None:
            parameters["until"] = str(math.ceil(parse_moment_or_age(until, now, "--until")))
    except ValueError as error:
        fail(error, 2)
    return parameters


def parse_moment_or_age(text: str, now: float, option: str) -> float:
    """Return a time in seconds since the epoch, at least 0, from a time or an age before ``now``, such as 90s or 2h.

    Raises ValueError that names ``option``.
    """
    if text.strip()[-1:].isalpha():
        with contextlib.suppress(ValueError):
            return max(0.0, now - float(str(parse_time(text))))
    try:
        return max(0.0, parse_moment(text, option))
    except (ValueError, OverflowError):
        raise ValueError(f"{option}: {text!r} is not {TIMES}") from None


class BalanceQuery:
    """The request of the command; ``now`` may be called repeatedly."""

    def __init__(
        self, keys: DaemonKeys, parameters: dict[str, str], by: Rows | None, rebuild: bool, full: bool = False
    ) -> None:
        self._keys, self._query_parameters, self._by, self._rebuild = keys, parameters, by, rebuild
        self.full = full
        self._tallies: RowCounts | None = None
        self._quarantined, self._sent_back = 0, dict[str, Counts]()

    def now(self) -> dict[str, Any]:
        """Return the balance with its receipt, and with rows if ``by`` is set."""
        document = self._rebuilt() if self._rebuild else query_daemon(self._keys, "/balance", **self._query_parameters)
        document |= self.local_facts(document)
        document |= {"receipt": receipt(document).document()}
        return document | ({"by": self._by, "rows": self._rows(document)} if self._by else {})

    def local_facts(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of the receipt that only this machine knows; none for a part of the time."""
        if self._query_parameters:
            return {}
        facts = self._unreadable_files()
        topics = document["topics"]
        quarantined = sum(Counts(topic["fates"]).total(Name.QUARANTINED) for topic in topics)
        is_unread = topics and not any(topic["read_by_pipeline"] for topic in topics)
        if not (is_unread or quarantined):
            return facts
        from penstock.landing.landing_lock import is_running
        from penstock.landing.table_paths import Layout

        layout = Layout.for_tables(self._keys.tables_place)
        facts |= {"pipeline_starts": is_running(layout)} if is_unread else {}
        if quarantined != self._quarantined:
            # Fast path: with --watch the rows are counted again when the quarantine has changed.
            self._quarantined, self._sent_back = quarantined, {}
            # Fast path: the import takes a tenth of a second of CPU.
            if layout.sent_back.exists():
                from penstock.upkeep.quarantine.send_back import count_sent_back

                with contextlib.suppress(PenstockError, OSError):
                    self._sent_back = count_sent_back(layout)
        return facts | ({"sent_back": self._sent_back} if self._sent_back else {})

    def _unreadable_files(self) -> dict[str, Any]:
        from penstock.landing.table_paths import Layout
        from penstock.upkeep.repair.unreadable_files import unreadable_files

        lines: list[str] = []
        # A store that is away hides them.
        with contextlib.suppress(PenstockError, OSError):
            lines = unreadable_files(Layout.for_tables(self._keys.tables_place))
        return {"unreadable": lines} if lines else {}

    def show(self, document: dict[str, Any], out: Callable[[Any], None]) -> None:
        """Print the receipt, or the rows or books that the options ask for, as lines and tables of rich."""
        if self._by or self.full:
            # Rich's tables are slow to import.
            from penstock.cli.balance_tables import ByTable, show

        if self._by:
            out(ByTable(self._by, document["rows"]))
        else:
            for line in receipt_lines(document, self._last_event(), is_part=bool(self._query_parameters)):
                out(line)
        if self.full and not self._by:
            show(document, out)
        for line in [*differing_hosts(document), *differing_over_kafka(document)]:
            out(line)
        for line in document.get("differs", []):
            out(f"differs: {line}")
        if self._by or self.full:
            from rich.text import Text

            out(Text(f"unaccounted: {document['unaccounted']}", style="bold"))
            out(Text(document.get("clock", ""), style="red"))
            for process, silent_s in document.get("silent", {}).items():
                out(Text(f"{process}: silent for {silent_s:.0f} s", style="yellow"))

    def _last_event(self) -> str:
        # The newest event of the timeline may be of another time than a selected part.
        if self._rebuild or self._query_parameters:
            return ""
        events = query_daemon(self._keys, "/events", limit="1")["events"]
        return f"last event: {event_line(events[0])}" if events else ""

    def _rebuilt(self) -> dict[str, Any]:
        from penstock.landing.table_paths import Layout
        from penstock.ledger.rebuild import rebuild_balance

        # Imports pyarrow.dataset.
        from penstock.proof.commit_faults import current_complaints
        from penstock.proof.posts.tables import table_posts
        from penstock.upkeep.repair.scrub import find_damaged_files

        settings = self._keys.load_all()
        require_data(settings)
        listeners = [listener.name for listener in settings.listener]
        posts = table_posts(settings)
        document = rebuild_balance(
            settings.topics, settings.buffers, listeners, posts, self._running_balance, self._within()
        )
        damaged = [
            f"{name} is damaged: {reason}" for name, reason in find_damaged_files(Layout.for_tables(settings.tables))
        ]
        is_exact = not document["differs"] and not document["unaccounted"]
        faults = [fault.text for fault in current_complaints(Layout.for_tables(settings.tables), is_exact)]
        return document | {"differs": [*document["differs"], *damaged, *faults]}

    def _running_balance(self) -> dict[str, Any] | None:
        # Without a running daemon there is nothing to compare the rebuilt balance with.
        with contextlib.suppress(OSError):
            status, body = Access(self._keys).request("/balance", parameters=self._query_parameters)
            return dict(json.loads(body)) if status < 400 else None
        return None

    def _within(self) -> int | range | None:
        bounds = {name: int(text) for name, text in self._query_parameters.items()}
        if not bounds:
            return None
        # Imports the log.
        from penstock.ledger.balance import LAST, minutes

        return bounds["bucket"] if "bucket" in bounds else minutes(bounds.get("since", 0), bounds.get("until", LAST))

    def _rows(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        if self._by == "listener":
            return by_listener(document)
        if self._by == "topic":
            return by_topic(document)
        if self._by == "relay":
            return by_host_listener(document)
        return self._landed_rows()

    def _landed_rows(self) -> list[dict[str, Any]]:
        """Return landed rows by type or host, most first."""
        # Parquet is slow to import.
        from penstock.landing.table.row_counts import RowCounts
        from penstock.landing.table_paths import Layout

        within = self._within()
        # Fast path: with --watch the counts of files that were read stay, and only new files are read.
        if self._tallies is None:
            span = range(within, within + 1) if isinstance(within, int) else within
            self._tallies = RowCounts(Layout.for_tables(self._keys.load_all().tables), str(self._by), span)
        from penstock.cli.progress import Progress

        with Progress("counting") as progress:
            counted = self._tallies.count(lambda number, of: progress.update(f"{number} of {of} files"))
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return [{"kind": kind, str(self._by): value, "rows": rows} for (kind, value), rows in ordered]


def by_listener(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per route of a listener or API: losses before acceptance, and the fates of accepted messages."""
    from penstock.cli.balance_tables import ALWAYS_SHOWN, FATES

    counts = {listener["name"]: listener["counts"] for listener in document["listeners"]}
    rows = []
    for route in document["routes"]:
        source_counts = Counts(counts.get(route["source"], {}))
        lost = {name.rstrip("."): source_counts.total(name) for name in (*LOST_BEFORE, Name.SKIPPED_BYTES)}
        route_counts = {name: route[name] for name in ("handler", "accepted", *FATES, *ALWAYS_SHOWN)}
        rows.append({"listener": route["source"], **lost, **route_counts})
    return rows


def by_topic(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per topic: its messages and their fates."""
    return [
        {"topic": topic["topic"], "logged": topic["logged"], **topic["fates"]}
        | {name: topic[name] for name in ("pending", "unaccounted")}
        for topic in document["topics"]
    ]


def exit_status(document: dict[str, Any]) -> int:
    """Return 1 if a message is unaccounted for, a file of the tables cannot be read, or a balance differs, else 0."""
    differs = (
        document.get("differs") or document.get("unreadable") or differing_hosts(document) or has_missing(document)
    )
    return 1 if document["unaccounted"] or differs else 0


def receipt_lines(document: dict[str, Any], last: str = "", is_part: bool = False) -> list[str]:
    """Return a receipt of lines of 80 characters, the verdict first and ``last`` last if a line is free.

    A wrong clock, silent processes, a full disk and losses are never cut. Losses or a remark over several lines count
    as one line. ``is_part`` marks a receipt of some minutes only: senders report totals, not minutes.
    """
    summary, width = receipt(document), min(RECEIPT_WIDTH, terminal_width())
    lines = [verdict(summary), *wrapped_terms(sentence(summary), " + ", width), bar(summary, width)]
    losses = reasons(summary.losses_by_reason(), MAX_LOSSES, summary.skipped_bytes)
    lost = f"lost: {losses}" if summary.lost else ""
    silent = ", ".join(f"{process} silent for {s:.0f} s" for process, s in document.get("silent", {}).items())
    failure = document.get("landing_failure", {})
    failed = f"{failure['text']}; next: {failure['advice']}" if failure else ""
    missing = [entry["text"] for entry in not_started_in(document)][:MAX_NOT_STARTED]
    unreadable = document.get("unreadable", [])[:MAX_NOT_STARTED]
    urgent = (document.get("clock", ""), silent, *missing, failed, *unreadable, unwritten_text(document))
    for line in filter(None, urgent):
        lines += textwrap.wrap(line, width)
    loss_lines = wrapped_terms(lost, ", ", width)
    lines += loss_lines
    max_lines = RECEIPT_LINES + max(0, len(loss_lines) - 1)
    remark_lines = (
        []
        if is_part
        else textwrap.wrap(remarks(summary), width, max_lines=MAX_REMARK_LINES, placeholder="…", break_on_hyphens=False)
    )
    if remark_lines and len(lines) < max_lines:
        lines += remark_lines
        max_lines += len(remark_lines) - 1
    if last and (free_lines := max_lines - len(lines)) > 0:
        lines += textwrap.wrap(last, width, max_lines=free_lines, placeholder="…")
    return lines


def wrapped_terms(text: str, separator: str, width: int) -> list[str]:
    """Return terms, separated by ``, `` or `` + ``, in lines of ``width`` characters that end behind a separator."""
    # textwrap keeps words together that a no-break space joins.
    bound_separator = separator.replace(" ", "\xa0")[:-1] + " "
    bound = text.replace(" ", "\xa0").replace(separator.replace(" ", "\xa0"), bound_separator)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(bound, width, break_on_hyphens=False)]


def _watch(query: BalanceQuery, as_json: bool) -> int:
    """Print the balance every second until Ctrl-C, as JSON one line each; return the exit status."""
    from rich.live import Live

    from penstock.cli.common import console

    document: dict[str, Any] = {"unaccounted": 0}
    display = contextlib.nullcontext() if as_json else Live(console=console, auto_refresh=False)
    try:
        with display as live:
            while True:
                document = query.now()
                if live is None:
                    # Flushed, so that a program at the other end of a pipe sees each second.
                    print(json.dumps(document), flush=True)
                else:
                    live.update(_render(query, document), refresh=True)
                time.sleep(WATCH_INTERVAL_S)
    except KeyboardInterrupt:
        return exit_status(document)


def _render(query: BalanceQuery, document: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    query.show(document, lambda part: parts.append(Text(part) if isinstance(part, str) else part))
    return Group(*parts)


def _print(part: Any) -> None:
    if isinstance(part, str):
        # Fast path: a receipt does without rich, which takes longer to import than the rest of the command.
        print(part)
        return
    from penstock.cli.common import console

    console.print(part)
