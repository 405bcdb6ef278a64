"""Tables of a real Hive Metastore and of Iceberg's own REST catalog are audited by the catalog's address."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import And, EqualTo

from tests.audit.audited import filled_topic, rows_table, run_audit
from tests.audit.java_catalogs import HIVE, REST, delete_row_of_files, java_catalog
from tests.kafka.kafka_helpers import Topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", [HIVE, REST])
def test_table_of_a_real_catalog_is_audited_and_its_losing_snapshot_named(
    topics: Topics, tmp_path: Path, kind: str
) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    with java_catalog(kind, tmp_path) as properties:
        catalog = load_catalog("lake", **properties)
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", schema=rows_table(rows).schema)
        table.append(rows_table(rows, topic))
        store = [word for name in ("type", "uri") for word in ("--store", f"{name}={properties[name]}")]
        status, report, errors = run_audit(topics, topic, "iceberg://lake/shop.orders", *store)
        assert (status, report.get("required"), report.get("kind")) == (0, 120, "Iceberg"), errors
        table.delete(And(EqualTo("kafka_partition", 1), EqualTo("kafka_offset", 17)))
        culprit = table.refresh().current_snapshot()
        table.append(rows_table([(0, 5)], topic))
        status, report, errors = run_audit(topics, topic, "iceberg://lake/shop.orders", *store)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
    assert culprit is not None
    (loss,) = report["partitions"][1]["losses"]
    assert (loss["ranges"], loss["commit"].partition(",")[0]) == ([[17, 18]], f"snapshot {culprit.snapshot_id}")


def test_rows_of_deletion_vectors_are_missing_and_their_snapshot_is_named(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    with java_catalog(REST, tmp_path) as properties:
        catalog = load_catalog("lake", **properties)
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", schema=rows_table(rows).schema)
        table.append(rows_table(rows, topic))
        delete_row_of_files(properties["uri"], 17)
        assert table.refresh().metadata.format_version == 3
        store = ("--store", "type=rest", "--store", f"uri={properties['uri']}")
        status, report, errors = run_audit(topics, topic, "iceberg://lake/shop.orders", *store)
    assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 0), errors
    (loss,) = report["partitions"][0]["losses"]
    assert (loss["ranges"], "delete by Apache Iceberg 1.10.1" in loss["commit"]) == ([[17, 18]], True)
