"""Delta tables in Hive's metastore, read from there by Spark, and in Glue as moto serves it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from penstock.java.runtime import find_java
from penstock.testing.pipe import free_ports
from penstock.testing.spark_extensions import DELTA, package_settings
from penstock.upkeep.catalog_entries import CatalogFailed, Entry, hive_type, open_catalog
from penstock.upkeep.catalog_entries import register as register_entries
from tests.audit.java_catalogs import HIVE, java_catalog
from tests.upkeep.register_command import Register, prepare_register, widen_clicks
from tests.upkeep.test_changes import EVENTS

DATA = "päth with space"
TABLES = f"{DATA}/tables"
READER = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, setting in json.loads(sys.argv[1]).items():
    builder = builder.config(name, setting)
spark = builder.enableHiveSupport().getOrCreate()
tables = sorted(row.tableName for row in spark.sql("SHOW TABLES IN logs").collect())
count = "SELECT count(uuid) AS uuids FROM logs."
rows = {name: spark.sql(count + name).collect()[0].uuids for name in ("landed", "events_click")}
print(json.dumps([tables, rows]))
"""


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Register:
    return prepare_register(tmp_path / DATA, monkeypatch, capsys)


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://{}:{}".format(*server.get_host_and_port()))
    for name, text in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", text)
    try:
        yield
    finally:
        server.stop()


@pytest.mark.usefixtures("glue")
def test_glue_has_the_tables_once_and_follows_their_columns(register: Register, tmp_path: Path) -> None:
    words = ("glue", "--namespace", "logs", "--json")
    first = json.loads(register(*words))
    assert first.items() >= {"landed": "registered", "events_click": "registered"}.items()
    assert set(json.loads(register(*words)).values()) == {"unchanged"}
    client = boto3.client("glue")
    owned = {"Description": "Clicks", "Owner": "ann", "Retention": 9, "Parameters": {"team": "web", "EXTERNAL": "TRUE"}}
    entry = client.get_table(DatabaseName="logs", Name="events_click")["Table"]
    storage = entry["StorageDescriptor"]
    (path,) = (column for column in storage["Columns"] if column["Name"] == "path")
    path |= {"Comment": "the page", "Parameters": {"pii": "no"}}
    storage["Parameters"] = {"compressed": "zstd"}
    table_input = {"Name": "events_click", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage, **owned}
    table_input["Parameters"] = {**entry["Parameters"], **owned["Parameters"]}
    client.update_table(DatabaseName="logs", TableInput=table_input)
    widen_clicks(tmp_path / DATA)
    assert json.loads(register(*words)) == {**dict.fromkeys(first, "unchanged"), "events_click": "updated"}
    tables = {table["Name"]: table for table in client.get_tables(DatabaseName="logs")["TableList"]}
    assert set(tables) == set(first)
    click = tables["events_click"]["StorageDescriptor"]
    assert click["Location"] == f"file://{tmp_path / TABLES}/events_click"
    assert tables["events_click"].items() >= {**owned, "Parameters": table_input["Parameters"]}.items()
    assert path in click["Columns"]
    assert click["Parameters"] == {"compressed": "zstd"}
    assert {column["Name"]: column["Type"] for column in click["Columns"]}.items() >= {
        "path": "string",
        "ms": "int",
        "more": "decimal(9,2)",
    }.items()
    assert tables["landed"]["Parameters"]["spark.sql.sources.provider"] == "delta"


@pytest.mark.usefixtures("glue")
def test_entry_of_another_table_stays(register: Register) -> None:
    client = boto3.client("glue")
    client.create_database(DatabaseInput={"Name": "entries_shop"})
    other = {"Name": "landed", "StorageDescriptor": {"Location": "s3://other/landed"}}
    client.create_table(DatabaseName="entries_shop", TableInput=other)
    assert "choose another namespace" in register("glue", "--namespace", "entries_shop", status=1)
    assert client.get_table(DatabaseName="entries_shop", Name="landed")["Table"]["StorageDescriptor"] == {
        "Location": "s3://other/landed"
    }


