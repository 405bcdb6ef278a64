"""Features of Delta that another program gave the table: named in one line, with what takes them away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.features import TOLERATED, FeatureNotWritten
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from tests.landing.table.foreign_writer import commit
from tests.landing.table.table_rows import written


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    made = begin_table(Layout.for_tables(tmp_path))
    assert isinstance(made, DeltaTable)
    made.commit(0, [written(made, [1, 2])])
    return made


def with_features(folder: Path, *names: str) -> None:
    commit(folder, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(names)}}])


def with_metadata(folder: Path, properties: dict[str, str], **of_host: Any) -> None:
    """Properties of the table, and of its column ``host``."""
    log = sorted((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    metadata = [line["metaData"] for line in lines if "metaData" in line][-1]
    metadata["configuration"] |= properties
    schema = json.loads(metadata["schemaString"])
    next(one for one in schema["fields"] if one["name"] == "host").update(of_host)
    commit(folder, [{"metaData": {**metadata, "schemaString": json.dumps(schema)}}], "SET TBLPROPERTIES")


@pytest.mark.parametrize("name", ["rowTracking", "domainMetadata", "icebergCompatV2", "somethingNew"])
def test_feature_that_is_not_written_is_named_in_one_line(table: DeltaTable, name: str) -> None:
    with_features(Path(str(table.folder)), "invariants", name)
    for attempt in (table.begin, lambda: table.commit(1, [written(table, [3])])):
        with pytest.raises(FeatureNotWritten) as refused:
            attempt()
        assert f"has {name}, which" in str(refused.value)
        assert f"ALTER TABLE delta.`{table.folder}` DROP FEATURE {name}" in str(refused.value)
        assert "\n" not in str(refused.value)
    with_features(Path(str(table.folder)), "invariants", "appendOnly")
    table.commit(1, [written(table, [3])])
    assert table.newest() == 1


@pytest.mark.parametrize(
    ("properties", "of_host", "words"),
    [
        ({"delta.columnMapping.mode": "name"}, {}, "DROP FEATURE columnMapping"),
        ({"delta.constraints.small": "host < 'm'"}, {}, "DROP CONSTRAINT small"),
        ({}, {"nullable": False}, "ALTER COLUMN host DROP NOT NULL"),
        ({}, {"metadata": {"delta.generationExpression": "type"}}, "generatedColumns (column host)"),
    ],
)
def test_condition_on_rows_is_named(
    table: DeltaTable, properties: dict[str, str], of_host: dict[str, Any], words: str
) -> None:
    with_metadata(Path(str(table.folder)), properties, **of_host)
    with pytest.raises(FeatureNotWritten) as refused:
        table.begin()
    assert words in str(refused.value)


def test_append_only_table_is_landed_into_and_merged(table: DeltaTable) -> None:
    with_metadata(Path(str(table.folder)), {"delta.appendOnly": "true"})
    table.begin()
    table.commit(1, [written(table, [3])])
    one, two = table.active()
    table.replace([one, two], [written(table, [1, 2, 3])])
    with pytest.raises(FeatureNotWritten, match="UNSET TBLPROPERTIES"):
        table.delete(1, table.active(), [])


def test_tolerated_features_are_landed_into(table: DeltaTable) -> None:
    listed = [name for name in TOLERATED if name not in ("deletionVectors", "columnMapping", "timestampNtz")]
    with_features(Path(str(table.folder)), *listed)
    table.commit(1, [written(table, [3])])
    assert table.newest() == 1


def test_properties_stay_as_users_set_them(table: DeltaTable) -> None:
    made = table.schema_now and table._table.metadata().configuration
    assert made["delta.logRetentionDuration"] == "interval 7 days"
    assert {"uuid", "host", "type"} <= {*made["delta.dataSkippingStatsColumns"].split(",")}
    own = {"delta.logRetentionDuration": "interval 30 days", "delta.checkpointInterval": "7"}
    with_metadata(Path(str(table.folder)), own)
    before = table.version()
    begin_table(Layout.around(table.folder))
    assert table.version() == before
    assert table._table.metadata().configuration == {**made, **own}
