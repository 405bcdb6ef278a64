"""The thread that mirrors tables in a catalog, and what waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import load_catalog

from penstock.config import ConfigError, load
from penstock.config.keys.pipeline import IcebergConfig
from penstock.config.syntax.tables_url import TablesUrl
from penstock.files.checked_document import write_document
from penstock.files.errors import DamagedFile
from penstock.landing.mirror_lag import forget_mirror, is_behind
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.testing import wait_until
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.compaction.typed_compaction import remove_old
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.iceberg.mirror import IcebergMirror, catalog_properties
from penstock.upkeep.iceberg.mirrored_table import NotMirrored
from tests.landing.table.table_rows import write_file
from tests.landing.typed import typed_life
from tests.upkeep.iceberg.mirror_life import mirror_of
from tests.upkeep.iceberg.test_mirrored_table import by_pyiceberg, files_of, iceberg
from tests.upkeep.iceberg.test_mirrored_table import land as land_clicks
from tests.upkeep.iceberg.test_mirrored_table import uuids as uuids_of_batches
from tests.upkeep.test_changes import delete, land, uuids


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    from penstock.landing.table.landed_table import begin_table

    table = begin_table(Layout.for_tables(tmp_path / "tables"))
    table.commit(0, [write_file(table, [0, 1])])
    return table


def layout_of(table: DeltaTable) -> Layout:
    return Layout.around(table.folder)


def test_thread_mirrors_what_landed_before_it_stops(table: DeltaTable) -> None:
    layout = layout_of(table)
    mirror = mirror_of(layout.tables)
    mirror.start()
    assert is_behind(layout), "not one snapshot yet"
    assert mirror.stop(60)
    assert files_of(iceberg(layout)) == table.active()
    assert not is_behind(layout)


@pytest.mark.survives("Iceberg mirror", "peer away")
def test_unreachable_catalog_is_reported_once_and_retried(
    table: DeltaTable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = layout_of(table)
    config = IcebergConfig(
        catalog="lake", every=1, options={"type": "sql", "uri": f"sqlite:///{layout.tables}/no/c.db"}
    )
    mirror = IcebergMirror(layout, config, lambda hours: None)
    monkeypatch.setattr(mirror, "_config", config.model_copy(update={"every": 0.01}))
    mirror.start()
    wait_until(lambda: "the catalog lake is not updated" in caplog.text, 60)
    (layout.tables / "no").mkdir()
    wait_until(lambda: not is_behind(layout), 60)
    assert mirror.stop(60)
    assert sum("is not updated" in message for message in caplog.messages) == 1


def test_replaced_files_stay_while_the_mirror_is_behind(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layout_of(table)
    mirror_of(layout.tables).step()
    write_document(layout.mirrored, {"at": time.time() - 7200})
    table.commit(1, [write_file(table, [2])])
    names = table.active()
    assert compact_table(table.folder) == (2, 1)
    monkeypatch.setattr("penstock.upkeep.compaction.compaction.KEEP_HOURS", 0)
    remove_old(layout)
    assert all((layout.tables / "landed" / name).exists() for name in names)
    write_document(layout.mirrored, {"at": time.time() + 7200})
    assert is_behind(layout), "the clock was set back"
    mirror_of(layout.tables).step()
    remove_old(layout)
    assert not any((layout.tables / "landed" / name).exists() for name in names)


def metadata_paths(layout: Layout) -> dict[str, Path]:
    """Return the metadata, the list of manifests and a manifest of the current snapshot."""
    table = iceberg(layout)
    snapshot = table.current_snapshot()
    assert snapshot
    manifest = snapshot.manifests(table.io)[0].manifest_path
    locations = {"metadata": table.metadata_location, "list": snapshot.manifest_list, "manifest": manifest}
    return {name: Path(location.removeprefix("file://")) for name, location in locations.items()}


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "truncated": lambda data: data[: len(data) // 2],
}


@pytest.mark.survives("Iceberg mirror", "damaged bytes")
@pytest.mark.parametrize("name", ["metadata", "list", "manifest"])
def test_damaged_metadata_is_named_and_made_again_after_a_drop(tmp_path: Path, name: str) -> None:
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    layout, mirror = life.layout, mirror_of(tmp_path / "tables")
    for batch in range(2):
        land_clicks(life, batch)
        mirror.step()
    path = metadata_paths(layout)[name]
    data = path.read_bytes()
    # PyIceberg 0.12 reads behind the end of a truncated Avro file, where memory may still hold the former bytes.
    for damage in [*DAMAGES] if name == "metadata" else ["empty", "zeros"]:
        path.write_bytes(DAMAGES[damage](data))
        for _ in range(2):
            with pytest.raises(NotMirrored, match=r"Iceberg table penstock\.landed is damaged \(.*drop the table"):
                mirror.step()
    land_clicks(life, 2)
    with pytest.raises(NotMirrored):
        mirror.step()
    clicks = iceberg(layout, "events_click").scan().to_arrow()["uuid"].to_pylist()
    assert sorted(map(str, clicks)) == uuids_of_batches(0, 1, 2), "other tables are brought up to date"
    load_catalog("lake", type="sql", uri=f"sqlite:///{layout.tables}.db").drop_table("penstock.landed")
    assert mirror.step() > 0
    assert by_pyiceberg(iceberg(layout)) == uuids_of_batches(0, 1, 2)
    assert files_of(iceberg(layout)) == sorted(table_of(layout).active())
    assert mirror.step() == 0


@pytest.mark.survives("Iceberg mirror", "damaged bytes")
def test_damaged_time_of_the_mirror_keeps_files_until_the_next_step(table: DeltaTable) -> None:
    layout = layout_of(table)
    mirror_of(layout.tables).step()
    layout.mirrored.write_bytes(layout.mirrored.read_bytes()[:-5])
    with pytest.raises(DamagedFile, match="damaged"):
        is_behind(layout)
    mirror_of(layout.tables).step()
    assert not is_behind(layout)


@pytest.mark.survives("Iceberg mirror", "changed configuration")
def test_replaced_files_go_without_a_configured_mirror(table: DeltaTable) -> None:
    layout = layout_of(table)
    write_document(layout.mirrored, {"at": 0.0})
    assert is_behind(layout)
    forget_mirror(layout)
    assert not is_behind(layout)


def test_tables_are_registered_in_glue_and_read_from_there(tmp_path: Path) -> None:
    life = typed_life.Life(Layout.for_tables(tmp_path / "tables"))
    land(life, 0)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"glue.access-key-id": "x", "glue.secret-access-key": "x", "glue.region": "us-east-1"}
        options = {"type": "glue", "glue.endpoint": address, **keys}
        config = IcebergConfig(catalog="lake", options=options)
        mirror = IcebergMirror(life.layout, config, lambda hours: time.time())
        mirror.step()
        land(life, 1)
        delete(life.layout, "data.path = '/1'")
        mirror.step()
        credentials = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        glue = boto3.client("glue", endpoint_url=address, **credentials)
        tables = {table["Name"]: table for table in glue.get_tables(DatabaseName="penstock")["TableList"]}
        assert {name: table["Parameters"]["table_type"] for name, table in tables.items()} == dict.fromkeys(
            ("landed", "events_click", "proofs"), "ICEBERG"
        )
        assert {"kind", "date", "uuid"} <= {c["Name"] for c in tables["landed"]["StorageDescriptor"]["Columns"]}
        for name in ("landed", "events_click"):
            rows = load_catalog("lake", **options).load_table(f"penstock.{name}").scan().to_arrow()
            read_uuids = sorted(uuid for uuid in rows["uuid"].to_pylist() if uuid is not None)
            assert read_uuids == sorted({*uuids(0, 1)} - {"0-1", "1-1"}), name
    finally:
        server.stop()


def test_options_of_the_store_become_properties_of_the_catalog(tmp_path: Path) -> None:
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "aws_region": "eu", "AWS_ALLOW_HTTP": "true"}
    layout = Layout.for_tables(TablesUrl.with_state_in("s3://lake/p", tmp_path, options))
    properties = catalog_properties(layout, IcebergConfig(options={"type": "rest", "s3.region": "us"}))
    assert properties == {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "us", "type": "rest"}


@pytest.mark.parametrize(
    ("option", "text"),
    [("namespace='a b'", "pipeline.iceberg.namespace"), ("every=0.5", "pipeline.iceberg.every")],
)
def test_invalid_settings_name_the_key(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load(None, [f"pipeline.iceberg.{option}"], {})


def test_tables_in_an_object_store_are_mirrored_through_deletions_and_merges(at_url: Layout, tmp_path: Path) -> None:
    config = IcebergConfig(catalog="lake", options={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    mirror, life = IcebergMirror(at_url, config, lambda hours: time.time()), typed_life.Life(at_url)
    catalog = load_catalog("lake", **catalog_properties(at_url, config))
    for batch in range(4):
        land_clicks(life, batch)
    mirror.step()
    assert by_pyiceberg(catalog.load_table("penstock.landed")) == uuids_of_batches(0, 1, 2, 3)
    request_deletion(at_url, REQUESTED, parse_conditions("uuid = '1-1'"))
    execute_deletions(at_url, 600_000_000)
    compact_table(at_url.landed)
    mirror.step()
    expected = [uuid for uuid in uuids_of_batches(0, 1, 2, 3) if uuid != "1-1"]
    assert by_pyiceberg(catalog.load_table("penstock.landed")) == expected
    clicks = catalog.load_table("penstock.events_click").scan().to_arrow()
    assert sorted(map(str, clicks["uuid"].to_pylist())) == expected
