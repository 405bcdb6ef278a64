"""``penstock balance``: of a stretch of time, by listener, topic, type and host, and again and again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.balance import (
    MAX_REMARK_LINES,
    BalanceQuery,
    _render,
    balance,
    exit_status,
    parse_moment_or_age,
    receipt_lines,
)
from penstock.cli.balance_tables import ByTable
from penstock.cli.host_balance import by_host_listener, differing_hosts, differing_over_kafka
from penstock.cli.options import Commands
from penstock.config import Settings
from penstock.config.daemon_keys import DaemonKeys
from penstock.counts import Counts, Origin
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.records import body
from penstock.sql.quarantined import Selection, newest
from penstock.sql.tables import Tables
from penstock.upkeep.quarantine.send_back import SendBack
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import HandWritten, landed_event
from tests.upkeep.quarantine.test_send_back import Log

MINUTES = (6000, 6060, 6120)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    """Three messages in each of three minutes; the first minute's have landed."""
    with daemon(tmp_path, now=lambda: 7000.0) as started:
        topic = started.log.topic("events", create=True)
        for minute in MINUTES:
            counts = Counts({"taken": 4, "unboxed": 4, "seen": 4, "accepted": 3, "refused.oversize": 1})
            topic.append(body([b"x"] * 3), Origin("udp", minute, 0, 0, "plog", counts)).result(20)
        topic.wait_until_idle()
        started.ledger.post(landed(through=3, minute=MINUTES[0], count=3))
        yield started


def landed(through: int, minute: int, count: int) -> dict[str, Any]:
    counts = [{"source": "udp", "bucket": minute, "counts": {"landed.message": count}}]
    return {"tier": "landed", "topic": "events", "version": through, "through": through, "counts": counts}


def options(running: Daemon, tmp_path: Path) -> list[str]:
    return ["-o", f"data_dir={tmp_path}", "-o", f"log.http={running.http}", "-o", f"log.grpc={running.grpc}"]


