"""The process of the SQL servers, and both servers over tables that others change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pytest

from penstock.config import SecurityConfig, TokenConfig
from penstock.config.daemon_access import TOKEN_FILE
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.sql.postgres import access
from penstock.sql.postgres.session import client_catalog
from penstock.testing.pipe import Pipe
from tests.landing.typed import typed_life
from tests.landing.writing.messages import source
from tests.server.running import Running
from tests.sql.flight_sql import test_server as flight_sql
from tests.sql.postgres import postgres_server

PROGRAM = """
import re
from pathlib import Path

import numpy
from penstock.config.keys.sql import SqlConfig
from penstock.sql import servers

in_use = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
servers.BASE_BYTES = in_use + (200 << 20)
servers.limit_memory(SqlConfig(max_queries=2, memory=64 << 20))
numpy.ones(100 << 20, "u1")
try:
    numpy.ones(400 << 20, "u1")
except MemoryError:
    print("refused")
"""


def test_allocation_beyond_the_memory_of_all_queries_fails() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert answer.stdout == "refused\n"


def land(life: typed_life.Life, batch: int, count: int = 1, **data: Any) -> None:
    events = [typed_life.event(f"{batch}-{number}", **data) for number in range(count)]
    life.land(batch, [source(list(enumerate(events, batch * 10_000)))])


@pytest.mark.survives("SQL", "foreign writer")
def test_answers_have_each_row_while_another_program_merges_deletes_and_vacuums(tmp_path: Path) -> None:
    life, batches, count = typed_life.Life(Layout.for_tables(tmp_path / "tables")), 4, 3000
    for batch in range(batches):
        land(life, batch, count)
    table, total = deltalake.DeltaTable(str(life.layout.landed)), batches * count
    query = "select count(*), count(distinct uuid) from events"
    with (
        postgres_server.serving(tmp_path) as postgres,
        flight_sql.serving(tmp_path) as flight,
        postgres_server.connect(postgres, autocommit=False) as client,
        client.cursor(name="rows") as rows,
        flight_sql.connect(flight) as arrow_client,
        arrow_client.cursor() as arrow_rows,
    ):
        rows.execute("select uuid from events")
        arrow_rows.execute("select uuid from events")
        first, reader = rows.fetchmany(10), arrow_rows.fetch_record_batch()
        batch = reader.read_next_batch()
        assert table.optimize.compact()["numFilesRemoved"] == batches
        assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        assert len({*first, *rows.fetchall()}) == total, "files of an open query were removed"
        assert batch.num_rows + reader.read_all().num_rows == total
        for removed in range(1, 4):
            table.delete(f"uuid = '0-{removed}'")
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            arrow_rows.execute(query)
            assert client.execute(query).fetchone() == arrow_rows.fetchone() == (total - removed, total - removed)


@pytest.mark.survives("SQL", "changed configuration")
def test_typed_tables_of_a_reload_are_served_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FOLLOW_INTERVAL_S", 0.0)
    monkeypatch.setattr(client_catalog, "CATALOG_MAX_AGE_S", 0.0)
    listener = '[[listener]]\nname = "a"\nprotocol = "udp"\nport = 0\n'
    table = '[pipeline.typed.click]\ncolumns = { path = "string"'
    pipe = Pipe(tmp_path)
    pipe.configure(f"{listener}{table} }}\n")
    pipe.start()
    assert pipe.config is not None
    layout = Layout.for_tables(pipe.data_dir / "tables")
    path, extra = Column("path", "string", "path"), Column("extra", "string", "extra")
    land(typed_life.Life(layout, (TypedTable("click", "click", (path,)),)), 0, path="/a")
    pipeline = {"typed": {"click": {"columns": {"path": "string"}}}}
    try:
        with (
            postgres_server.serving(pipe.data_dir, log={"http": pipe.http}, pipeline=pipeline) as server,
            postgres_server.serving(pipe.data_dir, log={"http": pipe.http}) as other,
            postgres_server.connect(server) as client,
            postgres_server.connect(other) as other_client,
        ):
            assert client.execute("select path from events_click").fetchall() == [("/a",)]
            pipe.config.write_text(f'{listener}{table}, extra = "string" }}\n')
            pipe.run(sys.executable, "-m", "penstock.cli.main", "reload", *pipe.options)
            land(typed_life.Life(layout, (TypedTable("click", "click", (path, extra)),)), 1, path="/b", extra="x")
            answer = client.execute("select path, extra from events_click order by 1").fetchall()
            assert answer == [("/a", None), ("/b", "x")]
            pipe.stop()
            assert client.execute("select count(extra) from events_click").fetchall() == [(1,)]
            # A server with a configuration of its own keeps it.
            assert other_client.execute("select to_regclass('events_click')").fetchall() == [(None,)]
    finally:
        pipe.stop()


@pytest.mark.parametrize("is_readable", [True, False])
def test_server_that_the_daemon_does_not_trust_keeps_its_typed_tables(tmp_path: Path, *, is_readable: bool) -> None:
    tokens = {"reader": {"token": "a-token-of-16-characters", "read": ["*"]}}
    security = {"tokens": {name: TokenConfig.model_validate(token) for name, token in tokens.items()}}
    daemon = Running(tmp_path / "daemon" / "topics", SecurityConfig.model_validate(security))
    folder = tmp_path / "other"
    if not is_readable:
        (folder / TOKEN_FILE).mkdir(parents=True)
    pipeline = {"typed": {"click": {"columns": {"path": "string"}}}}
    try:
        keys = {"log": {"http": daemon.bound.http}, "security": {"tokens": tokens}, "pipeline": pipeline}
        with (
            postgres_server.serving(folder, **keys) as server,
            postgres_server.connect(server, password="a-token-of-16-characters") as client,
        ):
            assert client.execute("select path from events_click").fetchall() == []
    finally:
        daemon.stop()
