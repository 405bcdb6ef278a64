"""``penstock trace``: by uuid and by place, for people and as JSON, without a daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.common import console
from penstock.cli.options import Commands
from penstock.cli.tables.trace import trace as command
from penstock.landing.journal import Journal
from penstock.landing.table_paths import Layout
from penstock.upkeep.trace.tracer import MESSAGE_POSITION
from tests.spark.spark_helpers import HandWritten, append, event, landed_event


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic t with a landed event, its duplicate, and an event that has not landed."""
    append(tmp_path / "topics", "t", [event(1), event(1), event(2)])
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    table.commit({"t": 2}, [landed_event(0, "u1")])
    Journal(table.layout).update()
    return tmp_path


def run(data: Path, *arguments: str) -> tuple[int, str, str]:
    app = Commands()
    app.command("trace")(command)
    result = CliRunner().invoke(app, ["-o", f"data_dir={data}", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_trace_finds_the_offset_of_a_uuid(data: Path) -> None:
    status, text, err = run(data, "u1")
    assert (status, err) == (0, "")
    assert "by events-udp" in text
    assert "t:0 has landed: event" in text
    assert "not proved yet" in text


def test_trace_wraps_lines_between_words_and_keeps_file_names_whole(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 60)
    lines = run(data, "u1")[1].splitlines()
    file_name = next((data / "tables").rglob("kind=event/**/*.parquet")).name
    assert any(line.endswith(file_name) for line in lines), lines
    assert all(len(line) <= 60 for line in lines if file_name not in line and "has landed" not in line)
    assert lines[0].startswith("received  ")


def test_trace_searches_the_log_for_a_uuid_that_has_not_landed(data: Path) -> None:
    status, text, err = run(data, "u2", "--json")
    document = json.loads(text)
    assert (status, document["asked"], document["offset"], document["fate"]) == (0, "u2", 2, "pending")
    assert "u2 has not landed" in err


def test_trace_of_a_duplicate_names_the_original(data: Path) -> None:
    status, text, _ = run(data, "t:1")
    assert (status, "t:1 (uuid u1) is a duplicate of t:0, which has landed" in text) == (0, True)


def test_trace_of_unknown_message_exits_with_status_1(data: Path) -> None:
    assert run(data, "t:3")[0] == 1
    status, _, err = run(data, "nobody")
    assert (status, "no event with this uuid has landed or waits" in err) == (1, True)
    status, text, err = run(data, "none:3", "--json")
    assert (status, json.loads(text)["fate"]) == (1, "absent")
    assert "no topic is named 'none'" in json.loads(text)["meaning"]


def test_sql_without_data_directory_is_empty(tmp_path: Path) -> None:
    assert run(tmp_path, "u1")[0] == 1
    assert run(tmp_path, "t:0")[0] == 1


def test_damaged_journal_line_is_reported_with_its_file(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    Layout.for_tables(data / "tables").journal.write_text("{}\n")
    status, _, _ = run(data, "t:0")
    assert (status, ["landed.commits.jsonl" in line for line in caplog.messages]) == (0, [True])


def test_position_pattern_matches_topic_partition_and_offset() -> None:
    for text in ("t:0", "a.b-c_d:12", "events/0:5"):
        assert MESSAGE_POSITION.fullmatch(text)
    for text in ("t", "t:", "t:x", "/0:1", "a/b:1", "0b6e1f9a-1c1d-4b0e-9c53-3a6f0f4c3c11"):
        assert not MESSAGE_POSITION.fullmatch(text)


def test_trace_needs_no_spark(data: Path) -> None:
    code = (
        "import sys; from penstock.cli.command_line import build; "
        "build(['trace'])(sys.argv[1:], standalone_mode=False) if sys.argv[1:] else None"
    )
    check = f"import atexit, sys; atexit.register(lambda: print('pyspark' in sys.modules)); {code}"
    process = subprocess.run(
        [sys.executable, "-c", check, "trace", "u1", "-o", f"data_dir={data}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("has landed: event\nFalse\n")


def test_trace_lists_messages_that_contain_a_text(data: Path) -> None:
    status, text, err = run(data, "web-1")
    assert status == 0
    assert [line.split()[0] for line in text.splitlines()] == ["t:2"]  # the row that landed has no payload here
    assert "trace one by its TOPIC:OFFSET" in err
    document = json.loads(run(data, "web-1", "--json")[1])
    assert (document["fate"], document["containing"]) == ("absent", ["t:2"])
    assert run(data, "not in any message")[0] == 1


def test_trace_offers_no_message_with_a_longer_word(data: Path) -> None:
    append(data / "topics", "t", [b'{"type": "a", "uuid": "bad10", "timestamp": 1}', b"bad2, said the log"])
    status, text, err = run(data, "bad1")
    assert (status, text, "no event with this uuid" in err) == (1, "", True)
    status, text, _ = run(data, "bad2")
    assert (status, text.split()[0]) == (0, "t:4")
