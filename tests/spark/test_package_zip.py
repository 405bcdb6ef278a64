"""The package as a file for executors."""

from __future__ import annotations

import zipfile
from pathlib import Path

from penstock.spark.package_zip import package_zip


def test_archive_has_exactly_the_modules_of_the_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(package_zip(tmp_path / "new")) as archive:
        names = archive.namelist()
    assert "penstock/spark/source/data_source.py" in names
    assert all(name.startswith("penstock/") and name.endswith(".py") for name in names)


def test_archive_is_created_once_per_content(tmp_path: Path) -> None:
    archive = package_zip(tmp_path)
    written = archive.stat().st_mtime_ns
    assert package_zip(tmp_path) == archive
    assert archive.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [archive]