def run(running: Daemon, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    app = Commands()
    app.command("balance")(balance)
    result = CliRunner().invoke(app, [*options(running, tmp_path), *arguments])
    return result.exit_code, result.output


def query_balance(running: Daemon, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    status, text = run(running, tmp_path, *arguments, "--json")
    document: dict[str, Any] = json.loads(text)
    assert status == bool(document["unaccounted"])
    return document


def test_balance_of_a_range_has_only_its_minutes(running: Daemon, tmp_path: Path) -> None:
    def logged(*arguments: str) -> int:
        document = query_balance(running, tmp_path, *arguments)
        assert document["unaccounted"] == 0
        return sum(topic["logged"] for topic in document["topics"])

    def iso_time(seconds: int) -> str:
        return datetime.fromtimestamp(seconds).isoformat()

    assert (logged(), logged("--bucket", "6060")) == (9, 3)
    assert (
        logged("--since", iso_time(6060)),
        logged("--since", iso_time(6119)),
        logged("--until", iso_time(6060)),
    ) == (6, 6, 3)
    assert (logged("--since", iso_time(6060), "--until", iso_time(6120)), logged("--since", "1h")) == (3, 0)


def test_balance_with_unaccounted_messages_exits_with_status_1(running: Daemon, tmp_path: Path) -> None:
    running.ledger.post(landed(through=6, minute=MINUTES[1], count=2))
    second = datetime.fromtimestamp(6120).isoformat()
    assert query_balance(running, tmp_path)["unaccounted"] == 1
    assert query_balance(running, tmp_path, "--until", second)["unaccounted"] == 1
    assert query_balance(running, tmp_path, "--since", second)["unaccounted"] == 0


def test_invalid_time_is_rejected_with_its_option(running: Daemon, tmp_path: Path) -> None:
    for option, text in (("--since", "noon"), ("--until", "5x"), ("--since", "")):
        status, output = run(running, tmp_path, option, text)
        assert (status, output.count(f"{option}: {text!r} is not a time")) == (2, 1)
    assert run(running, tmp_path, "--bucket", "0", "--since", "1h")[0] == 2
    assert run(running, tmp_path, "--watch", "--rebuild")[0] == 2


def test_age_is_a_time_before_now() -> None:
    assert parse_moment_or_age("90s", 100.0, "--since") == 10
    assert parse_moment_or_age("1h", 100.0, "--since") == 0
    assert parse_moment_or_age("1970-01-01T00:01:00+00:00", 100.0, "--since") == 60


def test_names_of_hosts_do_not_reach_the_terminal_unescaped() -> None:
    counts = {"sent": None, "accepted": 1, "lost": 0, "expired": 0, "lost_with_disk": 0, "pending": 0, "unaccounted": 1}
    there = {**counts, "lag_s": 0, "reported_at": 0, "clock_offset_s": 0, "version": "\x1b[2J", "differs_since": 0}
    entry = {"host": "\x1b[2J", "listener": "\x1b[2J", "accepted": 0, "fates": {}, "pending": 0, "last_seen": 0}
    document = {"hosts": [{**entry, "on_host": there}]}
    (row,) = by_host_listener(document)
    assert [row["host"], row["listener"], row["version"]] == ["\\x1b[2J"] * 3
    assert differing_hosts(document) == ["host \\x1b[2J: 1 entries of \\x1b[2J did not arrive"]


COMPARED = {
    "accepted": 31,
    "forwarded": 20,
    "failed": 4,
    "dropped": 3,
    "pending": 2,
    "lost_with_disk": 2,
    "landed": 16,
    "in_kafka": 0,
    "missing": 5,
    "doubled": 1,
    "failed_landed": 0,
    "unposted": 0,
    "missing_minutes": [60, 120],
    "doubled_minutes": [],
    "reported_at": 180.0,
    "clock_offset_s": -0.5,
    "version": "1",
}


def test_host_over_kafka_has_a_row_with_its_sums_and_a_line_for_each_difference() -> None:
    entry = {"host": "web1", "listener": "udp", "accepted": 16, "fates": {"landed.event": 16}, "pending": 0}
    entry |= {"last_seen": 120, "on_host": None, "way": "kafka"}
    document: dict[str, Any] = {"unaccounted": 0, "hosts": [{**entry, "over_kafka": COMPARED}]}
    (row,) = by_host_listener(document)
    wanted = {"way": "kafka", "forwarded": 20, "landed.event": 16, "in kafka": 0, "missing": 5, "doubled": 1}
    assert {name: row[name] for name in wanted} == wanted
    assert differing_over_kafka(document) == [
        "host web1: 5 messages of udp forwarded to Kafka did not land, "
        "1970-01-01T00:01:00+00:00 to 1970-01-01T00:02:00+00:00",
        "host web1: 1 messages of udp landed more often than sent, before the minutes that it posts",
    ]
    assert exit_status(document) == 1
    document["hosts"] = [{**entry, "over_kafka": {**COMPARED, "missing": 0}}, {**entry, "over_kafka": None}]
    assert exit_status(document) == 0
    assert by_host_listener(document)[1]["forwarded"] == 16


def test_balance_has_one_row_per_listener_of_a_host(running: Daemon, tmp_path: Path) -> None:
    assert query_balance(running, tmp_path, "--hosts")["rows"] == []
    topic = running.log.topic("events")
    topic.append(body([b"x"] * 2), Origin("web1/udp", 6060, 0, 0, "", {"seen": 2, "accepted": 2})).result(20)
    topic.wait_until_idle()
    expected = {
        "host": "web1",
        "listener": "udp",
        "accepted": 2,
        "pending": 2,
        "last seen": "1970-01-01T01:41:00+00:00",
    }
    assert query_balance(running, tmp_path, "--hosts")["rows"] == [expected]
    assert run(running, tmp_path, "--hosts", "--by", "topic")[0] == 2


def test_balance_has_one_row_per_listener_and_topic(running: Daemon, tmp_path: Path) -> None:
    (listener,) = query_balance(running, tmp_path, "--by", "listener")["rows"]
    assert (listener["listener"], listener["refused"], listener["accepted"], listener["delivered"]) == ("udp", 3, 9, 9)
    (topic,) = query_balance(running, tmp_path, "--by", "topic")["rows"]
    assert topic == {"topic": "events", "logged": 9, "landed.message": 3, "pending": 6, "unaccounted": 0}
    status, text = run(running, tmp_path, "--by", "topic")
    assert (status, "by topic" in text, "unaccounted: 0" in text) == (0, True, True)


def test_receipt_is_six_lines_of_eighty_columns_verdict_first(running: Daemon, tmp_path: Path) -> None:
    status, text = run(running, tmp_path)
    lines = text.splitlines()
    assert (status, len(lines) <= 6, max(map(len, lines)) <= 80) == (0, True, True)
    assert lines[0] == "3 messages lost of 12, all explained"
    assert lines[1] == "12 sent = landed 25.0 % + lost 25.0 % + on the way 6"
    assert len(lines[2]) == 80
    assert lines[3:5] == ["lost: 3 refused oversize", "not known: what senders of udp sent (they do not report)"]
    assert query_balance(running, tmp_path)["receipt"]["parts"]["lost"] == 3


def test_receipt_ends_with_the_last_event(running: Daemon, tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    happened = {"tier": "event", "id": "x", "version": 0, "kind": "restart", "at": now, "until": now + 400}
    running.ledger.post(happened | {"what": "receiver udp", "cause": "was killed by SIGKILL"})
    text = run(running, tmp_path)[1].splitlines()
    assert "receiver udp was killed by SIGKILL, back after 0.4 s" in text[-1]
    assert len(text) == 6


def test_receipt_never_exceeds_six_lines(running: Daemon, tmp_path: Path) -> None:
    document = query_balance(running, tmp_path)
    fates = {"landed.event": 10**9, "quarantined.no_uuid": 10**8, "duplicate": 10**7, "gap.corrupt": 10**6}
    document["topics"].append(document["topics"][0] | {"topic": "other", "fates": fates, "pending": 10**9})
    document |= {"clock": "the clock is wrong " * 4, "unaccounted": 10**6}
    lines = receipt_lines(document, "last event: " + "x" * 99)
    assert len(lines) == 6
    assert max(map(len, lines)) <= 80
    assert lines[0] == "1,000,000 messages unaccounted for"


def test_receipt_names_each_loss_whole_and_breaks_lines_between_terms(running: Daemon, tmp_path: Path) -> None:
    document = query_balance(running, tmp_path)
    document["listeners"][0]["counts"] |= {"invalid.header": 4500, "bad_checksum": 123456, "line.overlong": 12}
    document["listeners"][0]["counts"] |= {"incomplete.expired": 7, "corrupt": 9, "kernel_dropped": 2718}
    lines = receipt_lines(document, "last event: the receiver was restarted")
    losses = " ".join(lines[lines.index(next(line for line in lines if line.startswith("lost: "))) :])
    for loss in ("123,456 with a bad checksum", "4,500 invalid header", "7 incomplete expired", "12 overlong"):
        assert any(loss in line for line in lines), lines
    assert (max(map(len, lines)) <= 80, "…" in losses) == (True, False)
    assert lines[-2:] == [
        "not known: what senders of udp sent (they do not report)",
        "last event: the receiver was restarted",
    ]


def test_wrapped_remark_leaves_the_last_event_in_the_receipt(running: Daemon, tmp_path: Path) -> None:
    document = query_balance(running, tmp_path)
    listener = document["listeners"][0]
    document["listeners"] = [listener | {"name": f"listener-with-a-long-name-{number}"} for number in range(99)]
    document["listeners"][0]["counts"] |= {"bad_checksum": 12}
    lines = receipt_lines(document, "last event: the receiver was restarted")
    remark = next(index for index, line in enumerate(lines) if line.startswith("not known: "))
    assert len(lines) == remark + 1 + MAX_REMARK_LINES
    assert lines[-1] == "last event: the receiver was restarted"
    assert max(map(len, lines)) <= 80


def test_full_prints_the_books(running: Daemon, tmp_path: Path) -> None:
    text = run(running, tmp_path, "--full")[1]
    assert text.splitlines()[0] == "3 messages lost of 12, all explained"
    assert "routes: accepted = fates + in_buffer" in text
    assert "refused.oversize" in text
    assert "unaccounted: 0" in text


def test_table_without_rows_says_so() -> None:
    out = Console(width=80, record=True, file=io.StringIO())
    out.print(ByTable("relay", []))
    assert out.export_text() == "by relay: no rows\n"


def test_wide_table_keeps_main_columns_and_fits_80_columns() -> None:
    counts = {"refused": 3, "kernel_drops": 12, "corrupt": 4, "fragment.invalid": 5, "skipped_bytes": 6}
    main = {"handler": "log", "accepted": 1234567, "delivered": 1234560, "in_buffer": 7, "unaccounted": 0}
    rows = [{"listener": name, **counts, **main, "never": 0} for name in ("events-udp", "syslog-udp")]
    out = Console(width=80, record=True, file=io.StringIO())
    out.print(ByTable("listener", rows))
    lines = out.export_text().splitlines()
    assert [line.strip() for line in lines] == [
        "by listener",
        "listener    handler  accepted  delivered  in_buffer  unaccounted",
        "events-udp  log       1234567    1234560          7            0",
        "refused 3, kernel_drops 12, corrupt 4, fragment.invalid 5, skipped_bytes 6",
        "syslog-udp  log       1234567    1234560          7            0",
        "refused 3, kernel_drops 12, corrupt 4, fragment.invalid 5, skipped_bytes 6",
    ]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", ["w" * 70, "w" * 100, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 60])
def test_nothing_of_a_name_that_is_wider_than_the_terminal_is_cut(name: str) -> None:
    out = Console(width=80, record=True, file=io.StringIO())
    out.print(ByTable("listener", [{"listener": name, "accepted": 7}] * 2))
    text = out.export_text()
    assert "".join(text.split()).count(name) == 2
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_watch_draws_the_same_as_one_print(running: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(running, tmp_path, "--by", "topic")[1]
    document = query_balance(running, tmp_path, "--by", "topic")
    ask = BalanceQuery(Settings.model_validate({"data_dir": str(tmp_path)}), {}, "topic", rebuild=False)
    Console(width=80).print(_render(ask, document))
    assert capsys.readouterr().out.split() == text.split()


def test_balance_counts_types_and_hosts_in_table_files(running: Daemon, tmp_path: Path, table: HandWritten) -> None:
    hosts = [("web-1", 6000), ("web-2", 6060), ("web-1", 6120)]
    events = [
        landed_event(number, f"u{number}", host=host, bucket=bucket, type="a:b")
        for number, (host, bucket) in enumerate(hosts)
    ]
    syslog = [{"topic": "t", "kind": "syslog", "type": None, "bucket": 6060, "offset": 3 + n} for n in range(2)]
    table.commit({"t": 5}, [*events, {**syslog[0], "host": "web-1"}, {**syslog[1], "host": None}])
    next(table.layout.landed.glob("kind=event/*")).joinpath("uncommitted.parquet").write_bytes(b"")
    assert query_balance(running, tmp_path, "--by", "type")["rows"] == [
        {"kind": "event", "type": "a:b", "rows": 3},
        {"kind": "syslog", "type": "", "rows": 2},
    ]
    assert query_balance(running, tmp_path, "--by", "type", "--bucket", "6000")["rows"] == [
        {"kind": "event", "type": "a:b", "rows": 1}
    ]
    later = datetime.fromtimestamp(6060).isoformat()
    assert query_balance(running, tmp_path, "--by", "host", "--since", later)["rows"] == [
        {"kind": "event", "host": "web-1", "rows": 1},
        {"kind": "event", "host": "web-2", "rows": 1},
        {"kind": "syslog", "host": "", "rows": 1},
        {"kind": "syslog", "host": "web-1", "rows": 1},
    ]


def test_watch_prints_the_balance_until_ctrl_c(running: Daemon, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "balance", "--watch", "--json", *options(running, tmp_path)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pending"] == 6
        running.ledger.post(landed(through=6, minute=MINUTES[1], count=2))
        end = time.monotonic() + 60
        while json.loads(process.stdout.readline())["unaccounted"] != 1:
            assert time.monotonic() < end
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()


def test_rebuild_of_a_minute_is_compared_with_the_same_minute(running: Daemon, tmp_path: Path) -> None:
    status, text = run(running, tmp_path, "--rebuild", "--json", "--bucket", "6060")
    document = json.loads(text)
    assert [topic["logged"] for topic in document["topics"]] == [3]
    (line,) = document["differs"]  # no table: the ledger alone says that a pipeline reads the topic
    assert (status, line.startswith("topic events: ")) == (1, True)


def test_receipt_knows_that_the_pipeline_starts_and_what_was_sent_back(tmp_path: Path, table: HandWritten) -> None:
    settings = Settings.model_validate({"data_dir": str(tmp_path), "pipeline": {"tables": str(table.layout.tables)}})
    keys = DaemonKeys(tables=str(table.layout.tables), load_all=lambda: settings)
    query = BalanceQuery(keys, {}, None, rebuild=False)
    unread = {"topics": [{"topic": "t", "fates": {}, "read_by_pipeline": False}]}
    assert query.local_facts(unread) == {"pipeline_starts": False}
    handle = acquire_landing_lock(table.layout, threading.Event())
    assert query.local_facts(unread) == {"pipeline_starts": True}
    os.close(handle)
    bad = {"topic": "t", "offset": 0, "kind": "quarantine", "reason": "bad_json", "payload": b"{"}
    table.commit({"t": 2}, [bad, bad | {"offset": 1}])
    read = {"topics": [{"topic": "t", "fates": {"quarantined.bad_json": 2}, "read_by_pipeline": True}]}
    assert query.local_facts(read) == {}
    SendBack(table.layout, Log()).run(newest(Tables(table.layout), Selection(), 1))
    query = BalanceQuery(keys, {}, None, rebuild=False)
    assert query.local_facts(read) == {"sent_back": {"t": {"quarantined.bad_json": 1}}}


def test_receipt_with_quarantined_messages_imports_no_arrays_until_messages_were_sent_back(tmp_path: Path) -> None:
    program = """
import sys
from penstock.cli.balance import BalanceQuery
from penstock.config.daemon_keys import daemon_keys

query = BalanceQuery(daemon_keys(None, [f"data_dir={sys.argv[1]}"]), {}, None, rebuild=False)
topic = {"topic": "t", "fates": {"quarantined.bad_json": 2}, "read_by_pipeline": True}
print(query.local_facts({"topics": [topic]}), *sys.modules)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    facts, *modules = subprocess.run(command, text=True, check=True, capture_output=True).stdout.split()
    assert facts == "{}"
    assert {"numpy", "pyarrow", "duckdb"}.isdisjoint(modules)
