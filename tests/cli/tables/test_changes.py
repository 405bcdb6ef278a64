"""``penstock tables changes``: summary, JSON, lines and Arrow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

from penstock.landing.table_paths import Layout
from penstock.upkeep.compaction.typed_compaction import compact_all
from tests.cli.command_line import run_in_process
from tests.landing.typed import typed_life
from tests.landing.writing.messages import AT, source
from tests.upkeep.export.exported import postgresql_server
from tests.upkeep.test_changes import EVENTS, delete, land, uuids


@pytest.fixture
def life(tmp_path: Path) -> typed_life.Life:
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    for batch in range(3):
        land(life, batch)
    delete(life.layout, "uuid = '0-1'")
    return life


@pytest.fixture
def changes(
    life: typed_life.Life, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run the command with these words, expect its status, and return its output."""

    def run(*words: str, status: int = 0) -> str:
        command = ["tables", "changes", *words, "-o", f"data_dir={life.layout.tables.parent}"]
        ended, output, errors = run_in_process(command, monkeypatch, capsys)
        assert ended == status, errors
        return output

    return run


def test_summary_has_rows_by_batch_deletions_and_the_next_position(changes: Callable[..., str]) -> None:
    lines = changes("--since", "0", "--view", "events_click").splitlines()
    assert [line.split() for line in lines[1:3]] == [["1", str(EVENTS)], ["2", str(EVENTS)]]
    assert lines[3] == "deletion 1 (asked): 1 offsets"
    position = lines[4].removeprefix("next: ")
    assert changes("--since", position, "--view", "events_click") == f"next: {position}\n"
    assert "these are all rows" in changes("--since", "-1")


