"""Jars and settings with which Spark itself reads the tables (Delta) and Kafka, for tests and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.java.jars import SPARK_DELTA, SPARK_KAFKA, Library, fetch_all
from penstock.landing.table.plain_session import SETTINGS as PLAIN
from penstock.spark.versions import for_installed

DELTA = "delta"
KAFKA = "kafka"
LIBRARIES: dict[str, Mapping[str, Sequence[Library]]] = {DELTA: SPARK_DELTA, KAFKA: SPARK_KAFKA}
SETTINGS = {
    DELTA: {
        **PLAIN,
        # Number of tasks that compute the state of the table; the default of 50 suits a cluster.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    KAFKA: {},
}


def package_settings(names: Sequence[str]) -> dict[str, str]:
    """Return the settings of a session that can use ``names`` (delta, kafka).

    Raises CannotFetch, NoJava, UnknownSpark.
    """
    settings: dict[str, str] = {}
    jars: list[str] = []
    for name in names:
        jars += [str(jar) for jar in fetch_all(for_installed(LIBRARIES[name], name.capitalize()))]
        settings |= SETTINGS[name]
    return {**settings, **({"spark.jars": ",".join(jars)} if jars else {})}
