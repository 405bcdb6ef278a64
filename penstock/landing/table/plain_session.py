"""Settings and SQL statements with which a Spark session without Penstock reads the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.landing.event_rules import VIEWS
from penstock.landing.table_paths import Layout

NEWEST = "4.2"
DELTA_VERSION = "4.4.0"
HADOOP_VERSIONS = {"4.0": "3.4.1", "4.1": "3.4.2", NEWEST: "3.5.0"}
"""Hadoop in each minor version of Spark for which there is Delta."""
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}
S3_SETTINGS = {
    "aws_endpoint_url": "spark.hadoop.fs.s3a.endpoint",
    "aws_region": "spark.hadoop.fs.s3a.endpoint.region",
}
"""Hadoop's names of the options of delta-rs; keys are omitted, because Hadoop reads them from the environment."""


def session_settings(layout: Layout, spark: str = NEWEST) -> dict[str, str]:
    """Return the settings of the session (spark-defaults.conf); ``spark``: a key of HADOOP_VERSIONS."""
    packages = f"io.delta:delta-spark_{spark}_2.13:{DELTA_VERSION}"
    settings = {"spark.jars.packages": packages, **SETTINGS}
    if layout.store is None or not str(layout.store).startswith("s3:"):
        return settings
    s3_package = f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSIONS[spark]}"
    return {**settings, "spark.jars.packages": f"{packages},{s3_package}", **_s3_settings(layout.store.options)}


def _s3_settings(options: Mapping[str, str]) -> dict[str, str]:
    options_by_name = {name.lower(): value for name, value in options.items()}
    settings = {setting: options_by_name[name] for name, setting in S3_SETTINGS.items() if name in options_by_name}
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
