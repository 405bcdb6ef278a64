"""The simulation of the landing: its driver, tasks, proofs and maintenance on tables in a real folder, without Spark.

Read ``run`` (``simulate_landing``), ``faults``, ``pipeline`` (the process), ``planner`` (in the place of Spark),
``programs`` (other writers), ``replacements``, ``tables_disk``, and ``promises`` (what is checked). Imports
``testing.crashes``, ``testing.simulation`` and any room before it.
"""

__all__ = [  # noqa: RUF022 reading order
    "run",
    "faults",
    "pipeline",
    "planner",
    "programs",
    "replacements",
    "tables_disk",
    "promises",
]