def test_json_and_arrow_have_the_same_rows(changes: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "added.arrow"
    document = json.loads(changes("--since", "1", "--view", "events", "--json", "--arrow", str(file)))
    assert (document["added"], document["complete"]) == ({"2": EVENTS}, False)
    assert [(run["topic"], run["begin"], run["end"]) for run in document["deleted"]] == [("t", 1, 2)]
    with pa.memory_map(str(file)) as opened:
        assert sorted(pa.ipc.open_file(opened).read_all()["uuid"].to_pylist()) == uuids(2)


KILLED = """
import os, signal
from penstock.cli.main import main
from penstock.upkeep.changes import Changes
read = Changes.added_with_batch
def read_first(changes):
    yield next(iter(read(changes)))
    os.kill(os.getpid(), signal.SIGKILL)
Changes.added_with_batch = read_first
main()
"""


def test_killed_command_leaves_the_arrow_file_of_the_run_before(
    changes: Callable[..., str], life: typed_life.Life, tmp_path: Path
) -> None:
    file = tmp_path / "added.arrow"
    changes("--since", "1", "--arrow", str(file))
    before = file.read_bytes()
    words = ["tables", "changes", "--since", "-1", "--arrow", str(file), "-o", f"data_dir={life.layout.tables.parent}"]
    assert subprocess.run([sys.executable, "-c", KILLED, *words], timeout=60).returncode == -signal.SIGKILL
    assert file.read_bytes() == before
    changes("--since", "-1", "--arrow", str(file))
    with pa.memory_map(str(file)) as opened:
        assert pa.ipc.open_file(opened).read_all().num_rows > EVENTS


def test_lines_end_with_the_next_position(changes: Callable[..., str]) -> None:
    lines = [json.loads(line) for line in changes("--since", "1", "--format", "jsonl").splitlines()]
    kinds = [line["change"] for line in lines]
    assert kinds == ["delete", *["add"] * (EVENTS + 1), "next"]
    assert lines[1]["_batch"] == 2
    assert "reset" in changes("--since", "-1", "--format", "jsonl")


class Copies:
    """Copies in PostgreSQL and DuckDB of a program that applies the lines of the command, each with its position."""

    def __init__(self, server: str, path: Path) -> None:
        self.copies: list[Any] = [psycopg.connect(server), duckdb.connect(str(path))]
        for copy in self.copies:
            # A row that came twice would be an error.
            copy.execute("create table rows (topic varchar, place bigint, uuid varchar, primary key (topic, place))")
            copy.execute("create table positions (position varchar)")
            copy.execute("insert into positions values ('-1')")
            copy.commit()

    @property
    def positions(self) -> list[str]:
        return [str(copy.execute("select position from positions").fetchone()[0]) for copy in self.copies]

    def apply(self, lines: Sequence[dict[str, Any]]) -> None:
        """Apply the lines of one command; without its last line nothing of it counts."""
        if not lines or lines[-1]["change"] != "next":
            return
        added = [(line["topic"], line["offset"], line["uuid"]) for line in lines if line["change"] == "add"]
        removed = [(line["topic"], line["begin"], line["end"]) for line in lines if line["change"] == "delete"]
        for copy, mark in zip(self.copies, ("%s", "?"), strict=True):
            cursor = copy.cursor()
            cursor.execute("begin")
            if lines[0]["change"] == "reset":
                cursor.execute("delete from rows")
            condition = f"topic = {mark} and place >= {mark} and place < {mark}"
            for run in removed:
                cursor.execute(f"delete from rows where {condition}", run)
            cursor.executemany(f"insert into rows values ({mark}, {mark}, {mark})", added)
            cursor.execute(f"update positions set position = {mark}", [lines[-1]["position"]])
            cursor.execute("commit")

    def sums(self) -> list[tuple[int, int, int]]:
        query = "select count(*), count(distinct uuid), sum(place) from rows"
        return [tuple(int(number) for number in copy.execute(query).fetchone()) for copy in self.copies]


def read_lines(folder: Path, since: str, kill_after: int) -> list[dict[str, Any]]:
    """Run the command and return its lines; kill it after some of them."""
    words = ["tables", "changes", "--since", since, "--view", "events", "--format", "jsonl", "-o", f"data_dir={folder}"]
    lines = []
    with subprocess.Popen([sys.executable, "-m", "penstock.cli.main", *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            # The last line may be cut.
            if line.endswith(b"\n"):
                lines.append(json.loads(line))
            if len(lines) == kill_after:
                process.kill()
    assert process.returncode in (0, -signal.SIGKILL)
    assert (process.returncode == 0) == (lines[-1]["change"] == "next")
    return lines


@pytest.mark.survives("merge, deletion, restore", "SIGKILL")
def test_killed_commands_bring_each_row_once(tmp_path: Path) -> None:
    rows = 1500  # more lines than a pipe holds, so that a kill finds the command at work
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    kills = iter([1, 700, 1200, 0, 1, 0, 1400, 0])
    with postgresql_server() as server:
        copies = Copies(server, tmp_path / "copy.duckdb")
        for batch in range(4):
            payloads = [typed_life.event(f"{batch}-{n}", path="/" * 200) for n in range(rows)]
            life.land(batch, [source(list(enumerate(payloads, batch * rows)))], landed_at=AT + batch)
            if batch == 2:
                delete(life.layout, "uuid in ('0-7', '2-9')")
                compact_all(life.layout)
            for kill_after in (next(kills), next(kills)):
                (since,) = {*copies.positions}
                copies.apply(read_lines(tmp_path, since, kill_after))
        expected = sum({*range(4 * rows)} - {7, 2 * rows + 9})
        assert copies.sums() == [(4 * rows - 2, 4 * rows - 2, expected)] * 2
        for copy in copies.copies:
            copy.close()


@pytest.mark.parametrize(
    "words", [["--since", "x"], ["--since", "1", "--view", "y"], ["--since", "1", "--format", "z"]]
)
def test_bad_arguments_end_with_status_2(changes: Callable[..., str], words: list[str]) -> None:
    changes(*words, status=2)
