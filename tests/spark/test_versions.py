"""Versions of Spark: each tested one lands in an environment of its own, every other one stops with one line."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from penstock.cli.tables.spark_session import missing_spark
from penstock.errors import PenstockError
from penstock.files.file_system import OS
from penstock.java.runtime import cache_folder
from penstock.landing.spark_checkpoint import TESTED_VERSIONS
from penstock.spark.versions import UnknownSpark, check_version

ROOT = Path(__file__).parents[2]
PINS = Path(__file__).with_name("spark_versions.txt")
"""A version of pyspark for each minor version, and the py4j that all of them accept."""
PYSPARKS = [line.split("==")[1] for line in PINS.read_text().split() if line.startswith("pyspark==")]
KILLS = "tests/spark/test_pipeline_kills.py::test_everything_lands_once_with_random_kills[1]"


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0"])
def test_tested_version_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4", "4.4.0", "4.20.0", "5.0.0", "4.3.0.dev1", "4.2.0-amzn-1"])
def test_another_version_is_refused_in_one_line_that_names_the_tested_ones(version: str) -> None:
    with pytest.raises(UnknownSpark) as refusal:
        check_version(version)
    assert str(refusal.value) == (
        f"pyspark {version} is installed, but only 4.2.x and 4.3.x are tested: pip install 'penstock-pipe[spark]'"
    )
    assert isinstance(refusal.value, PenstockError)


@pytest.mark.parametrize("place", ["first on PYTHONPATH", "SPARK_HOME"])
def test_version_that_runs_counts_not_the_installed_distribution(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "SPARK_HOME":
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "spark-core_2.13-4.0.1.jar").touch()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    else:
        (tmp_path / "pyspark").mkdir()
        (tmp_path / "pyspark" / "__init__.py").touch()
        (tmp_path / "pyspark" / "version.py").write_text('__version__: str = "4.0.1"\n')
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(UnknownSpark, match=r"^pyspark 4\.0\.1 is installed, but only "):
        check_version()
    assert missing_spark().startswith("pyspark 4.0.1 is installed")


def test_each_tested_minor_version_has_a_pin() -> None:
    assert {".".join(version.split(".")[:2]) for version in PYSPARKS} >= set(TESTED_VERSIONS)


@pytest.mark.soak
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("version", PYSPARKS)
def test_killed_pipeline_lands_each_event_once_or_does_not_start(version: str, tmp_path: Path) -> None:
    python = environment(version)
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    if version.startswith(TESTED_VERSIONS):
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/kills", KILLS]
        killed = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True)
        assert killed.returncode == 0, killed.stdout
        assert "1 passed" in killed.stdout
        return
    refusal = f"pyspark {version} is installed, but only 4.2.x and 4.3.x are tested: pip install 'penstock-pipe[spark]'"
    for program in ("penstock.spark.pipeline", "penstock.cli.main"):
        command = [python, "-m", program, *(["pipeline", "run"] if "cli" in program else [])]
        stopped = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=300)
        assert stopped.returncode != 0
        assert " ".join(stopped.stderr.split()).removeprefix("penstock: ") == refusal
    assert list(tmp_path.iterdir()) == []


def environment(version: str) -> Path:
    """Return the Python of an environment with this pyspark and, for the rest, the packages of this one.

    It is made once, in the user's cache folder: Spark is 450 MB.
    """
    folder = cache_folder() / "test-environments" / f"pyspark-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, ready = folder / "bin" / "python", folder / "ready"
    release = OS.lock(folder.with_suffix(".lock"))
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
            # Behind its own packages on the path, so that its pyspark is the one that is imported.
            Path(packages, "zz_host.pth").write_text(sysconfig.get_path("purelib"))
            py4j = next(line for line in PINS.read_text().split() if line.startswith("py4j=="))
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, f"pyspark=={version}", py4j], check=True, timeout=1800)
            ready.touch()
    finally:
        release()
    return python
