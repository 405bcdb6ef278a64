"""Spark's Python daemon, which forks the Python workers: for landing tasks it imports their modules first.

Spark stops workers that were idle for a minute. Without this, each new one imports Arrow and the landing again.
"""

from __future__ import annotations

import importlib
import os

from pyspark import daemon

from penstock.process.tuning import freeze_loaded_objects, tune

MODULE = "penstock.spark.worker_daemon"
ROLE = "SPARK_WORKER_ROLE"
"""Environment variable of Python workers, and of the daemon that forks them; other values are other daemons."""
LANDING = "landing"
LANDING_WITH_FUNCTION = "landing with a function"
"""Role of workers that call a user's function, which may use pandas."""
PRELOADED = ("pyspark.worker", "penstock.spark.query.landing_tasks")


def main() -> None:
    """Serve as ``python -m pyspark.daemon`` does."""
    role = os.environ.get(ROLE)
    if role == LANDING:
        tune("landing worker")
    if role in (LANDING, LANDING_WITH_FUNCTION):
        for module in PRELOADED:
            importlib.import_module(module)
        # Collections of the workers leave the frozen objects alone, so their pages stay shared.
        freeze_loaded_objects()
    daemon.manager()


if __name__ == "__main__":
    main()
