"""Contracts of typed tables in pipelines that are killed at each point of a commit: counted and placed exactly."""

from __future__ import annotations

import json
import random
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import deltalake
import duckdb
import polars
import pytest

from penstock.cli.main import main as penstock
from penstock.counts import Origin
from penstock.landing.table_paths import Layout
from penstock.records import body
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET
from tests.spark.test_pipeline import start

OPTIONS = [
    'pipeline.typed.order.columns={amount={type="int",min=0,max=100},state={type="string",enum=["new","paid"]}}',
    'pipeline.typed.pay={on_violation="quarantine",columns={amount={type="decimal(6,2)",max="99.50"},'
    'country={type="string",pattern="^[A-Z]{2}$"}}}',
]
KILLED = """
import os, signal, sys
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.typed.typed_delta import TypedDelta
from penstock.spark import pipeline
folder, when = sys.argv.pop(1), sys.argv.pop(1)

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def killed_at(commit):
    def commit_and_kill(table, *words):
        is_point = table.folder.name == folder
        if is_point and when == "before":
            kill()
        commit(table, *words)
        if is_point:
            kill()
    return commit_and_kill

for kind in (DeltaTable, TypedDelta):
    kind.commit = killed_at(kind.commit)
sys.exit(pipeline.main())
"""
POINTS = [("events_order", "before"), ("landed", "after"), ("events_order", "after"), ("landed", "before")]
"""Commits before or after which pipelines are killed: two in the first batch, and two in the second one."""
BETWEEN = POINTS[2:]
"""The points at which typed tables have rows that `landed` has not: each kill is a start of Spark, 13 s of CPU."""
EVENTS = 400


def payloads(first: int, chance: random.Random) -> list[bytes]:
    """Return events with uuids from ``first`` on, of which many violate contracts, and repeats of earlier ones."""
    events = []
    for number in range(first, first + EVENTS):
        kind = chance.choice(["order", "pay", "other"])
        fields: dict[str, Any] = {"amount": chance.choice([-1, 0, 7, 100, 101, "7", None, 99.5, 99.51])}
        fields |= {"state": chance.choice(["new", "paid", "lost", 1])} if kind == "order" else {}
        fields |= {"country": chance.choice(["DE", "de", "DEU", 5])} if kind == "pay" else {}
        if chance.random() < 0.2:
            fields["more"] = number
        described = {"type": kind, "uuid": f"u{number}", "timestamp": 1_700_000_000_000 + number, "data": fields}
        events.append(json.dumps(described).encode())
    return [*events, *events[:3]]


def append(running: Daemon, events: list[bytes]) -> None:
    counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), len(events))
    origin = Origin("events-udp", BUCKET, BUCKET * 1_000_000, BUCKET * 1_000_000, "plog", counts)
    running.log.topic("t", create=True).append(body(events), origin).result(20)


def violated_rules(event: dict[str, Any]) -> list[str]:
    """Return the rules that an event violates, read one event at a time."""
    fields, violated = event["data"], []
    amount, is_number = fields["amount"], isinstance(fields["amount"], int | float)
    if event["type"] == "order":
        is_whole = isinstance(amount, int)
        violated += ["contract.order.amount.min"] if is_whole and amount < 0 else []
        violated += ["contract.order.amount.max"] if is_whole and amount > 100 else []
        is_unknown = isinstance(fields["state"], str) and fields["state"] not in ("new", "paid")
        violated += ["contract.order.state.enum"] if is_unknown else []
    if event["type"] == "pay":
        # A decimal accepts a number and a text of digits.
        violated += ["contract.pay.amount.max"] if is_number and amount > 99.5 else []
        country = fields["country"]
        is_code = isinstance(country, str) and len(country) == 2 and country.isupper()
        violated += ["contract.pay.country.pattern"] if isinstance(country, str) and not is_code else []
    return violated


def read_rows(query: str, layout: Layout) -> list[tuple[Any, ...]]:
    """Return the rows of a query over the files of ``landed``, as DuckDB reads them; {} is the list of files."""
    files = deltalake.DeltaTable(str(layout.landed)).file_uris()
    read = f"read_parquet({files}, union_by_name = true, hive_partitioning = true)"
    return duckdb.sql(query.format(read)).fetchall()


