"""Addresses and memory of a Spark session."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import (
    REQUIRED_PARTS,
    SETTINGS,
    _home_without_archives,
    _java_options,
    build_session,
    listens_on_loopback,
)


@pytest.mark.parametrize("master", ["local", "local[2,3]", "local-cluster[2,1,512]", "spark://127.0.0.1:7077"])
def test_local_session_listens_on_loopback_only(master: str) -> None:
    assert listens_on_loopback(master)


@pytest.mark.parametrize("master", ["spark://host:7077", "spark://localhost.example.org:1", "yarn", "k8s://localhost"])
def test_remote_cluster_reaches_the_driver_by_its_name(master: str) -> None:
    assert not listens_on_loopback(master)


def test_jvm_memory_options_of_the_user_are_kept() -> None:
    assert "-XX:+UseParallelGC -XX:MaxNewSize=128m" in _java_options("", None)
    assert "MaxNewSize" not in _java_options("-XX:NewRatio=3", None)
    assert "ParallelGC" not in _java_options("-XX:+UseZGC", None)


def test_jvm_uses_the_temporary_folder_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert f"-Djava.io.tmpdir={tmp_path} " in _java_options("", None) + " "


def test_home_without_archives_exists_behind_a_link_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in REQUIRED_PARTS:
        (tmp_path / "release" / "pyspark" / part).mkdir(parents=True)
    (tmp_path / "current").symlink_to(tmp_path / "release")
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "current" / "pyspark" / "__init__.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = _home_without_archives()
    assert home is not None
    assert [(home / part).resolve() for part in REQUIRED_PARTS] == [
        tmp_path / "release" / "pyspark" / part for part in REQUIRED_PARTS
    ]


HISTORY = [key for key in SETTINGS if "retained" in key or key.endswith("numRecentProgressUpdates")]


@pytest.mark.spark
def test_history_and_heap_of_a_session_are_limited(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert len(HISTORY) == 7
    assert {key: conf.get(key) for key in HISTORY} == {key: SETTINGS[key] for key in HISTORY}
    assert spark._jvm.Runtime.getRuntime().maxMemory() <= 1 << 30, "the fixture sets driver.memory"  # type: ignore[union-attr]


@pytest.mark.parametrize("master", ["sc://127.0.0.1:15002", "mesos://host:5050", "", "host:7077"])
def test_unknown_masters_are_refused_before_java_starts(master: str) -> None:
    with pytest.raises(ValueError, match=r"Spark Connect|is not a Spark master"):
        build_session({"master": master})
