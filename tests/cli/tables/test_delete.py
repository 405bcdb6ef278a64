"""The command that takes rows out of the table."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from penstock.files.change_log import ChangeLog
from penstock.landing.journal import Journal
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.requests.deletions import pending_deletions
from penstock.landing.table_paths import Layout
from penstock.proof.proofs import read_proofs
from penstock.testing.pipe import wait_until
from penstock.upkeep.deletion.removal import execute_deletions
from tests.cli.command_line import CompletedCommand, run
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message


def written(folder: Path) -> Layout:
    """A data directory with a table of two events and a message, not yet proved."""
    table = HandWritten(Layout.for_tables(folder / "tables"))
    append(folder / "topics", "t", [event(0), event(1), b"text"])
    events = [landed_event(0, "u0", host="x"), landed_event(1, "u1", host="y")]
    table.commit({"t": 3}, [*events, landed_message(2)])
    Journal(table.layout).update()
    return table.layout


def delete(folder: Path, *arguments: str) -> CompletedCommand:
    return run("tables", "delete", "-o", f"data_dir={folder}", "-o", "log.http=127.0.0.1:9", *arguments, folder=folder)


def rows(folder: Path) -> dict[str, int]:
    completed = run("tables", "rows", "--json", "-o", f"data_dir={folder}", folder=folder)
    return dict(json.loads(completed.output))


def test_delete_counts_rows_and_deletes_them_with_yes(tmp_path: Path) -> None:
    layout = written(tmp_path)
    requested = delete(tmp_path, "--where", "host = 'x'")
    assert (requested.status, requested.text) == (0, "1 row in 1 file; delete them with --yes\n")
    assert rows(tmp_path)["events"] == 2
    process = delete(tmp_path, "--where", "host = 'x'", "--yes", "--json")
    assert process.status == 0
    expected = {"rows": 1, "files": 1, "deleted": True, "deletion": 1, "not_landed": 0}
    assert json.loads(process.output) == expected
    assert rows(tmp_path)["events"] == 1
    assert [proof.holds for proofs in read_proofs(layout) for proof in proofs] == [True], "proved before"
    certificate = run("tables", "certificate", "1", "-o", f"data_dir={tmp_path}", folder=tmp_path)
    assert json.loads(certificate.output)["tables"] == {"landed": 1}
    missing = run("tables", "certificate", "2", "-o", f"data_dir={tmp_path}", folder=tmp_path)
    assert (missing.status, missing.errors.strip()) == (1, "penstock: there is no deletion 2 that is done")
    (change,) = ChangeLog(tmp_path).newest()
    assert (change["what"], change["condition"]) == ("delete 1 rows of the tables", "host = 'x'")
    repeated = delete(tmp_path, "--where", "host = 'x'", "--yes")
    assert repeated.output == "no row of the tables matches\n"


def test_delete_names_messages_that_would_land_after_it(tmp_path: Path) -> None:
    """The rows of a person may still wait in the log."""
    written(tmp_path)
    append(tmp_path / "topics", "t", [event(0), event(4)])
    deleted = delete(tmp_path, "--where", "host = 'x'", "--yes")
    assert deleted.output.splitlines() == [
        "1 row deleted by deletion 1; the files with them are removed within hours",
        "2 messages not landed yet: repeat this command once `penstock pipeline status` shows no rows behind",
    ]


def test_delete_says_that_messages_of_a_log_that_does_not_answer_are_unknown(tmp_path: Path) -> None:
    """A person's rows came into the tables after a deletion that had named none."""
    written(tmp_path)
    options = ("--where", "host = 'x'", "-o", "pipeline.uri=127.0.0.1:9")
    text = delete(tmp_path, *options).text
    assert "some messages cannot be counted that may land later: the log cannot be read: " in text
    assert "127.0.0.1:9" in text
    document = json.loads(delete(tmp_path, *options, "--json").output)
    assert (document["not_landed"], "the log cannot be read" in document["problem"]) == (None, True)


def test_running_pipeline_executes_the_deletion(tmp_path: Path) -> None:
    layout = written(tmp_path)
    handle = acquire_landing_lock(layout, threading.Event())
    completed: list[CompletedCommand] = []
    command = threading.Thread(target=lambda: completed.append(delete(tmp_path, "--where", "topic = 't'", "--yes")))
    command.start()
    wait_until(lambda: pending_deletions(layout), what="it was asked for")
    assert command.is_alive()
    execute_deletions(layout, 1)
    command.join(60)
    os.close(handle)
    assert completed[0].output.startswith("3 rows deleted")


def test_condition_on_another_column_is_one_error_line(tmp_path: Path) -> None:
    written(tmp_path)
    completed = delete(tmp_path, "--where", "payload = 'x'", "--yes")
    assert completed.status > 0
    assert "no condition on 'payload'" in completed.errors
    assert len(completed.errors.strip().splitlines()) == 1
