"""The views of a Spark session on tables in an object store."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.table_paths import Layout
from penstock.spark.views import register_views
from tests.landing.writing.test_landing_at_url import Landing, uuids_of


@pytest.mark.spark
def test_session_reads_tables_at_url_without_a_jar(spark: SparkSession, at_url: Layout) -> None:
    assert at_url.store is not None
    landing = Landing(at_url)
    landing.land(0, range(10))
    landing.land(1, range(10, 20))
    register_views(spark, TablesUrl(at_url.store.root, at_url.tables, at_url.store.options))
    rows = spark.sql("select uuid, date, data from events").collect()
    assert sorted(row.uuid for row in rows) == uuids_of(range(20))
    assert {str(row.date) for row in rows} == {"2023-11-14"}
    assert spark.sql("select count(*) from quarantine").collect()[0][0] == 0
