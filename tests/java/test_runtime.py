"""Search for a Java that runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.java import runtime


def fake_java(folder: Path, version: int, *, vector: bool = True) -> Path:
    """Create a Java home whose ``java`` answers only version queries."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    refuse = "" if vector else f'case "$*" in *{runtime.VECTOR_MODULE}*) exit 1;; esac\n'
    script.write_text(
        f'#!/bin/sh\n{refuse}echo "    java.home = {folder}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    script.chmod(0o755)
    return folder


def test_java_home_is_preferred(tmp_path: Path) -> None:
    home, other_home = fake_java(tmp_path / "home", 21), fake_java(tmp_path / "other", 17)
    java = runtime.system_java({"JAVA_HOME": str(home), "PATH": str(other_home / "bin")})
    assert java == runtime.Java(home, 21)


def test_old_java_is_skipped(tmp_path: Path) -> None:
    home, other_home = fake_java(tmp_path / "home", 11), fake_java(tmp_path / "other", 17)
    assert runtime.system_java({"JAVA_HOME": str(home), "PATH": str(other_home / "bin")}) == runtime.Java(
        other_home, 17
    )
    assert runtime.system_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)}) is None


def test_java_without_vector_module_is_skipped(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 21, vector=False)
    assert runtime.system_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)}) is None


def test_packaged_java_starts_through_the_wrapper(tmp_path: Path) -> None:
    java = runtime.find_java({"PATH": str(tmp_path)}, tmp_path / "cache")
    assert java.home.is_relative_to(tmp_path / "cache")
    answer = subprocess.run(
        [java.home / "bin" / "java", runtime.VECTOR_MODULE, "-version"], capture_output=True, text=True, check=True
    )
    assert f'"{java.version}.' in answer.stderr


def test_wrapper_keeps_all_other_arguments(tmp_path: Path) -> None:
    real = tmp_path / "it's a $HOME `folder`" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor option in "$@"; do echo "<$option>"; done\n')
    real.chmod(0o755)
    script = runtime.write_wrapper(real, tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b", runtime.VECTOR_MODULE, "", "x*"]
    answer = subprocess.run([script, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<x*>"]


def test_wrapper_is_written_once(tmp_path: Path) -> None:
    real = tmp_path / "java"
    first = runtime.write_wrapper(real, tmp_path / "cache") / "bin" / "java"
    written = os.stat(first).st_mtime_ns
    assert os.stat(runtime.write_wrapper(real, tmp_path / "cache") / "bin" / "java").st_mtime_ns == written


@pytest.mark.parametrize("name", ["LC_ALL", "LANG"])
def test_java_finds_folders_that_the_locale_cannot_write(name: str) -> None:
    program = """if True:
        import subprocess
        from penstock.java import runtime
        runtime.set_locale()
        java = runtime.find_java().home / "bin" / "java"
        subprocess.run([java, "-XshowSettings:properties", "-version"], check=True)
    """
    environment = {name: "C", **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "sun.jnu.encoding = UTF-8" in answer.stderr


@pytest.mark.parametrize("home", ["/proc", "/dev/null", ""])
def test_cache_without_a_writable_home_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    if not home:  # as for a user id without a name
        monkeypatch.setattr(Path, "home", lambda: Path("~unknown-user").expanduser())
    folder = runtime.cache_folder()
    assert folder == tmp_path / f"penstock-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime.cache_folder() == folder
    # The folder of another user, as this process now sees its own.
    uid = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: uid)
    (tmp_path / f"penstock-{uid}").mkdir()
    with pytest.raises(PermissionError, match="belongs to another user: set XDG_CACHE_HOME"):
        runtime.cache_folder()
