"""Version of the installed Spark, which must be one that the pipeline was tested with, and names that depend on it.

Invariant: an unknown version stops before Java starts. ``penstock.landing.spark_checkpoint`` edits files of Spark's
checkpoint, and a version that means something else by them would be misread. Differences of PySpark's interfaces are in
``penstock.spark.source.interfaces``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.landing.spark_checkpoint import TESTED_VERSIONS

T = TypeVar("T")
_MANAGER = "FileSystemBasedCheckpointFileManager"
_STREAMING = "org.apache.spark.sql.execution.streaming"


class UnknownSpark(PenstockError, RuntimeError):
    """An untested version of pyspark, or one without a library that is needed; the text names usable versions."""


def check_version(version: str = "") -> None:
    """Raise UnknownSpark unless the minor version was tested; previews were not.

    The default is the version of the pyspark that is imported, and that of the jars in SPARK_HOME if it is set.
    """
    home = os.environ.get("SPARK_HOME")
    versions = [version or _installed_version()]
    if home and not version and (of_jars := _jars_version(Path(home))):
        versions.append(of_jars)
    *first, last = (f"{minor}.x" for minor in TESTED_VERSIONS)
    tested = f"only {', '.join(first)} and {last} are tested"
    if not _is_tested(versions[0]):
        raise UnknownSpark(f"pyspark {versions[0]} is installed, but {tested}: pip install 'penstock-pipe[spark]'")
    if not _is_tested(versions[-1]):
        raise UnknownSpark(
            f"SPARK_HOME ({home}) has Spark {versions[-1]}, but {tested}: set it to one of them, or unset it"
        )
    if _minor(versions[0]) != _minor(versions[-1]):
        raise UnknownSpark(
            f"pyspark {versions[0]} is installed, but SPARK_HOME ({home}) has Spark {versions[-1]}: "
            "set it to a Spark of the same version, or unset it"
        )


def for_installed(by_minor: Mapping[str, T], name: str) -> T:
    """Return what belongs to the minor version of the installed Spark; ``name`` is what Spark needs it for.

    Raises UnknownSpark if there is nothing for this version.
    """
    version = _installed_version()
    if _minor(version) not in by_minor:
        raise UnknownSpark(
            f"pyspark {version} is installed, and its library for {name} was not released when Penstock was: "
            "pip install 'penstock-pipe[spark]'"
        )
    return by_minor[_minor(version)]


def checkpoint_settings() -> dict[str, str]:
    """Return the setting of the class that writes checkpoints on a local disk.

    The default one starts a process (readlink) for each file that it renames.
    """
    package = _STREAMING if _minor(_installed_version()) == "4.0" else f"{_STREAMING}.checkpointing"
    return {"spark.sql.streaming.checkpointFileManagerClass": f"{package}.{_MANAGER}"}


def _is_tested(version: str) -> bool:
    # Digits and dots alone: previews were not tested.
    return _minor(version) in TESTED_VERSIONS and version.replace(".", "").isdecimal()


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _installed_version() -> str:
    """Return the version of the pyspark that an import finds: its distribution may be another one (PYTHONPATH)."""
    spec = find_spec("pyspark")
    folders = (spec and spec.submodule_search_locations) or []
    with contextlib.suppress(OSError):
        for folder in folders:
            if match := re.search(r"__version__[^=\n]*= *[\"']([^\"'\n]+)", Path(folder, "version.py").read_text()):
                return match[1]
    import pyspark  # a cluster's is in an archive

    return pyspark.__version__


def _jars_version(home: Path) -> str:
    """Return the version of the jars in a folder that SPARK_HOME names; empty without any."""
    names = [path.stem for path in home.glob("jars/spark-core_*.jar")]
    return names[0].partition("-core_")[2].partition("-")[2] if names else ""
