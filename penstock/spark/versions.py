"""Version of the installed Spark, which must be one that the pipeline was tested with.

Invariant: an unknown version stops before Java starts. ``penstock.landing.spark_checkpoint`` edits files of Spark's
checkpoint, and a version that means something else by them would be misread.
"""

from __future__ import annotations

import contextlib
import os
import re
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import PenstockError
from penstock.landing.spark_checkpoint import TESTED_VERSIONS


class UnknownSpark(PenstockError, RuntimeError):
    """An untested version of pyspark is installed; the text names the tested ones."""


def check_version(version: str = "") -> None:
    """Raise UnknownSpark unless the minor version was tested; previews were not.

    The default is the version of the pyspark that is imported, and that of the jars in SPARK_HOME if it is set.
    """
    home = os.environ.get("SPARK_HOME")
    versions = [version] if version else [_installed_version(), _jars_version(Path(home)) if home else ""]
    for found in filter(None, versions):
        minor = ".".join(found.split(".")[:2])
        if minor not in TESTED_VERSIONS or not found.replace(".", "").isdecimal():
            tested = " and ".join(f"{known}.x" for known in TESTED_VERSIONS)
            raise UnknownSpark(
                f"pyspark {found} is installed, but only {tested} are tested: pip install 'penstock-pipe[spark]'"
            )


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
