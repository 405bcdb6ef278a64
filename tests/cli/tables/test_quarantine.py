"""``penstock pipeline quarantine``: groups, lists and replays quarantined messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.tables.quarantine import quarantine as app
from penstock.files.change_log import ChangeLog
from penstock.landing.table_paths import Layout
from tests.server.running import Running
from tests.spark.spark_helpers import HandWritten

BROKEN = b'{"type": "a", "uuid": "%d", "timestamp": 1,}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    rows = [(n, "bad_json", BROKEN % n) for n in range(3)] + [(3, "missing_uuid", b'{"type": "a", "timestamp": 1}')]
    table_folder = [{"topic": "t", "offset": n, "reason": reason, "payload": payload} for n, reason, payload in rows]
    table.commit({"t": 4}, [{**row, "kind": "quarantine"} for row in table_folder])
    return tmp_path


def invoke(folder: Path, *arguments: str, code: int = 0) -> str:
    where = ["-o", f"data_dir={folder}", "-o", f"pipeline.tables={folder / 'tables'}"]
    result = CliRunner().invoke(app, [*arguments, *where])
    assert result.exit_code == code, result.output
    return result.output


def test_quarantine_groups_and_lists_messages(folder: Path) -> None:
    (first, second) = json.loads(invoke(folder, "groups", "--json"))
    assert (first["reason"], first["messages"], second["messages"]) == ("bad_json", 3, 1)
    listed = json.loads(invoke(folder, "list", "--json", "--shape", first["shape"], "-n", "2"))
    assert [entry["reason"] for entry in listed] == ["bad_json"] * 2
    groups = invoke(folder, "groups").splitlines()
    assert groups[0].startswith("bad_json: 3 messages, newest ")
    assert groups[1].startswith("    {")
    assert groups[2].startswith("missing_uuid: 1 message, newest ")
    assert max(map(len, groups)) <= 80
    header, payload, fault, *_ = invoke(folder, "list").splitlines()
    assert header.endswith("  events-udp  missing_uuid")
    assert fault.startswith("    ")
    assert "uuid" in fault
    assert max(map(len, invoke(folder, "list").splitlines())) <= 80
    assert payload.startswith("    {")


def test_reason_of_a_transformation_is_printed_once(tmp_path: Path) -> None:
    table = HandWritten(Layout.for_tables(tmp_path / "tables"))
    row = {"topic": "t", "offset": 0, "kind": "quarantine", "reason": "too_old", "payload": b"{}"}
    table.commit({"t": 1}, [row])
    header, payload = invoke(tmp_path, "list").splitlines()
    assert (header.endswith("  too_old"), payload) == (True, "    {}")


def test_unknown_reason_is_rejected(folder: Path) -> None:
    for command in ("list", "replay"):
        assert "the reasons are bad_json" in invoke(folder, command, "--where", "bad jsn", code=2)


def test_replay_previews_and_then_sends(folder: Path, running: Running) -> None:
    to = ["replay", "--replace", ",}", "}", "-o", f"log.grpc={running.bound.grpc}"]
    seen = invoke(folder, *to)
    assert "t:3  becomes: skipped by the fix\n" in seen
    preview = seen.splitlines()
    index = preview.index("t:0  becomes: event")
    assert preview[index + 1 : index + 3] == [
        '    {"type": "a", "uuid": "0", "timestamp": 1,}',
        '    {"type": "a", "uuid": "0", "timestamp": 1}',
    ]
    assert "to be sent again: 4 (all reasons, all topics); send them with --yes" in seen
    assert running.request("GET", "/topic/t/logs")[0] == 404
    assert "3 sent again, 1 skipped by the fix, 0 sent before" in invoke(folder, *to, "--yes")
    change = ChangeLog(folder).newest()[0]
    assert (change["what"], change["fix"]) == ("send 3 quarantined messages back", "replaced ',}' by '}'")
    assert change["from"].startswith("command line on ")
    assert "0 sent again, 1 skipped by the fix, 3 sent before" in invoke(folder, *to, "--yes")
    groups = invoke(folder, "groups")
    assert "bad_json" not in groups
    assert "sent back so far: 3 (penstock pipeline quarantine history " in groups
    resolved = json.loads(invoke(folder, "list", "--state", "sent_back", "--json"))
    assert [(row["offset"], row["successor"], row["fix"]) for row in resolved] == [
        (n, n, "replaced ',}' by '}'") for n in (2, 1, 0)
    ]
    header, fix_line = invoke(folder, "list", "--state", "sent_back").splitlines()[:2]
    assert header.startswith("t:2  bad_json  sent back ")
    assert (header.endswith(" UTC as t:2"), fix_line) == (True, "    replaced ',}' by '}'")
    header, fix_line = invoke(folder, "history").splitlines()
    assert (header.partition(" UTC")[2], fix_line) == (
        "  t  3 sent back: 3 quarantined again",
        "    replaced ',}' by '}'",
    )
    assert len(header) <= 80
    (first, *_) = running.request_json("GET", "/topic/t/logs")[1]["logs"]
    assert first["annotations"] == {"replay_of": "t:0"}


def test_replay_rejects_two_fixes(folder: Path) -> None:
    assert "--fix, --replace and --set exclude" in invoke(
        folder, "replay", "--set", "uuid", "1", "--replace", "a", "b", code=2
    )
    assert "the text to replace is empty" in invoke(folder, "replay", "--replace", "", "b", code=2)
    assert "no_such" in invoke(folder, "replay", "--fix", "no_such:x", code=2)
