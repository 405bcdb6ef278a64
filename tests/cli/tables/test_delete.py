"""The command that takes rows out of the table."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from penstock.landing.landing_lock import take_lock
from penstock.landing.requests.deletions import pending
from penstock.landing.table_paths import Layout
from penstock.proof.proofs import read_proofs
from penstock.testing.pipe import until
from penstock.upkeep.deletion.removal import carry_out
from tests.cli.command_line import Ended, run
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message


def written(folder: Path) -> Layout:
    """A data directory with a table of two events and a message, which nobody has proved."""
    table = HandWritten(Layout.of(folder / "tables"))
    append(folder / "topics", "t", [event(0), event(1), b"text"])
    events = [landed_event(0, "u0", host="x"), landed_event(1, "u1", host="y")]
    table.commit({"t": 3}, [*events, landed_message(2)])
    return table.layout


def delete(folder: Path, *arguments: str) -> Ended:
    return run("tables", "delete", "-o", f"data_dir={folder}", "-o", "log.http=127.0.0.1:9", *arguments, folder=folder)


def rows(folder: Path) -> dict[str, int]:
    ended = run("tables", "rows", "--json", "-o", f"data_dir={folder}", folder=folder)
    return dict(json.loads(ended.output))


def test_rows_are_counted_first_and_deleted_when_that_is_said(tmp_path: Path) -> None:
    layout = written(tmp_path)
    asked = delete(tmp_path, "--where", "host = 'x'")
    assert (asked.status, asked.said) == (0, "1 rows in 1 files; --yes deletes them\n")
    assert rows(tmp_path)["events"] == 2
    done = delete(tmp_path, "--where", "host = 'x'", "--yes", "--json")
    assert (done.status, json.loads(done.output)) == (0, {"rows": 1, "files": 1, "deleted": True})
    assert rows(tmp_path)["events"] == 1
    assert [proof.holds for proofs in read_proofs(layout) for proof in proofs] == [True], "proved before"
    again = delete(tmp_path, "--where", "host = 'x'", "--yes")
    assert again.output == "0 rows deleted; files that have them go within hours\n"


def test_a_pipeline_that_runs_does_it(tmp_path: Path) -> None:
    layout = written(tmp_path)
    handle = take_lock(layout, threading.Event())
    ended: list[Ended] = []
    command = threading.Thread(target=lambda: ended.append(delete(tmp_path, "--where", "topic = 't'", "--yes")))
    command.start()
    until(lambda: pending(layout), what="it was asked for")
    assert command.is_alive()
    carry_out(layout, 1)
    command.join(60)
    os.close(handle)
    assert ended[0].output.startswith("3 rows deleted")


def test_condition_on_another_column_is_refused_in_one_line(tmp_path: Path) -> None:
    written(tmp_path)
    ended = delete(tmp_path, "--where", "payload = 'x'", "--yes")
    assert ended.status > 0
    assert "no condition on 'payload'" in ended.errors
    assert len(ended.errors.strip().splitlines()) == 1
