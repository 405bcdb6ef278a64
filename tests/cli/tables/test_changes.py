"""``penstock tables changes``: summary, JSON, lines and Arrow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli.main import main
from penstock.landing.table_paths import Layout
from tests.landing.typed import typed_life
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
        folder = life.layout.tables.parent
        monkeypatch.setattr(sys, "argv", ["penstock", "tables", "changes", *words, "-o", f"data_dir={folder}"])
        with pytest.raises(SystemExit) as completed:
            main()
        assert (completed.value.code or 0) == status
        return capsys.readouterr().out

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


@pytest.mark.parametrize(
    "words", [["--since", "x"], ["--since", "1", "--view", "y"], ["--since", "1", "--format", "z"]]
)
def test_bad_arguments_end_with_status_2(changes: Callable[..., str], words: list[str]) -> None:
    changes(*words, status=2)
