"""Runs of the pipeline in the Spark session that tests share: a process of its own takes 14 s of CPU for its JVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.config import load
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.spark.pipeline import landing_of, run


def run_once(spark: SparkSession, data: Path, http: str, settings: Sequence[str] = ()) -> int:
    """Land all messages as ``penstock.spark.pipeline --once`` does, and return the exit code."""
    loaded = load(None, [f"data_dir={data}", f"log.http={http}", *settings], {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark, "stop", lambda: None)
        return run(landing_of(loaded), ledger=LedgerClient.from_settings(loaded), once=True)
