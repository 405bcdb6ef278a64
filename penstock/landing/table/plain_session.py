"""What a Spark session that knows nothing of Penstock needs to read the tables: settings, and statements of SQL."""

from __future__ import annotations

from penstock.landing.event_rules import VIEWS
from penstock.landing.table.begun_table import DELTA
from penstock.landing.table_paths import Layout

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
SETTINGS = {
    "spark.jars.packages": PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}


def session_settings(form: str) -> dict[str, str]:
    """Settings of the session (spark-defaults.conf)."""
    return SETTINGS if form == DELTA else {"spark.sql.session.timeZone": "UTC"}


def statements(layout: Layout, form: str) -> list[str]:
    """Statements that give the tables their names in a catalog."""
    table = f"CREATE TABLE IF NOT EXISTS landed USING {form} LOCATION '{layout.landed}'"
    view = "CREATE OR REPLACE VIEW {} AS SELECT * FROM landed WHERE kind = '{}'"
    views = [view.format(name, kind) for name, kind in VIEWS.items()]
    return [table, *views]