@pytest.mark.survives("typed tables and contracts", "SIGKILL")
@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "points", [pytest.param(BETWEEN, id="between"), pytest.param(POINTS, id="all", marks=pytest.mark.soak)]
)
def test_violations_are_counted_and_placed_exactly_after_kills_in_commits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    points: list[tuple[str, str]],
) -> None:
    chance, layout, sent = random.Random(40), Layout.for_tables(tmp_path / "tables"), list[bytes]()
    options = [word for option in OPTIONS for word in ("-o", option)]
    with daemon(tmp_path) as running:
        for number, point in enumerate(points):
            batch = payloads(number * EVENTS, chance)
            append(running, batch)
            sent += batch
            killed = start(tmp_path, running.http, *options, program=("-c", KILLED, *point))
            log_text = killed.communicate(timeout=300)[1]
            assert killed.returncode == -signal.SIGKILL, log_text
        last = start(tmp_path, running.http, *options, "--once")
        log_text = last.communicate(timeout=300)[1]
        assert last.returncode == 0, log_text
        balance = running.ledger.balance()
        counts = running.ledger.landed()["t"].counts["events-udp", BUCKET]
        metrics = violations_of_metrics(running)

    events = {event["uuid"]: event for event in map(json.loads, sent)}
    violations = {uuid: violated_rules(event) for uuid, event in events.items()}
    # An event in quarantine, also a repeated one, is of the first rule that it violates; one in the rest of each.
    sent_uuids = [json.loads(payload)["uuid"] for payload in sent]
    expected_quarantine = sorted(
        (u, violations[u][0]) for u in sent_uuids if violations[u] and "pay" in violations[u][0]
    )
    by_rule, refused = Counter(rule for _, rule in expected_quarantine), {uuid for uuid, _ in expected_quarantine}
    expected_rest = Counter(rule for rules in violations.values() for rule in rules if ".order." in rule)
    assert len(expected_rest) == 3
    assert len(by_rule) == 2

    assert balance.unaccounted == 0
    of_rules = {name: count for name, count in counts.items() if name.startswith("quarantined.")}
    assert of_rules == {f"quarantined.{rule}": n for rule, n in by_rule.items()}
    quarantined = read_rows("SELECT payload, reason FROM {} WHERE kind = 'quarantine'", layout)
    assert sorted((json.loads(payload)["uuid"], reason) for payload, reason in quarantined) == expected_quarantine
    landed = read_rows("SELECT uuid FROM {} WHERE kind = 'event'", layout)
    assert sorted(uuid for (uuid,) in landed) == sorted({*events} - refused)
    # Rows of typed tables are neither lost nor twice, and exactly the violating values are in the rest.
    for kind in ("order", "pay"):
        uuids = {uuid for uuid, event in events.items() if event["type"] == kind} - refused
        expected = [(uuid, expected_remainder(events[uuid], violations[uuid])) for uuid in sorted(uuids)]
        assert remainders_by_polars(layout, kind) == expected
    assert violations_of_commits(layout) == expected_rest
    assert metrics == expected_rest
    listed = violations_of_command(tmp_path, options, monkeypatch, capsys)
    assert listed == {"rest": expected_rest, "quarantine": by_rule}


def remainders_by_polars(layout: Layout, kind: str) -> list[tuple[str, Any]]:
    """Return uuid and rest of the rows of a typed table."""
    rows = polars.scan_delta(str(layout.typed(kind))).select("uuid", "rest").collect().rows()
    return sorted((uuid, json.loads(rest or "{}")) for uuid, rest in rows)


def violations_of_commits(layout: Layout) -> Counter[str]:
    """Return the violations by rule that the commits of ``landed`` state."""
    history = deltalake.DeltaTable(str(layout.landed)).history()
    stated: Counter[str] = Counter()
    for commit in (json.loads(commit["penstock"]) for commit in history if "penstock" in commit):
        stated.update(commit.get("violations", {}))
    return stated


def expected_remainder(event: dict[str, Any], violated: list[str]) -> dict[str, Any]:
    """Return the fields of an event that its typed table cannot hold."""
    fields, columns = event["data"], {rule.split(".")[2] for rule in violated}
    misfits = {
        "order": {"amount": lambda amount: not isinstance(amount, int), "state": lambda state: state == 1},
        "pay": {"amount": lambda _: False, "country": lambda country: country == 5},
    }[event["type"]]
    return {
        name: field
        for name, field in fields.items()
        if name not in misfits or name in columns or (field is not None and misfits[name](field))
    }


def violations_of_metrics(running: Daemon) -> Counter[str]:
    """Return the violations by rule that Prometheus reads from the daemon."""
    with urlopen(f"http://{running.http}/metrics") as answer:
        text = answer.read().decode()
    sample = r'^penstock_contract_violations_total\{table="(\w+)",column="(\w+)",rule="(\w+)"\} (\d+)$'
    matches = re.findall(sample, text, re.MULTILINE)
    return Counter({f"contract.{table}.{column}.{rule}": int(count) for table, column, rule, count in matches})


def violations_of_command(
    folder: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Counter[str]]:
    """Return the violations by rule and destination that ``penstock schema violations`` prints."""
    words = ["schema", "violations", "--json", "-o", f"data_dir={folder}", *options]
    monkeypatch.setattr("sys.argv", ["penstock", *words])
    with pytest.raises(SystemExit) as ended:
        penstock()
    assert ended.value.code == 0
    listed: dict[str, Counter[str]] = {}
    for entry in json.loads(capsys.readouterr().out):
        rule = f"contract.{entry['table']}.{entry['column']}.{entry['rule']}"
        listed.setdefault(entry["destination"], Counter())[rule] = entry["events"]
    return listed
