"""The wheel is complete, and runs in an environment without the files of this folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from penstock import __version__

ROOT = Path(__file__).parents[2]
SOURCES = ("penstock", "pyproject.toml", "README.md", "LICENSE")
CONSTRAINTS = ROOT / "constraints.txt"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, because setuptools builds next to its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True)
    (built,) = (folder / "dist").iterdir()
    return built


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        return message_from_string(file.read(f"penstock_pipe-{__version__}.dist-info/METADATA").decode())


def test_wheel_has_each_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("penstock/")}
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "penstock").rglob("*") if path.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}


def test_metadata_describes_the_package(wheel: Path) -> None:
    fields = metadata(wheel)
    assert (fields["Version"], fields["License-Expression"]) == (__version__, "Apache-2.0")
    assert {"spark", "kafka", "console", "java", "otel"} <= set(fields.get_all("Provides-Extra", []))
    named = set(fields.get_all("Classifier", []))
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux", "Topic :: System :: Logging"} <= named
    least = re.search(r">=3\.(\d+)", fields["Requires-Python"])
    assert least
    assert f"Programming Language :: Python :: 3.{least[1]}" in named


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extras", ["", "[spark,java]"], ids=["plain", "spark"])
def test_wheel_is_installed_and_runs_the_demo(wheel: Path, tmp_path: Path, extras: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    install = ["install", "--quiet", "--constraint", str(CONSTRAINTS), f"{wheel}{extras}"]
    subprocess.run([programs / "python", "-m", "pip", *install], check=True)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [programs / "penstock", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert run("--version").stdout == f"{__version__}\n"
    demo = run("up", "--demo")
    assert (demo.returncode, demo.stdout.splitlines()[-1:]) == (0, ["unaccounted: 0"]), demo.stdout + demo.stderr
    if not extras:
        assert "pip install 'penstock-pipe[spark]'" in demo.stderr
        assert "pip install 'penstock-pipe[sql]'" in run("sql", "select 1").stderr
        assert "pip install 'penstock-pipe[console]'" in run("console").stderr
