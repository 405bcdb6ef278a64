"""The output of ``penstock up``: the fate of the sample, the first rows, the balance, and commands to continue with."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from rich.progress import Progress

from penstock.cli.balance import receipt_lines
from penstock.cli.balance_tables import show as show_balance
from penstock.cli.common import console
from penstock.cli.run.sample_messages import Sample
from penstock.client import UdpSender
from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.counts import Counts
from penstock.supervise.endpoints import endpoints

POLL_INTERVAL_S = 0.25
LANDING_FATES = ("landed.", "quarantined.", "duplicate")
"""Counts that only the pipeline makes."""
STALL_TIMEOUT_S = 300.0
"""Time without progress after which the sample counts as stalled; a cold start of Spark takes less."""
PROBE_TIMEOUT_S, PROBE_POLL_S = 30.0, 0.05
"""Limit for the landing of one event, and the resolution of the printed time."""


class Tour:
    """The tour of one running pipe."""

    def __init__(self, settings: Settings, spark: bool) -> None:
        self._settings, self._spark = settings, spark
        self._daemon = Access(settings).client()

    def run_sample(self, check: Callable[[], None]) -> bool:
        """Send the sample, wait for it and print its fate; return whether every message is accounted for."""
        before = self._balance()
        addresses = self._addresses()
        max_line = next(each.max_line for each in self._settings.listener if each.name == "events-tcp")
        with Progress(console=console, transient=True) as progress:
            sending = progress.add_task("sending the sample", total=None)
            sample = Sample(addresses, max_line, lambda count: progress.advance(sending, count))
            progress.update(sending, total=sample.total)
            sample.send()
        for listener, counts in sample.sent.by_listener.items():
            self._post_sent(listener, counts)
        console.print(f"sent {sample.total} messages made of {sample.source}, and a few broken on purpose")
        goals = self._goals(sample)
        if self._spark:
            console.print("waiting for Spark to start and land them (about a minute)")
        balance = self._wait_for_goals(goals, before, check)
        if not is_settled(balance, before, goals):
            console.print(f"no progress for {STALL_TIMEOUT_S:g} s; is the machine busy? The balance so far:")
        elif self._spark:
            self._show_tables()
            seconds = self._probe(check)
            console.print(
                f"a message sent now (an event of type `probe`) is in the tables, and proved, after {seconds:.1f} s"
            )
            # The probe landed in addition to the sample.
            goals["landed.event"] += 1
            balance = self._balance()
        return self._conclude(goals, before, balance)

    def print_directions(self, console_too: bool = False) -> None:
        """Print commands to send, read and query, and the address of the console."""
        addresses, settings = self._addresses(), self._settings
        udp, syslog = addresses.get("events-udp"), addresses.get("syslog-udp")
        console.print()
        if udp:
            host, port = udp
            console.print(f"send:    printf 'yipee!' | socat -t0 - UDP-DATAGRAM:{host}:{port}", markup=False)
            line = f"UdpSender('{host}', {port}).send(b'yipee!')"
            console.print(
                f'         python -c "from penstock.client import UdpSender; {line}"',
                markup=False,
                soft_wrap=True,
            )
        if syslog:
            console.print(f"         logger -n {syslog[0]} -P {syslog[1]} 'yipee!'", markup=False)
        for listener in self._settings.listener:
            if listener.protocol == "http" and (address := addresses.get(listener.name)):
                body = '{"type": "hello", "uuid": "1", "timestamp": 1767225600000}'
                secure = "https" if listener.tls_cert else "http"
                host = f"[{address[0]}]" if ":" in address[0] else address[0]
                console.print(
                    f"         curl {secure}://{host}:{address[1]}/ -d '{body}'", markup=False, soft_wrap=True
                )
        console.print(f"read:    penstock consume events --follow -o log.grpc={settings.log.grpc}", markup=False)
        console.print(f"balance: penstock balance -o log.http={settings.log.http}", markup=False)
        if self._spark:
            views = "events, syslog, messages and quarantine are views on `landed`"
            console.print(f"tables:  {settings.tables} ({views})", soft_wrap=True)
            query = "select type, count(*) from events group by type"
            console.print(f"query:   penstock sql '{query}'", soft_wrap=True)
        if console_too:
            console.print(f"console: {settings.console.url}", markup=False)
        console.print("Ctrl-C stops everything.", style="dim")

    def _addresses(self) -> dict[str, tuple[str, int]]:
        listeners = endpoints(self._settings.data_dir).get("listeners", {})
        return {name: (host, port) for name, (host, port) in listeners.items()}

    def _balance(self) -> dict[str, Any]:
        answer = self._daemon.get("/balance").raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def _post_sent(self, listener: str, counts: Counts) -> None:
        """Report the sent counts to the ledger, which then knows what the network lost."""
        post = {"tier": "client", "listener": listener, "sender": uuid.uuid4().hex, "version": 1, "counts": counts}
        self._daemon.post("/ledger", json=post).raise_for_status()

    def _goals(self, sample: Sample) -> Counts:
        """Return the expected counts of the sample; without Spark, messages end in the log."""
        expected = sample.sent.expected
        if self._spark:
            return expected
        goals = Counts({name: count for name, count in expected.items() if not name.startswith(LANDING_FATES)})
        goals["logged"] = sum(expected.values()) - sum(goals.values())
        return goals

    def _wait_for_goals(self, goals: Counts, before: dict[str, Any], check: Callable[[], None]) -> dict[str, Any]:
        """Return the balance when all ``goals`` are reached and nothing is pending, or when progress stalls."""
        with Progress(console=console, transient=True) as progress:
            landing = progress.add_task("landing" if self._spark else "logging", total=sum(goals.values()))
            last, deadline = Counts(), time.monotonic() + STALL_TIMEOUT_S
            while True:
                check()
                balance = self._balance()
                reached = growth(balance, before, goals)
                progress.update(landing, completed=sum(reached.values()))
                if reached != last:
                    last, deadline = reached, time.monotonic() + STALL_TIMEOUT_S
                if is_settled(balance, before, goals) or time.monotonic() > deadline:
                    return balance
                time.sleep(POLL_INTERVAL_S)

    def _probe(self, check: Callable[[], None]) -> float:
        """Return the seconds from sending an event to its proof in the tables."""
        landed = all_counts(self._balance())["landed.event"]
        started = time.monotonic()
        event = {"type": "probe", "uuid": str(uuid.uuid4()), "timestamp": int(time.time() * 1000), "data": {}}
        with UdpSender(*self._addresses()["events-udp"]) as sender:
            sender.send(json.dumps(event).encode())
        # The report of a sender counts by its own id, so the probe reports as a further sender.
        self._post_sent("events-udp", Counts({"datagrams": 1, "messages": 1}))
        while all_counts(self._balance())["landed.event"] == landed and time.monotonic() - started < PROBE_TIMEOUT_S:
            check()
            time.sleep(PROBE_POLL_S)
        return time.monotonic() - started

    def _show_tables(self) -> None:
        # Imported here: pyarrow.dataset is slow to import.
        from penstock.cli.tables.contents import rows_by_view, sample_rows

        for view, rows in rows_by_view(self._settings.tables).items():
            console.print(f"{rows:>8}  {view}")
        console.print(sample_rows(self._settings.tables, 5))

    def _conclude(self, goals: Counts, before: dict[str, Any], balance: dict[str, Any]) -> bool:
        dropped = sum(listener["counts"].get("kernel_dropped", 0) for listener in balance["listeners"])
        reached = growth(balance, before, goals)
        # If the kernel dropped datagrams, the counts cannot match, and the drops are in the balance already.
        mismatches = [name for name, count in goals.items() if reached[name] != count] if not dropped else []
        lost = sum(listener["network_lost"] or 0 for listener in balance["listeners"])
        unaccounted = balance["unaccounted"] + lost
        is_complete = unaccounted == 0 and not balance["pending"] and not mismatches
        if not is_complete:
            show_balance(balance, console.print)
        for line in receipt_lines(balance):
            console.print(line, markup=False, soft_wrap=True)
        for name in mismatches:
            console.print(f"{name}: {goals[name]} sent, {reached[name]} counted", style="red")
        if balance["pending"]:
            console.print(f"still pending: {balance['pending']}", style="yellow")
        console.print(f"unaccounted: {unaccounted}", style="bold")
        return is_complete


def is_settled(now: dict[str, Any], then: dict[str, Any], goals: Counts) -> bool:
    """Report whether all ``goals`` were reached between two balances and nothing is pending."""
    return growth(now, then, goals) == goals and not now["pending"]


def growth(now: dict[str, Any], then: dict[str, Any], names: Counts) -> Counts:
    """Return the growth of each of ``names`` between two balances."""
    later, earlier = all_counts(now), all_counts(then)
    return Counts({name: later[name] - earlier[name] for name in names})


def all_counts(balance: dict[str, Any]) -> Counts:
    """Return all counts of a balance in one mapping: of listeners, of topics, and ``logged`` in sum."""
    total = Counts({"logged": sum(topic["logged"] for topic in balance["topics"])})
    for listener in balance["listeners"]:
        total.absorb(listener["counts"])
    for topic in balance["topics"]:
        total.absorb(topic["fates"])
    return total
