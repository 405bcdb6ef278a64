"""What a Spark session that knows nothing of Penstock needs to read the tables: settings, and statements of SQL."""

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
"""What Hadoop calls what delta-rs is told. Keys are not shown: Hadoop takes them from the environment, as delta-rs."""


def session_settings(layout: Layout) -> dict[str, str]:
    """Return the settings of the session (spark-defaults.conf)."""
    return {
        **SETTINGS,
        **(_of_s3(layout.store.options) if layout.store and str(layout.store).startswith("s3:") else {}),
    }


def _of_s3(options: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): value for name, value in options.items()}
    found = {"spark.jars.packages": f"{PACKAGE},{S3_PACKAGE}"}
    found |= {named: known[name] for name, named in S3_SETTINGS.items() if name in known}
    if "aws_endpoint_url" in known:
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return found


def statements(layout: Layout, typed: Sequence[str] = ()) -> list[str]:
    """Return statements that give the tables their names in a catalog; ``typed``: those of typed tables."""
    table = "CREATE TABLE IF NOT EXISTS {} USING delta LOCATION '{}'"
    tables = [table.format(name, _place(layout, name)) for name in ("landed", *typed)]
    view = "CREATE OR REPLACE VIEW {} AS SELECT * FROM landed WHERE kind = '{}'"
    views = [view.format(name, kind) for name, kind in VIEWS.items()]
    return [*tables, *views]


def _place(layout: Layout, name: str) -> str:
    """As Hadoop calls it."""
    place = str(layout.table(name))
    return place.replace("s3://", "s3a://", 1) if layout.store else place
