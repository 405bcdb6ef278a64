"""Delta features that another program enabled: the error names them, and their removal, in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.features import TOLERATED, FeatureNotWritten
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from tests.landing.table.foreign_writer import commit
from tests.landing.table.table_rows import write_file


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    created = begin_table(Layout.for_tables(tmp_path))
    assert isinstance(created, DeltaTable)
    created.commit(0, [write_file(created, [1, 2])])
    return created


def with_features(folder: Path, *names: str) -> None:
    commit(folder, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(names)}}])


def with_metadata(folder: Path, properties: dict[str, str], **host_changes: Any) -> None:
    """Commit properties of the table, and changes of its column ``host``."""
    log = sorted((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    metadata = [line["metaData"] for line in lines if "metaData" in line][-1]
    metadata["configuration"] |= properties
    schema = json.loads(metadata["schemaString"])
    next(field for field in schema["fields"] if field["name"] == "host").update(host_changes)
    commit(folder, [{"metaData": {**metadata, "schemaString": json.dumps(schema)}}], "SET TBLPROPERTIES")


@pytest.mark.parametrize("name", ["rowTracking", "domainMetadata", "icebergCompatV2", "somethingNew"])
def test_unsupported_feature_is_named_in_one_line(table: DeltaTable, name: str) -> None:
    with_features(Path(str(table.folder)), "invariants", name)
    for attempt in (table.begin, lambda: table.commit(1, [write_file(table, [3])])):
        with pytest.raises(FeatureNotWritten) as refused:
            attempt()
        assert f"has {name}, which" in str(refused.value)
        assert f"ALTER TABLE delta.`{table.folder}` DROP FEATURE {name}" in str(refused.value)
        assert "\n" not in str(refused.value)
    with_features(Path(str(table.folder)), "invariants", "appendOnly")
    table.commit(1, [write_file(table, [3])])
    assert table.newest() == 1


@pytest.mark.parametrize("name", ["allowColumnDefaults", "checkpointProtection"])
def test_feature_that_spark_cannot_drop_is_removed_by_a_restore(table: DeltaTable, name: str) -> None:
    with_features(Path(str(table.folder)), "invariants", name)
    with pytest.raises(FeatureNotWritten) as refused:
        table.begin()
    assert f"has {name}, which" in str(refused.value)
    assert "DROP FEATURE" not in str(refused.value)
    assert str(refused.value).endswith(
        "In Spark: SET spark.databricks.delta.restore.protocolDowngradeAllowed = true; "
        f"RESTORE TABLE delta.`{table.folder}` TO VERSION AS OF the version before it"
    )


@pytest.mark.parametrize(
    ("properties", "host_changes", "words"),
    [
        ({"delta.columnMapping.mode": "name"}, {}, "DROP FEATURE columnMapping"),
        ({"delta.constraints.small": "host < 'm'"}, {}, "DROP CONSTRAINT small"),
        ({}, {"nullable": False}, "ALTER COLUMN host DROP NOT NULL"),
        ({}, {"metadata": {"delta.generationExpression": "type"}}, "generatedColumns (column host)"),
    ],
)
def test_error_names_condition_on_rows(
    table: DeltaTable, properties: dict[str, str], host_changes: dict[str, Any], words: str
) -> None:
    with_metadata(Path(str(table.folder)), properties, **host_changes)
    with pytest.raises(FeatureNotWritten) as refused:
        table.begin()
    assert words in str(refused.value)


def test_append_only_table_accepts_batches_and_merges(table: DeltaTable) -> None:
    with_metadata(Path(str(table.folder)), {"delta.appendOnly": "true"})
    table.begin()
    table.commit(1, [write_file(table, [3])])
    first, second = table.active()
    table.replace([first, second], [write_file(table, [1, 2, 3])])
    with pytest.raises(FeatureNotWritten) as refused:
        table.delete(1, table.active(), [])
    rows_land = (
        r"rows land and files are merged, but no row can be deleted.* UNSET TBLPROPERTIES \('delta.appendOnly'\)"
    )
    assert re.search(rows_land, str(refused.value))
    assert "nothing lands" not in str(refused.value)


def test_table_with_tolerated_features_accepts_batches(table: DeltaTable) -> None:
    listed = [name for name in TOLERATED if name not in ("deletionVectors", "columnMapping", "timestampNtz")]
    with_features(Path(str(table.folder)), *listed)
    table.commit(1, [write_file(table, [3])])
    assert table.newest() == 1


def test_begin_keeps_properties_of_users(table: DeltaTable) -> None:
    defaults = table.schema_now and table._table.metadata().configuration
    assert defaults["delta.logRetentionDuration"] == "interval 7 days"
    assert {"uuid", "host", "type"} <= {*defaults["delta.dataSkippingStatsColumns"].split(",")}
    changed = {"delta.logRetentionDuration": "interval 30 days", "delta.checkpointInterval": "7"}
    with_metadata(Path(str(table.folder)), changed)
    before = table.version()
    begin_table(Layout.around(table.folder))
    assert table.version() == before
    assert table._table.metadata().configuration == {**defaults, **changed}
