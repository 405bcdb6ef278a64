"""Versions of Spark that the pipeline was tested with; everything that depends on the version is here.

Invariant: an unknown version stops before Java starts. ``penstock.upkeep.checkpoint_repair`` edits files of Spark's
checkpoint, and a version that means something else by them would be misread. ``check_format`` of ``landing.journal``
checks the format that an entry names.
"""

from __future__ import annotations

from importlib import metadata

from penstock.errors import PenstockError

TESTED_VERSIONS = ("4.2", "4.3")
"""Minor versions of which a killed pipeline landed each event once (``tests/spark/test_versions.py``)."""


class UnknownSpark(PenstockError, RuntimeError):
    """An untested version of pyspark is installed; the text names the tested ones."""


def check_version(version: str = "") -> None:
    """Raise UnknownSpark unless the minor version (default: the installed one's) was tested. Previews were not."""
    version = version or _installed_version()
    minor = ".".join(version.split(".")[:2])
    if minor not in TESTED_VERSIONS or not version.replace(".", "").isdecimal():
        tested = " and ".join(f"{known}.x" for known in TESTED_VERSIONS)
        raise UnknownSpark(
            f"pyspark {version} is installed, but only {tested} are tested: pip install 'penstock-pipe[spark]'"
        )


def _installed_version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # a Spark on PYTHONPATH has no metadata of a package
        import pyspark

        return pyspark.__version__
