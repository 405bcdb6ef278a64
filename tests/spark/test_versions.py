"""Versions of Spark: each tested one lands in an environment of its own, every other one stops with one line."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from penstock.cli.tables.spark_session import missing_spark
from penstock.errors import PenstockError
from penstock.java.jars import SPARK_DELTA, SPARK_KAFKA
from penstock.landing.spark_checkpoint import TESTED_VERSIONS
from penstock.landing.table.plain_session import HADOOP_VERSIONS
from penstock.landing.table_paths import Layout
from penstock.spark.versions import UnknownSpark, check_version, checkpoint_settings
from penstock.testing.spark_extensions import DELTA, KAFKA, package_settings
from tests.environments import environment_with
from tests.spark.killed_pipelines import ROWS, clicks_in_duckdb, kill_pipelines, proved_once
from tests.spark.spark_daemon import daemon
from tests.spark.test_pipeline import start

ROOT = Path(__file__).parents[2]
PINS = Path(__file__).with_name("spark_versions.txt")
"""A version of pyspark for each minor version, and the py4j that all of them accept."""
PYSPARKS = [line.split("==")[1] for line in PINS.read_text().split() if line.startswith("pyspark==")]
FROM_LOG = "tests/spark/test_pipeline_kills.py::test_everything_lands_once_with_random_kills[5]"
FROM_KAFKA = "tests/spark/query/test_kafka_kills.py::test_everything_from_kafka_lands_once_with_random_kills[4000-2]"
REFUSAL = (
    "pyspark {} is installed, but only 4.0.x, 4.1.x, 4.2.x and 4.3.x are tested: pip install 'penstock-pipe[spark]'"
)


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@pytest.mark.parametrize("version", ["4.0.0", "4.2.0", *PYSPARKS])
def test_tested_version_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "4.20.0", "5.0.0", "4.3.0.dev1", "4.0.2-amzn-0"])
def test_another_version_is_refused_in_one_line_that_names_the_tested_ones(version: str) -> None:
    with pytest.raises(UnknownSpark) as refusal:
        check_version(version)
    assert str(refusal.value) == REFUSAL.format(version)
    assert isinstance(refusal.value, PenstockError)


def test_version_that_runs_counts_not_the_installed_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, "3.5.9", monkeypatch)
    with pytest.raises(UnknownSpark, match=r"^pyspark 3\.5\.9 is installed, but only "):
        check_version()
    assert missing_spark().startswith("pyspark 3.5.9 is installed")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a user namespace")
def test_user_without_a_name_is_refused_in_one_line(tmp_path: Path) -> None:
    namespace = ["unshare", "--user", "--map-user=54321", sys.executable, "-m", "penstock.cli.main"]
    refusal = "penstock: Spark needs a user with a name, and user id 54321 has none: add a line for it to /etc/passwd"
    for command, alternative in (("up", "; or start without tables: penstock up --no-spark"), ("pipeline run", "")):
        words = [*namespace, *command.split(), "-o", f"data_dir={tmp_path}"]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (process.returncode, process.stderr) == (1, f"{refusal}{alternative}\n")


@pytest.mark.parametrize(
    ("jars", "refusal"),
    [
        ("4.4.0", r"^SPARK_HOME \(.*\) has Spark 4\.4\.0, but only .*: set it to one of them, or unset it$"),
        ("4.0.5", r"but SPARK_HOME \(.*\) has Spark 4\.0\.5: set it"),
    ],
)
def test_spark_home_has_the_version_of_pyspark(
    jars: str, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{jars}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(UnknownSpark, match=refusal):
        check_version()


@pytest.mark.parametrize("program", [["penstock.spark.pipeline"], ["penstock.cli.main", "pipeline", "run"]])
def test_pipeline_with_an_unknown_version_stops_before_it_writes(program: list[str], tmp_path: Path) -> None:
    fake, data = tmp_path / "fake", tmp_path / "data"
    fake.mkdir()
    data.mkdir()
    pretend(fake, "4.4.0")
    environment = {**os.environ, "PYTHONPATH": f"{fake}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", *program]
    stopped = subprocess.run(command, cwd=data, env=environment, capture_output=True, text=True, timeout=120)
    assert stopped.returncode != 0
    assert " ".join(stopped.stderr.split()).removeprefix("penstock: ") == REFUSAL.format("4.4.0")
    assert list(data.iterdir()) == []


def pretend(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Make a pyspark in a folder that has a version and nothing else."""
    (folder / "pyspark").mkdir()
    (folder / "pyspark" / "__init__.py").touch()
    (folder / "pyspark" / "version.py").write_text(f'__version__: str = "{version}"\n')
    if monkeypatch:
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "pyspark", raising=False)


