"""Settings and SQL statements with which a Spark session without Penstock reads the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.landing.event_rules import VIEWS
from penstock.landing.table_paths import Layout

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
SETTINGS = {
    "spark.jars.packages": PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}


S3_PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"
S3_SETTINGS = {
    "aws_endpoint_url": "spark.hadoop.fs.s3a.endpoint",
    "aws_region": "spark.hadoop.fs.s3a.endpoint.region",
}
"""Hadoop's names of the options of delta-rs; keys are omitted, because Hadoop reads them from the environment."""


def session_settings(layout: Layout) -> dict[str, str]:
    """Return the settings of the session (spark-defaults.conf)."""
    return {
        **SETTINGS,
        **(_s3_settings(layout.store.options) if layout.store and str(layout.store).startswith("s3:") else {}),
    }


def _s3_settings(options: Mapping[str, str]) -> dict[str, str]:
    options_by_name = {name.lower(): value for name, value in options.items()}
    settings = {"spark.jars.packages": f"{PACKAGE},{S3_PACKAGE}"}
    settings |= {setting: options_by_name[name] for name, setting in S3_SETTINGS.items() if name in options_by_name}
    if "aws_endpoint_url" in options_by_name:
        # Servers other than AWS usually have no name for each bucket.
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return settings


def statements(layout: Layout, typed: Sequence[str] = ()) -> list[str]:
    """Return SQL statements that enter the tables in a catalog; ``typed``: names of typed tables."""
    table = "CREATE TABLE IF NOT EXISTS {} USING delta LOCATION '{}'"
    tables = [table.format(name, _hadoop_location(layout, name)) for name in ("landed", *typed)]
    view = "CREATE OR REPLACE VIEW {} AS SELECT * FROM landed WHERE kind = '{}'"
    views = [view.format(name, kind) for name, kind in VIEWS.items()]
    return [*tables, *views]


def _hadoop_location(layout: Layout, name: str) -> str:
    location = str(layout.table(name))
    return location.replace("s3://", "s3a://", 1) if layout.store else location
