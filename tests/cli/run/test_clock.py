"""``penstock clock``: whether the clock is believed, and believing it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.options import Commands
from penstock.cli.run.clock import clock
from penstock.files.checked_document import encode
from tests.spark.spark_daemon import daemon


def test_a_clock_that_is_ahead_is_told_until_somebody_says_that_it_is_right(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "CLOCK").write_bytes(encode({"time": 1_750_000_000.0, "ahead": 0.0}))
    app = Commands()
    app.command("clock")(clock)
    with daemon(tmp_path) as running:
        where = ["-o", f"data_dir={tmp_path}", "-o", f"log.http={running.http}"]
        told = CliRunner().invoke(app, where)
        assert told.exit_code == 1
        assert "ahead of what it should say: retention by age" in told.output.replace("\n", " ")
        accepted = CliRunner().invoke(app, [*where, "--accept", "--json"])
        document = json.loads(accepted.output)
        assert abs(document.pop("time") - time.time()) < 60
        assert document == {"right": True, "ahead": 0.0, "believed_in": 0.0, "accepted": True, "text": ""}
        assert CliRunner().invoke(app, where).output == "the clock is right\n"
