"""The package as a file for executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

from penstock.spark.package_zip import package_zip


def test_it_holds_the_modules_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(package_zip(tmp_path / "new")) as archive:
        names = archive.namelist()
    assert "penstock/spark/source/data_source.py" in names
    assert all(name.startswith("penstock/") and name.endswith(".py") for name in names)


def test_it_is_made_once_for_each_content(tmp_path: Path) -> None:
    made = package_zip(tmp_path)
    written = made.stat().st_mtime_ns
    assert package_zip(tmp_path) == made
    assert made.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [made]
