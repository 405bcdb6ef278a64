from __future__ import annotations

import base64
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.log import entries as commands
from penstock.cli.log.entries import Format, Lines, consume_pages, format_entry, parse_annotations, parse_start
from penstock.cli.options import Commands
from penstock.client import Entry, Log
from penstock.testing.pipe import wait_until
from tests.server.running import Running

app = Commands()
for command in (commands.produce, commands.consume):
    app.command()(command)


def invoke(running: Running, *arguments: str, lines: bytes = b"", code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--rpc", running.bound.grpc], input=lines)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_produced_lines_are_consumed(running: Running) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(250))
    invoke(running, "produce", "t", "--annotate", "a=b=c", lines=lines)
    assert invoke(running, "consume", "t", "--format", "payload").encode() == lines
    with Log(running.bound.grpc) as log:
        assert log.read("t", 249)[0].annotations == {"a": "b=c"}


def test_consume_starts_and_stops_at_the_options(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"0\n1\n2\n3\n")

    def consumed(*arguments: str) -> str:
        return invoke(running, "consume", "t", "--format", "payload", *arguments).replace("\n", "")

    documents = [json.loads(line) for line in invoke(running, "consume", "t", "--format", "json").splitlines()]
    assert [base64.b64decode(d["raw_bytes"]) for d in documents] == [b"0", b"1", b"2", b"3"]
    assert consumed("--from", "2") == "23"
    assert consumed("--from", documents[1]["timestamp"], "-n", "2") == "12"
    assert consumed("--from", "latest") == ""
    assert consumed("--from", "latest", "-n", "1") == "3"
    assert consumed("--follow", "-n", "4") == "0123"


def test_consume_starts_at_an_age(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"0\n1\n")
    assert len(invoke(running, "consume", "t", "--from", "10m").splitlines()) == 2
    assert invoke(running, "consume", "t", "--from", "0s") == ""


def test_consume_filters_by_annotations(running: Running) -> None:
    for number in (5, 55, 6):
        invoke(running, "produce", "t", "--annotate", f"userid={number}", lines=b"%d\n" % number)

    def consumed(text: str, *more: str) -> list[str]:
        return invoke(running, "consume", "t", "--format", "payload", "--filter", text, *more).splitlines()

    assert consumed("k:userid v:5") == ["5"]
    assert consumed("k:userid v:5.*") == ["5", "55"]
    assert consumed("NOT v:5", "--follow", "-n", "2") == ["55", "6"]
    lines = invoke(running, "consume", "t", "--filter", "k:userid v:[5", code=2).splitlines()
    assert lines[0] == "penstock: bad filter at character 12: missing ]: [5 (RE2)"
    assert lines[1:] == ["penstock: k:userid v:[5", "penstock:            ^"]


def test_cursor_continues_where_it_stopped(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"0\n1\n2\n3\n4\n")

    def consumed(*arguments: str) -> str:
        extra = ("consume", "t", "--cursor", "mine", "--format", "payload", *arguments)
        return invoke(running, *extra).replace("\n", "")

    assert consumed("-n", "2") == "01"
    assert consumed("-n", "1", "--follow") == "2"
    assert consumed() == "34"
    assert consumed() == ""
    invoke(running, "produce", "t", lines=b"5\n")
    assert consumed("--filter", "k:none") == ""
    assert consumed() == ""
    assert consumed("--from", "4") == "45"
    with Log(running.bound.grpc) as log:
        assert [(entry.name, entry.offset) for entry in log.cursors("t")] == [("mine", 6)]


def test_ctrl_c_ends_a_follower_and_commits_its_cursor(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"0\n1\n")
    follower = start(running, "consume", "t", "--follow", "--cursor", "mine", "--format", "payload")
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
    wait_for_cursor(running, follower)  # else what was just printed may come again
    follower.send_signal(signal.SIGINT)
    output, errors = follower.communicate(timeout=30)
    assert (follower.returncode, output, errors) == (130, b"", b"")
    assert invoke(running, "consume", "t", "--cursor", "mine") == ""


def test_cursor_of_follower_moves_when_its_filter_matches_nothing(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"0\n1\n")
    follower = start(running, "consume", "t", "--follow", "--cursor", "mine", "--filter", "k:none")
    wait_for_cursor(running, follower)
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=30) == (b"", b"")


def wait_for_cursor(running: Running, follower: subprocess.Popen[bytes]) -> None:
    """Until the follower has committed that it has read all."""
    with Log(running.bound.grpc) as log:
        while [(entry.name, entry.lag_entries) for entry in log.cursors("t")] != [("mine", 0)]:
            assert follower.poll() is None
            time.sleep(0.05)