@pytest.mark.usefixtures("glue")
def test_nothing_is_made_without_tables_and_what_was_entered_is_recorded(register: Register, tmp_path: Path) -> None:
    client = boto3.client("glue")
    other = {"Name": "events_click", "StorageDescriptor": {"Location": "s3://other/click"}}
    client.create_database(DatabaseInput={"Name": "entries_store"})
    client.create_table(DatabaseName="entries_store", TableInput=other)
    register("glue", "--namespace", "entries_store", status=1)
    assert "registered landed" in (tmp_path / DATA / "changes.jsonl").read_text()
    shutil.rmtree(tmp_path / TABLES / "landed" / "_delta_log")
    shutil.rmtree(tmp_path / TABLES / "events_click" / "_delta_log")
    shutil.rmtree(tmp_path / TABLES / "proofs", ignore_errors=True)
    errors = register("glue", "--namespace", "unused", status=1)
    assert errors == f"penstock: nothing has landed in {tmp_path}/{TABLES}/landed: there is no table to register\n"
    assert "unused" not in [database["Name"] for database in client.get_databases()["DatabaseList"]]


def test_columns_in_upper_case_are_unchanged_in_hive() -> None:
    written = []

    class Lowering:
        def location_of(self, url: str) -> str:
            return url

        def find_entry(self, name: str) -> Entry | None:
            return written[-1] if written else None

        def write(self, entry: Entry, is_new: bool) -> None:
            written.append(replace(entry, columns=tuple((name.lower(), kind) for name, kind in entry.columns)))

    entry = Entry("events_click", "file:///t", (("userId", "bigint"),))
    assert [change for _ in range(2) for _, change in register_entries([entry], Lowering())] == [
        "registered",
        "unchanged",
    ]


@pytest.mark.spark
def test_spark_reads_the_tables_by_their_names_in_a_hive_metastore(register: Register, tmp_path: Path) -> None:
    folder = tmp_path / "metastore"
    folder.mkdir()
    with java_catalog(HIVE, folder) as catalog:
        words = (catalog["uri"], "--namespace", "logs")
        assert "logs.landed: registered" in register(*words)
        assert "logs.landed: unchanged" in register(*words)
        with open_catalog(catalog["uri"], "logs") as namespace:
            client = namespace._client  # type: ignore[attr-defined]
            owned = client.get_table("logs", "events_click")
            owned.owner, owned.parameters["team"] = "ann", "web"
            (path,) = (column for column in owned.sd.cols if column.name == "path")
            path.comment = "the page"
            client.alter_table("logs", "events_click", owned)
            widen_clicks(tmp_path / DATA)
            assert "logs.events_click: updated" in register(*words)
            updated = client.get_table("logs", "events_click")
            assert (updated.owner, updated.parameters["team"]) == ("ann", "web")
            assert path in updated.sd.cols
            assert "more" in [column.name for column in updated.sd.cols]
        settings = {
            **package_settings([DELTA]),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.hadoop.hive.metastore.uris": catalog["uri"],
        }
        environment = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": "/usr/bin:/bin"}
        environment["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]  # a quick start
        command = [sys.executable, "-c", READER, json.dumps(settings)]
        read = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=250)
    assert read.returncode == 0, read.stderr[-3000:]
    tables, rows = json.loads(read.stdout)
    assert {"landed", "events_click"} <= set(tables)
    assert rows == {"landed": 2 * EVENTS, "events_click": 2 * EVENTS}


def test_unreachable_metastore_is_an_error_and_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    [port] = free_ports(1)
    with pytest.raises(CatalogFailed, match=str(port)), open_catalog(f"thrift://127.0.0.1:{port}", "logs"):
        pass
    assert not caplog.records


def test_catalog_that_does_not_answer_and_unknown_ones_are_named(register: Register) -> None:
    assert "thrift://127.0.0.1:1: " in register("thrift://127.0.0.1:1", status=1)
    with pytest.raises(CatalogFailed, match="s3://lake is not a catalog"), open_catalog("s3://lake", "logs"):
        pass


def test_nested_types_have_hives_names() -> None:
    kind = {
        "type": "struct",
        "fields": [
            {"name": "ids", "type": {"type": "array", "elementType": "long", "containsNull": True}},
            {"name": "by", "type": {"type": "map", "keyType": "string", "valueType": "integer"}},
        ],
    }
    assert hive_type(kind) == "struct<ids:array<bigint>,by:map<string,int>>"
