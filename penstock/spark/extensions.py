"""Jars and settings that Spark needs for other table formats and sources."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.java.jars import SPARK_DELTA, SPARK_KAFKA, fetch_all
from penstock.landing.table.plain_session import SETTINGS as PLAIN

DELTA = "delta"
KAFKA = "kafka"
LIBRARIES = {DELTA: SPARK_DELTA, KAFKA: SPARK_KAFKA}
SETTINGS = {
    DELTA: {
        **{name: value for name, value in PLAIN.items() if name != "spark.jars.packages"},
        # Number of tasks that compute the state of the table; the default of 50 suits a cluster.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    KAFKA: {},
}


def package_settings(names: Sequence[str]) -> dict[str, str]:
    """Return the settings of a session that can use ``names`` (delta, kafka). Raises CannotFetch, NoJava."""
    settings: dict[str, str] = {}
    jars: list[str] = []
    for name in names:
        jars += [str(jar) for jar in fetch_all(LIBRARIES[name])]
        settings |= SETTINGS[name]
    return {**settings, **({"spark.jars": ",".join(jars)} if jars else {})}