@pytest.mark.parametrize(("version", "package"), [("4.0.5", "streaming"), ("4.1.4", "streaming.checkpointing")])
def test_class_that_writes_checkpoints_is_the_one_of_the_version(
    version: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, version, monkeypatch)
    (name,) = checkpoint_settings().values()
    assert name == f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"


def test_a_library_that_a_version_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "4.3.0", monkeypatch)
    for name, library in ((KAFKA, "Kafka"), (DELTA, "Delta")):
        with pytest.raises(UnknownSpark) as refusal:
            package_settings([name])
        assert str(refusal.value) == (
            f"pyspark 4.3.0 is installed, and its library for {library} was not released when Penstock was: "
            "pip install 'penstock-pipe[spark]'"
        )


def test_documented_versions_are_the_tested_ones() -> None:
    text = (ROOT / "docs" / "tables.md").read_text()
    rows = re.findall(r"^\| (4\.\d) \| works \| (.*?) \|$", text, re.MULTILINE)
    pins = {minor(version): version for version in PYSPARKS}
    assert [version for version, _ in rows] == list(TESTED_VERSIONS)
    assert all(f"pyspark {pins[version]}" in tried or f"; {pins[version]}" in tried for version, tried in rows)


def test_each_tested_minor_version_has_a_pin_and_its_libraries() -> None:
    assert [minor(version) for version in PYSPARKS] == list(TESTED_VERSIONS)
    assert list(SPARK_KAFKA) == list(SPARK_DELTA) == list(HADOOP_VERSIONS) == ["4.0", "4.1", "4.2"]
    assert all(libraries[0].version.startswith(version) for version, libraries in SPARK_KAFKA.items())


@pytest.mark.soak
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("version", PYSPARKS)
def test_killed_pipelines_from_log_and_kafka_land_each_event_once(version: str, tmp_path: Path) -> None:
    python = environment(version)
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/kills", FROM_LOG, FROM_KAFKA]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True)
    assert killed.returncode == 0, killed.stdout
    assert "2 passed" in killed.stdout


@pytest.mark.soak
@pytest.mark.timeout(4000)
def test_one_table_is_landed_by_each_version_in_turn(tmp_path: Path) -> None:
    """Each is killed in a batch, which the next one repeats from its checkpoint: upwards, then down again."""
    pythons = [environment(version) for version in [*PYSPARKS, *reversed(PYSPARKS)]]
    kills, chance, layout = len(pythons), random.Random(), Layout.for_tables(tmp_path / "tables")
    with daemon(tmp_path) as running:
        kill_pipelines(running, tmp_path, layout, [], kills, chance, pythons=pythons)
        last = start(tmp_path, running.http, "--once", python=pythons[0])
        log_text = last.communicate(timeout=600)[1]
        assert last.returncode == 0, log_text
        assert running.ledger.balance().unaccounted == 0
    proved_once(tmp_path, layout, kills)
    assert clicks_in_duckdb(tmp_path / "tables") == (2 * kills * ROWS, 2 * kills * ROWS)


def environment(version: str) -> Path:
    """Return the Python of an environment with this pyspark and, for the rest, the packages of this one.

    It is made once, in the user's cache folder: Spark is 450 MB.
    """
    py4j = next(line for line in PINS.read_text().split() if line.startswith("py4j=="))
    python = environment_with(f"pyspark-{version}", [f"pyspark=={version}", py4j])
    folder = str(python.parents[1])
    # Behind its own packages on the path, so that its pyspark is the one that is imported. Written each time: the
    # environment outlives the checkout that made it.
    packages = sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder})
    Path(packages, "zz_host.pth").write_text(sysconfig.get_path("purelib"))
    return python
