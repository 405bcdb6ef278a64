from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.flight as flight
import pytest
from crc32c import crc32c
from typer.testing import CliRunner

import penstock.log
from penstock.cli.log import topic_list
from penstock.cli.log import topics as commands
from penstock.cli.options import Commands
from penstock.client import Cursor, Gap, Log, Swept, Topic
from penstock.testing.pipe import wait_until
from tests.server.running import Running

app = Commands()
app.command()(topic_list.topics)
app.command()(commands.cleanup)
app.add_typer(commands.topic, name="topic")


def run(running: Running, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--rpc", running.bound.grpc])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.stderr


def over_http(running: Running, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "-o", f"log.http={running.bound.http}"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_topics_lists_sizes_and_cursors(running: Running) -> None:
    assert len(run(running, "topics").splitlines()) == 1
    with Log(running.bound.grpc) as log:
        log.append("b", [b"x"] * 1500)
        log.append("a", [b"x"])
        log.commit_cursor("b", "reader", 1000)
    header, first, second, lag = run(running, "topics").splitlines()
    assert header.split()[:5] == ["topic", "entries", "first", "next", "size"]
    assert first.split()[:4] == ["a", "1", "0", "1"]
    assert second.split()[:4] == ["b", "1,500", "0", "1,500"]
    assert lag == "  lag: reader 500"


def test_listing_with_cursors_fits_80_columns() -> None:
    cursors = [{"name": f"reader-{number}", "lag_entries": 1_234_567} for number in range(12)]
    figures = {"entries": 1_234_567, "start": 1_000_000, "end": 2_234_567, "bytes": 1 << 29, "segments": 99}
    times = {"oldest": "2026-01-01T00:00:00Z", "newest": "2026-01-02T00:00:00Z"}
    short, long = "orders", "orders-of-all-customers-of-the-web-shop"
    topics = [{"name": name, **figures, **times, "cursors": cursors} for name in (short, long)]
    lines = topic_list.topic_lines(topics, width=80)
    assert max(map(len, lines)) <= 80, lines
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["topic", short, "orders-of-all-c…"]
    assert " ".join(lines).count("1,234,567") == 26, "figures are whole, of topics and cursors"
    assert any(line.startswith(f"{long}  ") for line in topic_list.topic_lines(topics))


def test_topics_prints_json(running: Running) -> None:
    assert json.loads(run(running, "topics", "--json")) == []
    with Log(running.bound.grpc) as log:
        log.append("t", [b"x"] * 3)
        log.commit_cursor("t", "reader", 1)
    (topic,) = json.loads(run(running, "topics", "--json"))
    assert {name: topic[name] for name in ("name", "start", "end", "entries", "gaps")} == {
        "name": "t",
        "start": 0,
        "end": 3,
        "entries": 3,
        "gaps": [],
    }
    assert datetime.fromisoformat(topic["oldest"]) <= datetime.fromisoformat(topic["newest"])
    assert topic["cursors"][0]["lag_entries"] == 2
    assert topic["settings"]["durability"] == "synced"


def test_listing_is_equal_over_http_and_grpc(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.create_topic("t", segment_size_limit=20_000, retain_bytes=1)
        for _ in range(60):
            log.append("t", [b"x"])
        log.cleanup()
        log.commit_cursor("t", "reader", 60)
        log.create_topic("empty")
    (empty, filled), over_grpc = (json.loads(over_http(running, "topics", "--json")), run(running, "topics", "--json"))
    assert [empty, filled] == json.loads(over_grpc)
    assert (empty["oldest"], filled["end"], filled["gaps"][0]["begin"]) == (None, 60, 0)
    assert over_http(running, "topics").split()[:2] == ["topic", "entries"]
    assert json.loads(over_http(running, "topics", "--json", "--rate", "0.1"))[0]["entries_per_second"] == 0


def test_listing_reports_damaged_topic_and_lists_the_others(tmp_path: Path) -> None:
    files = penstock.log.Log(tmp_path)
    for name in ("good", "newer"):
        files.topic(name, create=True).cursors.commit("reader", 0)
    files.close()
    text = b'{"format": 2, "offset": 0}'
    (tmp_path / "newer" / "cursors" / "reader.cursor").write_bytes(b"%08x" % crc32c(text) + text)
    running = Running(tmp_path)
    try:
        listed = CliRunner().invoke(app, ["topics", "--json", "--rpc", running.bound.grpc])
        assert [entry["name"] for entry in json.loads(listed.stdout)] == ["good"]
        message = (
            "penstock: topic 'newer' is not opened: reader.cursor has format 2, this version of Penstock reads 1\n"
        )
        assert listed.stderr == message
        listed = CliRunner().invoke(app, ["topics", "-o", f"log.http={running.bound.http}"])
        assert (listed.stderr, "good" in listed.stdout) == (message, True)
        assert run(running, "topic", "show", "newer", code=1) == message
        with Log(running.bound.grpc) as log:
            assert [cursor.topic for cursor in log.cursors()] == ["good"]
        with flight.connect(f"grpc://{running.bound.flight}") as client:
            assert [entry.descriptor.path for entry in client.list_flights()] == [[b"good"]]
    finally:
        running.stop()


def test_topics_measures_the_append_rate(running: Running) -> None:
    stop = threading.Event()

    def append() -> None:
        with Log(running.bound.grpc) as log:
            while not stop.is_set():
                log.append("t", [b"x"] * 10)
                time.sleep(0.05)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        with Log(running.bound.grpc) as log:
            while not log.topics():
                time.sleep(0.05)
        # A busy machine may keep the thread from appending during a measurement.
        wait_until(lambda: json.loads(run(running, "topics", "--rate", "0.5", "--json"))[0]["entries_per_second"] > 0)
        assert "per second" in run(running, "topics", "--rate", "0.1")
    finally:
        stop.set()
        thread.join()


def test_topic_is_created_configured_shown_and_deleted(running: Running) -> None:
    created = json.loads(run(running, "topic", "create", "t", "retain_bytes=1GiB", "readers=alice,*", "--json"))
    assert created["settings"]["retain_bytes"] == 1 << 30
    assert created["settings"]["readers"] == ["alice", "*"]
    run(running, "topic", "configure", "t", "stale_after=36h", "compression=zstd")
    printed = run(running, "topic", "show", "t")
    for line in ("  retain_bytes = 1GiB", "  readers = alice,*", "  stale_after = 36h", "  compression = zstd"):
        assert line in printed.splitlines()
    assert "confirm with --yes" in run(running, "topic", "delete", "t", code=2)
    assert run(running, "topic", "delete", "t", "--yes") == "t deleted\n"
    assert json.loads(run(running, "topics", "--json")) == []


def test_forget_cursor_removes_the_cursor(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [b"x"])
        log.commit_cursor("t", "reader", 1)
        assert "has no cursor 'raeder'; its cursors are: reader" in run(
            running, "topic", "forget-cursor", "t", "raeder", code=1
        )
        assert run(running, "topic", "forget-cursor", "t", "reader") == "reader of t forgotten\n"
        assert log.cursors() == []


def test_error_is_one_line(running: Running) -> None:
    for arguments, expected in [
        (("topic", "show", "nope"), "nope"),
        (("topic", "delete", "nope", "--yes"), "nope"),
        (("topic", "create", "NO"), "conform"),
        (("topic", "create", "t", "retain=1"), "retain: no setting of a topic"),
        (("topic", "create", "t", "retain_bytes=much"), "retain_bytes: 'much' is not a size such as 16MiB"),
    ]:
        (line,) = run(running, *arguments, code=1).splitlines()
        assert line.startswith("penstock: ")
        assert expected in line
    assert "name the settings" in run(running, "topic", "configure", "t", code=2)
    assert "KEY=VALUE" in run(running, "topic", "create", "t", "retain_bytes", code=2)


def test_cleanup_prints_dropped_entries(running: Running) -> None:
    assert run(running, "cleanup") == "nothing to drop\n"
    with Log(running.bound.grpc) as log:
        log.create_topic("t", segment_size_limit=20_000, retain_bytes=1)
        for _ in range(60):
            log.append("t", [b"x"])
    (swept,) = [entry for entry in json.loads(run(running, "cleanup", "--json")) if entry["begin"] == 0]
    assert swept["topic"] == "t"
    assert swept["reason"].startswith("expired")
    assert 0 < swept["end"] < 60
    assert swept["bytes"] > 0


NO_DAEMON = "penstock: no log daemon answers at 127.0.0.1:1: "


@pytest.mark.parametrize("command", [["produce", "x"], ["consume", "x", "--follow"]], ids=" ".join)
def test_command_without_daemon_is_one_error_line(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *command, "--rpc", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(NO_DAEMON)


@pytest.mark.parametrize(
    "command", [["topics"], ["topic", "create", "x"], ["topic", "delete", "x", "--yes"], ["cleanup"]], ids=" ".join
)
def test_managing_topics_without_daemon_is_one_error_line(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--rpc", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(NO_DAEMON)


def test_format_setting_uses_units_of_the_configuration() -> None:
    format_setting = commands.format_setting
    assert [format_setting("retain_bytes", n) for n in (0, 16 << 20, 3 << 30, 1000)] == ["0", "16MiB", "3GiB", "1000"]
    assert [format_setting("rotate_after", n) for n in (21600.0, 604800.0, 5400.0, 0.5)] == ["6h", "7d", "90m", "0.5"]
    assert format_setting("durability", "synced") == "synced"


def test_sizes_and_durations_are_readable() -> None:
    assert [topic_list.format_size(n) for n in (0, 1023, 1024, 1 << 20, 5 << 30, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "5.0 GiB",
        "1048576.0 TiB",
    ]
    assert [topic_list.format_duration(n) for n in (-1, 0, 119, 120, 7200, 172_800)] == [
        "0s",
        "0s",
        "119s",
        "2m",
        "2h",
        "2d",
    ]
    assert topic_list.format_age(None) == ""
    assert topic_list.format_age(datetime.now(UTC) - timedelta(hours=3)) == "3h ago"
    assert commands.swept_line(Swept("t", 10, 2010, 2048, "expired_read")) == (
        "t: 2,000 entries from 10 on, 2.0 KiB (expired_read)"
    )


def test_show_topic_prints_gaps_and_cursors(capsys: pytest.CaptureFixture[str]) -> None:
    cursor = Cursor("t", "reader", 5, 1000, 4096, 7200.0)
    commands.show_topic(Topic("t", 3, 1005, 5000, 1, None, None, [Gap(0, 3, "corrupt")], [cursor], {}), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "t: 1,002 entries from 3 to 1,005, 4.9 KiB",
        "  cursor reader: 5, 1,000 entries, 4.0 KiB, 2h behind",
        "  gap 0 to 3: corrupt",
    ]