def test_ctrl_c_ends_produce_after_the_lines_read(running: Running) -> None:
    producer = start(running, "produce", "t")
    assert producer.stdin is not None
    with Log(running.bound.grpc) as log:
        producer.stdin.write(b"0\n")
        producer.stdin.flush()
        while not log.topics():
            time.sleep(0.05)
        producer.stdin.write(b"1\n")
        producer.stdin.flush()
        wait_until(lambda: has_read_all_lines(producer))
        producer.send_signal(signal.SIGINT)
        assert producer.wait(30) == 130
        assert producer.stderr is not None
        assert producer.stderr.read() == b"2 messages appended to t\n"
        assert [entry.payload for entry in log.read("t")] == [b"0", b"1"]
    producer.stdin.close()


def has_read_all_lines(process: subprocess.Popen[bytes]) -> bool:
    """Return whether nothing waits in the standard input of a process and a thread of it waits for more."""
    assert process.stdin is not None
    (unread_bytes,) = array("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))
    calls = [path.read_text().split()[:2] for path in Path(f"/proc/{process.pid}/task").glob("*/syscall")]
    # The number of read() on x86-64 and on ARM; a line that was read is in the queue before the next call.
    return not unread_bytes and any(call in (["0", "0x0"], ["63", "0x0"]) for call in calls)


def start(running: Running, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments, "--rpc", running.bound.grpc]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def test_unknown_topic_is_named_with_the_most_similar_one(running: Running) -> None:
    assert invoke(running, "consume", "nope", code=1) == "penstock: Topic does not exist: nope\n"
    invoke(running, "produce", "orders", lines=b"x\n")
    assert invoke(running, "consume", "ordres", code=1) == (
        "penstock: Topic does not exist: ordres (did you mean 'orders'?)\n"
    )
    assert invoke(running, "consume", "zzz", code=1).endswith("zzz (known: orders)\n")


def test_error_is_one_line(running: Running) -> None:
    assert invoke(running, "consume", "nope", code=1) == "penstock: Topic does not exist: nope\n"
    assert "conform" in invoke(running, "produce", "NO", lines=b"x\n", code=1)
    result = CliRunner().invoke(app, ["consume", "t", "-o", "log.grcp=1"])
    assert result.exit_code == 2
    assert "log.grcp" in result.stderr


def test_consume_ends_quietly_when_its_reader_closes(running: Running) -> None:
    invoke(running, "produce", "t", lines=b"x\n" * 5000)
    command = f'"{sys.executable}" -m penstock.cli.main consume t --rpc {running.bound.grpc} | head -n 1'
    pipe = subprocess.run(command, shell=True, capture_output=True, timeout=60, env=dict(os.environ))
    assert pipe.stdout.startswith(b"0 ")
    assert pipe.stderr == b""


def test_lines_are_batched_by_the_hundred() -> None:
    assert [len(batch) for batch in Lines([b"x\r\n"] * 250).batches()] == [100, 100, 50]
    assert list(Lines([b"a\n", b"\n", b"b"]).batches()) == [[b"a", b"", b"b"]]
    assert list(Lines([]).batches()) == []


def test_line_waits_no_longer_than_the_limit() -> None:
    go_on = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"first\n"
        assert go_on.wait(10)
        yield b"second\n"

    parts = Lines(lines(), seconds=0.05).batches()
    began = time.monotonic()
    assert next(parts) == [b"first"]
    assert time.monotonic() - began < 5
    go_on.set()
    assert list(parts) == [[b"second"]]


def test_parse_start_takes_words_offsets_times_and_ages() -> None:
    assert [parse_start(text) for text in ("earliest", "latest", "12")] == ["earliest", "latest", 12]
    assert parse_start("2026-11-21T01:05:57.5+01:00") == datetime(2026, 11, 21, 0, 5, 57, 500000, UTC)
    for text in ("", "-1", "soon", "٣"):
        with pytest.raises(typer.BadParameter):
            parse_start(text)


def test_parse_annotations_takes_pairs() -> None:
    assert parse_annotations(["a=", "b=c=d"]) == {"a": "", "b": "c=d"}
    for text in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            parse_annotations([text])


def test_format_entry_prints_each_format() -> None:
    entry = Entry(3, datetime(2026, 1, 2, tzinfo=UTC) + timedelta(microseconds=1), b"hi", None, {"b": "2", "a": "1"})
    assert format_entry(entry, Format.TEXT) == b"3 2026-01-02T00:00:00.000001Z a=1 b=2 hi"
    assert format_entry(entry, Format.PAYLOAD) == b"hi"
    assert json.loads(format_entry(entry, Format.JSON)) == {
        "offset": "3",
        "timestamp": "2026-01-02T00:00:00.000001Z",
        "annotations": {"a": "1", "b": "2"},
        "raw_bytes": "aGk=",
    }


def test_follow_ends_at_the_count(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [b"x"] * 5)
        pages = [*consume_pages(log, "t", "earliest", 3, follow=True), *consume_pages(log, "t", 1, 2)]
        assert [(e.offset, page.next) for page in pages for e in page.entries] == [
            (0, 3),
            (1, 3),
            (2, 3),
            (1, 3),
            (2, 3),
        ]
