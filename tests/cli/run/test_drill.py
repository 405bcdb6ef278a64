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


def test_a_short_drill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    done = drill(tmp_path, "--no-spark", "--minutes", "0.4", "--seed", "3", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["wrong"], said["unaccounted"]) == (0, [], 0), done.stdout + done.stderr
    assert said["acknowledged"] > 100
    assert len(said["disasters"]) >= 3
    assert not list(tmp_path.iterdir()), "nothing is left where it was started"


def test_people_see_a_line_for_each_disaster_and_the_verdict(tmp_path: Path) -> None:
    done = drill(tmp_path, "--no-spark", "--minutes", "0.1", "--seed", "1", "--only", "kill")
    assert " killed; back after" in done.stdout
    assert "kills, " in done.stdout
    assert "unaccounted for: 0" in done.stdout
    assert "seed 1" in done.stderr


def test_damage_of_many_files_at_once_comes_up_and_loses_nothing_without_a_name(tmp_path: Path) -> None:
    done = drill(tmp_path, *DAMAGE, "--damages", "8", "--minutes", "0.1", "--seed", "5", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["wrong"], said["unaccounted"]) == (0, [], 0), done.stdout + done.stderr
    assert all(disaster["what"].count(";") == 8 for disaster in said["disasters"])
    assert re.search(r"[0-9]+ bits flipped.* in [0-9]+ kinds of files, [0-9]+ starts", said["done"])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_a_drill_of_an_hour(tmp_path: Path) -> None:
    done = drill(tmp_path, "--minutes", "60", seconds=7000)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_two_thousand_flips_and_five_hundred_ends_and_pages(tmp_path: Path) -> None:
    for seed in range(7):
        done = drill(tmp_path, *DAMAGE, "--damages", "9", "--minutes", "5", "--seed", str(seed), seconds=2000)
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills(tmp_path: Path) -> None:
    done = drill(tmp_path, "--no-spark", "--config", str(EVERYTHING), "--only", "kill", "--minutes", "20", seconds=7000)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
