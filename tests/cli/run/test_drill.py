"""``penstock drill`` as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

EVERYTHING = Path(__file__).parents[2] / "drill" / "everything.toml"
DAMAGE = ("--no-spark", "--config", str(EVERYTHING), "--only", "damage")
COMMAND = [sys.executable, "-m", "penstock.cli.main", "drill"]


def drill(folder: Path, *options: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_short_drill_loses_no_acknowledged_message(tmp_path: Path) -> None:
    process = drill(tmp_path, "--no-spark", "--minutes", "0.4", "--seed", "3", "--json")
    document = json.loads(process.stdout)
    assert (process.returncode, document["wrong"], document["unaccounted"]) == (0, [], 0), (
        process.stdout + process.stderr
    )
    assert document["acknowledged"] > 100
    assert len(document["disasters"]) >= 3
    assert not list(tmp_path.iterdir()), "nothing is left where it was started"


def test_drill_prints_disasters_and_verdict(tmp_path: Path) -> None:
    process = drill(tmp_path, "--no-spark", "--minutes", "0.1", "--seed", "1", "--only", "kill")
    assert " killed; back after" in process.stdout
    assert "kills, " in process.stdout
    assert "unaccounted for: 0" in process.stdout
    assert "seed 1" in process.stderr


def test_drill_with_many_damaged_files_records_every_loss(tmp_path: Path) -> None:
    process = drill(tmp_path, *DAMAGE, "--damages", "8", "--minutes", "0.1", "--seed", "5", "--json")
    document = json.loads(process.stdout)
    assert (process.returncode, document["wrong"], document["unaccounted"]) == (0, [], 0), (
        process.stdout + process.stderr
    )
    assert all(disaster["what"].count(";") == 8 for disaster in document["disasters"])
    assert re.search(r"[0-9]+ bits flipped.* in [0-9]+ kinds of files, [0-9]+ starts", document["done"])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_drill_of_an_hour_loses_nothing(tmp_path: Path) -> None:
    process = drill(tmp_path, "--minutes", "60", seconds=7000)
    print(process.stdout)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_drill_of_damaged_files(tmp_path: Path) -> None:
    for seed in range(7):
        process = drill(tmp_path, *DAMAGE, "--damages", "9", "--minutes", "5", "--seed", str(seed), seconds=2000)
        print(process.stdout)
        assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_drill_of_two_hundred_kills(tmp_path: Path) -> None:
    process = drill(
        tmp_path, "--no-spark", "--config", str(EVERYTHING), "--only", "kill", "--minutes", "20", seconds=7000
    )
    print(process.stdout)
    assert process.returncode == 0, process.stdout + process.stderr
