"""``penstock sql`` with a running pipe."""

from __future__ import annotations

import json
import subprocess
import sys

from penstock.testing.pipe import Pipe, wait_until
from tests.spark.spark_helpers import event

NEWEST = 'select count(*) as rows, arg_max(uuid, "offset") as newest from events'


def answer_of(pipe: Pipe, query: str) -> object:
    command = [sys.executable, "-m", "penstock.cli.main", "sql", query, "--json"]
    return json.loads(
        subprocess.run(command, env=pipe.environment(), capture_output=True, check=True, timeout=60).stdout
    )


def test_answer_has_the_rows_of_the_log(pipe: Pipe) -> None:
    for number in range(4):
        pipe.datagrams(event(number), event(0))
        wait_until(lambda end=2 * (number + 1): _logged(pipe) == end)  # type: ignore[misc]  # what a loop binds
        assert answer_of(pipe, NEWEST) == [{"rows": number + 1, "newest": f"u{number}"}]


def test_query_works_without_a_daemon(pipe: Pipe) -> None:
    pipe.datagrams(event(7))
    wait_until(lambda: _logged(pipe) == 1)
    pipe.stop()
    assert answer_of(pipe, "select payload from topics.events") == [{"payload": event(7).decode()}]


def _logged(pipe: Pipe) -> int:
    return sum(int(entry["logged"]) for entry in pipe.balance()["topics"] if entry["topic"] == "events")
